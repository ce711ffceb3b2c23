"""PySpark replaces py4j's error for some of Java's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ConfigError
from penstock.sinks.lake.delta import stored
from penstock.sinks.lake.iceberg.files import removed_if_refused
from penstock.sinks.lake.java_errors import JAVA_ERRORS, class_of, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_of_java_is_known_by_its_class_whoever_wraps_it(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(JAVA_ERRORS) as plain:
        jvm.java.nio.file.Files.readString(jvm.java.io.File("/none").toPath())
    with pytest.raises(JAVA_ERRORS) as replaced:
        jvm.java.util.UUID.fromString("none")
    assert [class_of(one.value) for one in (plain, replaced)] == [
        "NoSuchFileException", "IllegalArgumentException",
    ]  # fmt: skip
    assert [message_of(one.value) for one in (plain, replaced)] == ["/none", "Invalid UUID string: none"]


def test_a_root_that_hadoop_cannot_read_is_told_with_a_cure(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(ConfigError, match="cannot use s3://none") as refused, stored._explained("s3://none"):
        jvm.org.apache.hadoop.fs.Path("")
    assert "sink.path" in refused.value.hint


def test_files_stay_if_java_does_not_say_what_became_of_the_commit(spark: SparkSession) -> None:
    class Files:
        removed: tuple[str, ...] = ()

        def remove(self, locations: list[str]) -> None:
            self.removed += tuple(locations)

    class Target:
        def currentSnapshot(self) -> None:
            return None

    files: Any = Files()
    jvm: Any = spark._jvm
    with pytest.raises(JAVA_ERRORS), removed_if_refused(Target(), files, ["a"]):
        jvm.java.util.UUID.fromString("none")
    assert files.removed == ()
    with pytest.raises(ValueError), removed_if_refused(Target(), files, ["a"]):
        raise ValueError
    assert files.removed == ("a",)
