"""The parts of `make test-all`, each meant to end within an hour on two cores: `make test-all PART=servers`.

A test file belongs to the part that names it, or else to the part that names the nearest folder above it.
`tests/test_parts.py` checks that this is exactly one part for every test file.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent

PARTS: dict[str, tuple[str, ...]] = {
    # No server and no Spark, or hardly: everything that is not named below.
    "units": (".",),
    # Each kind of server: what it logs, what is read from it, and what the core makes of that.
    "servers": (
        "cascades",
        "changes",
        "commands",
        "core",
        "properties/test_values.py",
        "relaylog",
        "serve",
        "snapshot/test_single_view.py",
        "sources",
        "store",
        "testing",
        "verify",
    ),
    "sinks": ("sinks",),
    "lakes": ("sinks/lake",),
    # What runs in Spark: epochs, transforms, views, and the data source `mysql_cdc`.
    "spark": ("datasource", "epochs", "spark"),
    # All that again for lakes in object storage and other catalogs.
    "stores": (
        "sinks/lake/delta/test_on_s3.py",
        "sinks/lake/iceberg/test_catalogs.py",
        "sinks/lake/test_on_s3.py",
    ),
    "crash": ("chaos", "crash", "test_wheel.py"),
    # Long series of random events against a model.
    "histories": ("properties", "snapshot/test_histories.py"),
    # Whole pipelines: what users do with them …
    "scenarios": ("scenarios",),
    # … what schema changes do to them …
    "schema": (
        "scenarios/test_online_schema_change.py",
        "scenarios/test_renames.py",
        "scenarios/test_schema_follows.py",
        "scenarios/test_schema_hard.py",
        "scenarios/test_schema_statements.py",
        "scenarios/test_schema_storm.py",
        "scenarios/test_statement_format.py",
        "scenarios/test_without_row_events.py",
    ),
    # … and what goes wrong around them.
    "faults": (
        "scenarios/test_bad_input.py",
        "scenarios/test_bad_spark.py",
        "scenarios/test_bad_state.py",
        "scenarios/test_bad_target.py",
        "scenarios/test_failover.py",
        "scenarios/test_hangs.py",
        "scenarios/test_hostile_names.py",
        "scenarios/test_parked_at_start.py",
        "scenarios/test_two_drivers.py",
    ),
}


QUICK_PIPELINES = {
    "crash/test_kill9.py": {"test_source_and_target_are_equal_after_kills"},
    "scenarios/schema_changes.py": {"running"},
    "scenarios/test_pipeline.py": {"seen"},
}
"""By file, what starts whole pipelines in `make test`. Each takes 10 to 40 seconds of CPU, so this may only
shrink: let one of these pipelines keep a new promise too, or a smaller test, or mark the test as slow."""


def parts_of(path: Path) -> list[str]:
    """The parts that name a test file, or the nearest folder above it that any part names."""
    relative = path.relative_to(TESTS)
    for place in (relative, *relative.parents):
        if found := [part for part, places in PARTS.items() if str(place) in places]:
            return found
    return []
