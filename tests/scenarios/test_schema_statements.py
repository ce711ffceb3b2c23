"""Statements that change definitions, each hazard a table: all in one pipeline, which narrows types too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.schema_changes import Group, change, hazard, look, running

from penstock.testing import servers
from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
    "INSERT INTO {t} VALUES (1, 10, 'x'), (2, 20, 'y')",
)

HAZARDS = {
    "model": hazard(ROWS, "INSERT INTO {t} VALUES (3, NULL, 'z')"),
    "filled_like": hazard(
        (),
        "CREATE TABLE {t} LIKE model",
        "START TRANSACTION; INSERT INTO {t} SELECT * FROM model; UPDATE {t} SET a = id; COMMIT",
        "DELETE FROM {t} WHERE id = 2",
    ),
    "nullable": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 4)",
            "INSERT INTO {t} (id) VALUES (1)",
        ),
        "ALTER TABLE {t} MODIFY a INT NULL",
        "INSERT INTO {t} VALUES (2, NULL)",
        "UPDATE {t} SET a = NULL WHERE id = 1",
    ),
    "not_nullable": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, a INT)", "INSERT INTO {t} VALUES (1, NULL), (2, 5)"),
        "UPDATE {t} SET a = 0 WHERE a IS NULL",
        "ALTER TABLE {t} MODIFY a INT NOT NULL",
        "INSERT INTO {t} VALUES (3, 6)",
    ),
    "nulls_filled_silently": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, a INT)", "INSERT INTO {t} VALUES (1, NULL), (2, 5)"),
        "SET SESSION sql_mode = ''; ALTER TABLE {t} MODIFY a INT NOT NULL",
        "INSERT INTO {t} VALUES (3, 6)",
    ),
    "another_default": hazard(
        ROWS,
        "ALTER TABLE {t} ALTER COLUMN a SET DEFAULT 9, ALTER COLUMN b SET DEFAULT 'd'",
        "INSERT INTO {t} (id) VALUES (3)",
        "ALTER TABLE {t} ADD COLUMN c VARCHAR(9) NOT NULL DEFAULT 'it''s', "
        "ADD COLUMN d DATE DEFAULT '2024-02-29'",
        "ALTER TABLE {t} ALTER COLUMN a DROP DEFAULT, ALTER COLUMN c SET DEFAULT 'else'",
        "INSERT INTO {t} (id, a) VALUES (4, 4)",
    ),
    # Columns of one type, so that a value in a wrong place would be a value like any other.
    "reordered": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b INT, c INT)",
            "INSERT INTO {t} VALUES (1, 10, 100, 1000)",
        ),
        "ALTER TABLE {t} MODIFY c INT FIRST, MODIFY a INT AFTER b",
        "INSERT INTO {t} VALUES (2000, 2, 200, 20)",
        "ALTER TABLE {t} MODIFY b INT AFTER a, ADD COLUMN d INT DEFAULT 5 AFTER id",
        "UPDATE {t} SET a = 11 WHERE id = 1",
    ),
    "wider_key": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, part INT NOT NULL)", "INSERT INTO {t} VALUES (1, 1), (2, 1)"),
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (part, id)",
        "INSERT INTO {t} VALUES (1, 2), (2, 2)",
        "UPDATE {t} SET part = 3 WHERE id = 1 AND part = 1",
        "DELETE FROM {t} WHERE id = 2 AND part = 2",
    ),
    "narrower_key": hazard(
        (
            "CREATE TABLE {t} (a INT, b INT, v INT, PRIMARY KEY (a, b))",
            "INSERT INTO {t} VALUES (1, 1, 0), (2, 2, 0)",
        ),
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "UPDATE {t} SET b = 9, v = 1 WHERE a = 1",
        "DELETE FROM {t} WHERE a = 2",
    ),
    "renamed_key": hazard(
        ROWS,
        "ALTER TABLE {t} CHANGE id number BIGINT",
        "UPDATE {t} SET a = 0 WHERE number = 2",
        "INSERT INTO {t} VALUES (99999999999, 1, 'n')",
        "DELETE FROM {t} WHERE number = 1",
    ),
    "text_key": hazard(
        (
            "CREATE TABLE {t} (k VARCHAR(20) PRIMARY KEY, v INT) CHARACTER SET latin1",
            "INSERT INTO {t} VALUES ('Ärger', 1), ('b', 2)",
        ),
        "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "INSERT INTO {t} VALUES ('ärger', 3), ('日本', 4)",
        "UPDATE {t} SET v = 10 WHERE k = 'Ärger'",
        "DELETE FROM {t} WHERE k = 'b'",
    ),
    "narrower_charset": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET utf8mb4",
            "INSERT INTO {t} VALUES (1, 'naïve'), (2, 'x')",
        ),
        "ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
        "INSERT INTO {t} VALUES (3, 'é')",
    ),
    "lost_characters": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET utf8mb4",
            "INSERT INTO {t} VALUES (1, '日本'), (2, 'x')",
        ),
        "SET SESSION sql_mode = ''; ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
        "INSERT INTO {t} VALUES (3, 'é')",
    ),
    "to_bytes": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET latin1",
            "INSERT INTO {t} VALUES (1, 'é')",
        ),
        "ALTER TABLE {t} MODIFY v VARBINARY(20)",
        "INSERT INTO {t} VALUES (2, X'FF00')",
    ),
    "narrowed": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, n BIGINT, s VARCHAR(200), d DECIMAL(20,4))",
            "INSERT INTO {t} VALUES (1, 5, 'short', 12.5), (2, -7, NULL, NULL)",
        ),
        "ALTER TABLE {t} MODIFY n INT, MODIFY s VARCHAR(9), MODIFY d DECIMAL(8,2)",
        "INSERT INTO {t} VALUES (3, 2147483647, 'nine char', -999999.99)",
    ),
    "cut_off": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, n BIGINT, s VARCHAR(200), d DECIMAL(20,4))",
            "INSERT INTO {t} VALUES (1, 99999999999, 'longer than nine', 12.5678)",
        ),
        "SET SESSION sql_mode = ''; ALTER TABLE {t} MODIFY n INT, MODIFY s VARCHAR(9), MODIFY d DECIMAL(8,2)",
        "INSERT INTO {t} VALUES (2, 3, 's', 4)",
    ),
}
SILENT = ("nulls_filled_silently", "lost_characters", "cut_off")


def live_through(group: Group) -> None:
    group.case.write_file(schema={"narrowing": "rewrite"})
    with running(group, HAZARDS) as pipeline:
        change(group, HAZARDS)
        look(group, pipeline)
        assert pipeline.stop() == 0


@pytest.mark.parametrize("table", HAZARDS)
def test_the_target_has_the_columns_and_rows_of_the_source(group: Group, table: str) -> None:
    group.assert_follows(table)


@pytest.mark.parametrize("table", SILENT)
def test_values_that_the_server_changed_without_a_word_are_read_again(group: Group, table: str) -> None:
    assert any("read again" in decision for _, decision in group.changes(table))


@pytest.mark.parametrize("table", ["nullable", "not_nullable", "another_default", "reordered", "wider_key"])
def test_what_the_log_tells_is_not_read_again(group: Group, table: str) -> None:
    decisions = [decision for _, decision in group.changes(table)]
    assert decisions and not any("read again" in decision for decision in decisions)


def test_narrowing_by_policy_narrows_the_columns_of_the_target(group: Group) -> None:
    kinds = {field.name: field.dataType.simpleString() for field in group.case.target("narrowed").schema}
    assert (kinds["n"], kinds["d"]) == ("int", "decimal(8,2)")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mysql97", "mariadb118"])
def test_a_table_created_from_a_select_holds_its_rows_and_follows_what_comes(
    name: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    # MySQL below 8.0.21 refuses the statement where GTIDs are on.
    with servers.FLAVORS[name]({}) as server:
        case = Scenario(Database(server, "shop"), "shop", tmp_path, spark, lake_root)
        case.server.execute(*[statement.replace("{t}", "model") for statement in ROWS])
        with case.running() as pipeline:
            case.drain(pipeline)
            case.server.execute(
                "CREATE TABLE copied (PRIMARY KEY (id)) SELECT id, b, a FROM model",
                "INSERT INTO copied VALUES (7, 'n', 70)",
                "UPDATE copied SET a = 11 WHERE id = 1",
                "CREATE TABLE computed (PRIMARY KEY (n)) SELECT id + 5 AS n, CONCAT(b, '!') AS c, "
                "NOW(6) AS d FROM model",
                "DELETE FROM computed WHERE n = 6",
                "CREATE TABLE widened (extra INT DEFAULT 4, PRIMARY KEY (id)) SELECT id, a FROM model",
                "INSERT INTO widened (id) VALUES (9)",
                "CREATE TABLE fed LIKE model",
                "INSERT INTO fed SELECT * FROM model",
                "ALTER TABLE copied ADD COLUMN c INT DEFAULT 3",
                "DELETE FROM copied WHERE id = 2",
            )
            case.drain(pipeline)
            assert pipeline.stop() == 0
        case.assert_equal("model", "copied", "computed", "widened", "fed")
