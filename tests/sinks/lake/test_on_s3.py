"""Iceberg and Delta tables on real S3 servers. One process tries both: its start costs the most."""

from __future__ import annotations

from pathlib import Path

from tests.lake_catalogs import S3, run_in

HERE = Path(__file__).parent
WRITES = "tests/sinks/conformance/test_tables.py::test_a_table_lives_through_every_kind_of_write[iceberg]"
METADATA = str(HERE / "iceberg" / "metadata_on_s3.py")
COMMITS = [
    f"{HERE / 'delta' / 'on_s3.py'}::{name}"
    for name in (
        "test_of_many_writers_of_a_version_exactly_one_succeeds",
        "test_rows_are_written_without_sparks_writer",
        "test_vacuum_by_a_user_leaves_the_log",
    )
]


def test_iceberg_lives_through_every_kind_of_write_and_a_version_of_delta_has_one_writer() -> None:
    """And Iceberg's metadata files are in the store before the catalog names them."""
    said = run_in(S3, WRITES, METADATA, *COMMITS, seconds=400, quick=True)
    assert "10 passed" in said
