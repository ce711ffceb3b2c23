"""The sink `iceberg` in other catalogs than a directory: real servers, in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lake_catalogs import FAULTY_S3, HDFS, HIVE, JDBC_S3, REST_S3, run_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3100)]  # more than `run_in` gives them

CONFORMANCE = "tests/sinks/conformance"

WITHOUT: dict[str, str] = {
    # Nessie has no older snapshots of a table, and gives `@` and `#` in names a meaning of its own.
    REST_S3: " and not any_name and not held_stays",
    # Hive takes only letters, digits and `_` in names of databases and tables.
    HIVE: " and not any_name",
}


@pytest.mark.parametrize("place", [JDBC_S3, REST_S3, HIVE, HDFS])
def test_the_sink_keeps_its_promises_in_every_catalog(place: str) -> None:
    run_in(place, CONFORMANCE, "-k", f"iceberg{WITHOUT.get(place, '')}", seconds=3000)


def test_every_mistake_is_told_with_the_cure() -> None:
    run_in(JDBC_S3, str(Path(__file__).with_name("catalog_mistakes.py")), seconds=900)


def test_a_glue_that_answers_something_else_is_waited_for() -> None:
    assert "2 passed" in run_in(JDBC_S3, str(Path(__file__).with_name("glue_faults.py")), seconds=900)


def test_kills_and_faults_of_the_store_together_lose_and_double_nothing() -> None:
    """A hundred kills and more, each at another moment, while one request in twenty-five fails."""
    run_in(FAULTY_S3, f"{CONFORMANCE}/test_kills.py", "-k", "iceberg", seconds=3000)


def test_a_partitioned_target_may_be_anywhere_in_an_object_store() -> None:
    run_in(JDBC_S3, str(Path(__file__).with_name("catalog_locations.py")), seconds=300)


def test_few_requests_follow_each_other_and_metadata_files_are_there_before_the_catalog_names_them() -> None:
    files = (str(Path(__file__).with_name(name)) for name in ("metadata_on_s3.py", "requests_on_s3.py"))
    assert "8 passed" in run_in(JDBC_S3, *files, seconds=600)
