"""Definitions change while the pipeline runs; targets follow without a restart. One run, a table a hazard.

The judge is the server's own SELECT and its catalog.
"""

from __future__ import annotations

import pytest
from tests.scenarios.schema_changes import (
    Group,
    assert_history_at_the_target,
    change,
    hazard,
    look,
    running,
)

ROWS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
    "INSERT INTO {t} VALUES (1, 10, 'x'), (2, 20, 'y')",
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

HAZARDS = {
    "dropped_column": hazard(
        ROWS,
        "ALTER TABLE {t} DROP COLUMN a",
        "INSERT INTO {t} VALUES (3, 'z')",
        "DELETE FROM {t} WHERE id = 1",
    ),
    "renamed_column": hazard(
        ROWS,
        "ALTER TABLE {t} CHANGE a amount INT",
        "UPDATE {t} SET amount = 21 WHERE id = 2",
        "INSERT INTO {t} VALUES (3, 30, 'z')",
    ),
    "swapped_names": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO {t} VALUES (1, 10, 100)"),
        "ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "INSERT INTO {t} (id, a, b) VALUES (2, 200, 20)",
    ),
    "moved_column": hazard(
        ROWS,
        "ALTER TABLE {t} MODIFY b VARCHAR(20) FIRST, ADD COLUMN c INT DEFAULT 7 AFTER id",
        "INSERT INTO {t} VALUES ('z', 3, 8, 30)",
    ),
    "widened": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, n INT, f FLOAT, d DECIMAL(8,2))",
            "INSERT INTO {t} VALUES (1, 2147483647, 0.5, 123456.78)",
        ),
        "ALTER TABLE {t} MODIFY n BIGINT, MODIFY f DOUBLE, MODIFY d DECIMAL(20,2)",
        "INSERT INTO {t} VALUES (2, 9223372036854775807, 1e300, 123456789012345678.99)",
        "UPDATE {t} SET n = -9223372036854775808 WHERE id = 1",
    ),
    "another_key": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, uid INT NOT NULL)",
            "INSERT INTO {t} VALUES (1, 11), (2, 12)",
        ),
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (uid)",
        "UPDATE {t} SET id = 5 WHERE uid = 11",
        "INSERT INTO {t} VALUES (5, 13)",
        "DELETE FROM {t} WHERE uid = 12",
    ),
    "no_key": hazard(ROWS, "ALTER TABLE {t} DROP PRIMARY KEY", "INSERT INTO {t} VALUES (1, 1, 'twice')"),
    "begun_anew": hazard(
        ROWS,
        "DROP TABLE {t}",
        "CREATE TABLE {t} (id INT PRIMARY KEY, c DATE)",
        "INSERT INTO {t} VALUES (2, '2024-02-29')",
    ),
    "dropped": hazard(ROWS, "INSERT INTO {t} VALUES (3, 30, 'z')", "DROP TABLE {t}"),
    "only_the_server_knows": hazard(
        ROWS,
        "ALTER TABLE {t} ADD COLUMN u INT AS (id * 2) STORED",
        "INSERT INTO {t} (id) VALUES (3)",
    ),
    "more_digits_than_a_decimal_has": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, n INT, d DECIMAL(9,3), e DECIMAL(30,10), s DECIMAL(40,2))",
            "INSERT INTO {t} VALUES (1, 14, 1.5, 0.25, 7.5), (2, 0, NULL, 0, 0)",
        ),
        "ALTER TABLE {t} MODIFY e DECIMAL(12,3)",
        "ALTER TABLE {t} MODIFY n DECIMAL(40,12), MODIFY d DECIMAL(40,12), MODIFY e DECIMAL(40,3), "
        "MODIFY s DECIMAL(45,4)",
        "INSERT INTO {t} VALUES (3, 14, 1.5, 0.25, 7.5)",
    ),
    "untouched": hazard(ROWS, "INSERT INTO {t} VALUES (3, 30, 'z')"),
}


def live_through(group: Group) -> None:
    with running(group, HAZARDS) as pipeline:
        change(group, HAZARDS)
        group.case.server.execute("CREATE TABLE alike LIKE untouched", "INSERT INTO alike VALUES (1, 1, 'a')")
        look(group, pipeline)
        verified = group.case.command("verify")
        group.verified = verified.stdout + verified.stderr
        assert pipeline.stop() == 0


@pytest.mark.parametrize(
    "table",
    [
        "dropped_column",
        "renamed_column",
        "swapped_names",
        "moved_column",
        "widened",
        "another_key",
        "untouched",
    ],
)
def test_the_target_has_the_columns_and_rows_of_the_source(group: Group, table: str) -> None:
    group.assert_follows(table)
    assert all(decision in ("applied", "captured") for _, decision in group.changes(table))


def test_a_table_that_lost_its_key_is_parked_with_the_sql_that_adds_one_and_the_others_go_on(
    group: Group,
) -> None:
    parked = group.table("no_key")["parked"]
    assert "no primary key" in parked["reason"] and "ADD COLUMN" in parked["hint"]
    assert group.columns("no_key") == ["id", "a", "b"]


def test_a_dropped_tables_target_stays_as_it_was_at_the_drop(group: Group) -> None:
    assert group.table("dropped")["status"] == "dropped"
    assert sorted(row["id"] for row in group.case.target("dropped").collect()) == [1, 2, 3]


def test_a_table_created_under_the_name_of_a_dropped_one_holds_nothing_of_it(group: Group) -> None:
    group.assert_follows("begun_anew")


@pytest.mark.parametrize("table", ["only_the_server_knows", "more_digits_than_a_decimal_has"])
def test_values_that_only_the_server_knows_are_read_from_it(group: Group, table: str) -> None:
    group.assert_follows(table)
    assert any("read again" in decision for _, decision in group.changes(table))


def test_a_table_created_like_another_has_its_columns_and_key(group: Group) -> None:
    group.assert_follows("alike")


def test_every_change_stands_in_the_history_with_what_was_made_of_it(group: Group) -> None:
    assert [decision for _, decision in group.changes("dropped")] == ["captured", "target kept"]
    renamed = [one for one in group.history if one["table"].endswith(".renamed_column")][-1]
    assert renamed["statement"].startswith("ALTER TABLE renamed_column CHANGE") and renamed["version"] == 2
    assert renamed["committed"] and group.table("renamed_column")["last_change"] == renamed


def test_every_change_stands_once_in_a_table_beside_the_targets(group: Group) -> None:
    assert_history_at_the_target(group.case)
    history = group.case.target("scenario_schema_history").where("table LIKE '%.renamed_column'")
    [row] = history.where("version = 2").collect()
    assert row["statement"].startswith("ALTER TABLE renamed_column CHANGE") and row["decision"] == "applied"
    assert row["committed"] is not None and row["committed"] <= row["recorded"]


def test_verify_finds_source_and_target_equal(group: Group) -> None:
    assert "differ" not in group.verified, group.verified
