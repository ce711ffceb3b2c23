"""Finds Penstock's data source under its earlier name (`pyspark_penstock`)."""

from penstock.datasource.source import MySqlCdc as DefaultSource

__all__ = ["DefaultSource"]
