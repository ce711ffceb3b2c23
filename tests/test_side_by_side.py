"""Files are given to workers as `side_by_side.py` says."""

from __future__ import annotations

import pytest
from tests.side_by_side import TESTS, needs_spark, next_file

WITH = "tests/sinks/conformance/test_tables.py"
WITHOUT = "tests/model/test_table.py"
KAFKA = "tests/sinks/kafka/test_sink.py"


def test_files_whose_tests_start_spark_are_known(request: pytest.FixtureRequest) -> None:
    """Of those that this run has collected."""
    found = {item.path for item in request.session.items if "spark" in getattr(item, "fixturenames", ())}
    unknown = [path for path in found if not needs_spark(str(path.relative_to(TESTS.parent)))]
    assert not unknown


def given(worker: int, *files: str) -> str | None:
    return next_file(files, worker, cores=2, workers=4)


def test_spark_is_for_as_many_workers_as_there_are_cores() -> None:
    for worker in (0, 1):
        assert given(worker, WITHOUT, WITH) == WITH
        assert given(worker, WITHOUT) == WITHOUT, "when none is left that needs Spark"
    for worker in (2, 3):
        assert given(worker, WITH, WITHOUT) == WITHOUT
        assert given(worker, WITH) is None
    assert given(4, WITH) == WITH, "it replaces a worker that died"
    assert given(4, WITHOUT) == WITHOUT
    assert given(0) is None


def test_kafka_is_for_one_of_the_others() -> None:
    assert given(2, WITH, WITHOUT, KAFKA) == KAFKA
    assert given(2, WITH, WITHOUT) == WITHOUT
    assert given(3, KAFKA, WITHOUT) == WITHOUT
    assert given(3, KAFKA) is None
    assert given(0, KAFKA) == KAFKA, "when none is left that needs Spark"
