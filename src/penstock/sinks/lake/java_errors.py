"""Errors of Java code that is called through py4j.

PySpark replaces py4j's error for some of Java's classes, such as IllegalArgumentException and
UnsupportedOperationException, by an exception of its own: also where Iceberg or Hadoop has raised them. So
whoever catches `Py4JJavaError` alone misses these.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

JAVA_ERRORS = (Py4JJavaError, CapturedException)
"""For `except` and `isinstance`."""
JavaError: TypeAlias = Py4JJavaError | CapturedException


def class_of(error: JavaError) -> str:
    """The name of the Java class, without its package. Empty if the error is not Java's."""
    java = _java(error)
    return "" if java is None else str(java.getClass().getSimpleName())


def message_of(error: JavaError) -> str:
    """Java's message, without a stack trace."""
    java = _java(error)
    return "" if java is None else str(java.getMessage())


def _java(error: JavaError) -> Any:
    return error.java_exception if isinstance(error, Py4JJavaError) else error._origin
