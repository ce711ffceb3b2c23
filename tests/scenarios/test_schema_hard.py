"""Changes of definitions at their worst: swaps, rows that change silently, backlogs, kills, policies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from tests.scenarios.schema_changes import Group, change, hazard, look, running

from penstock.testing.meanwhile import meanwhile
from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]

ROWS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
    "INSERT INTO {t} VALUES (1, 10, 'x'), (2, 20, 'y')",
)
PARTS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, a INT)",
    "ALTER TABLE {t} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9))",
    "ALTER TABLE {t} ADD PARTITION (PARTITION p1 VALUES LESS THAN (20))",
    "INSERT INTO {t} VALUES (1, 1), (11, 11)",
)

FOLLOWED = {
    # As gh-ost does it: a ghost with the new definition, rows and changes copied by the tool, a swap.
    "ghosted": hazard(
        ROWS,
        "CREATE TABLE _{t}_gho LIKE {t}",
        "ALTER TABLE _{t}_gho ADD COLUMN c INT NOT NULL DEFAULT 7, DROP COLUMN a",
        "INSERT IGNORE INTO _{t}_gho (id, b) SELECT id, b FROM {t}",
        "UPDATE {t} SET b = 'late' WHERE id = 2",
        "REPLACE INTO _{t}_gho (id, b) VALUES (2, 'late')",
        "RENAME TABLE {t} TO _{t}_del, _{t}_gho TO {t}",
        "INSERT INTO {t} VALUES (3, 'z', 8)",
        "DROP TABLE _{t}_del",
    ),
    # As pt-online-schema-change does it.
    "reshaped": hazard(
        ROWS,
        "CREATE TABLE _{t}_new LIKE {t}",
        "ALTER TABLE _{t}_new MODIFY a BIGINT",
        "INSERT LOW_PRIORITY IGNORE INTO _{t}_new (id, a, b) SELECT id, a, b FROM {t}",
        "RENAME TABLE {t} TO _{t}_old, _{t}_new TO {t}",
        "DROP TABLE IF EXISTS _{t}_old",
        "INSERT INTO {t} VALUES (3, 99999999999, 'z')",
    ),
    "partition_dropped": hazard(
        PARTS, "ALTER TABLE {t} DROP PARTITION p0", "INSERT INTO {t} VALUES (12, 12)"
    ),
    "partition_emptied": hazard(
        PARTS, "ALTER TABLE {t} TRUNCATE PARTITION p1", "INSERT INTO {t} VALUES (2, 2)"
    ),
    "partition_exchanged": hazard(
        (*PARTS, "CREATE TABLE {t}_other (id INT PRIMARY KEY, a INT)", "INSERT INTO {t}_other VALUES (5, 5)"),
        "ALTER TABLE {t} EXCHANGE PARTITION p0 WITH TABLE {t}_other",
        "INSERT INTO {t} VALUES (3, 3)",
    ),
    "charset": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET latin1",
            "INSERT INTO {t} VALUES (1, 'naïve')",
        ),
        "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO {t} VALUES (2, '日本')",
    ),
    "relabelled": hazard(
        (
            "CREATE TABLE {t} (id INT PRIMARY KEY, e ENUM('a', 'b'))",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        ),
        "ALTER TABLE {t} MODIFY e ENUM('b', 'c', 'a')",
        "INSERT INTO {t} VALUES (3, 'c')",
    ),
    "computed": hazard(
        ROWS, "ALTER TABLE {t} ADD COLUMN g INT AS (a * 2) STORED", "INSERT INTO {t} (id, a) VALUES (3, 30)"
    ),
    "number_from_text": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO {t} VALUES (1, '12')"),
        "ALTER TABLE {t} MODIFY v INT",
        "INSERT INTO {t} VALUES (2, 13)",
    ),
    "text_from_number": hazard(
        ("CREATE TABLE {t} (id INT PRIMARY KEY, v INT)", "INSERT INTO {t} VALUES (1, -12)"),
        "ALTER TABLE {t} MODIFY v VARCHAR(20)",
        "INSERT INTO {t} VALUES (2, 'thirteen')",
    ),
    "numbered": hazard(
        ("CREATE TABLE {t} (v INT NOT NULL, w INT, UNIQUE KEY (v))", "INSERT INTO {t} VALUES (5, 1), (6, 1)"),
        "ALTER TABLE {t} ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        "INSERT INTO {t} (v, w) VALUES (7, 2)",
        "UPDATE {t} SET v = 50 WHERE v = 5",
    ),
    "emptied": hazard(
        ROWS,
        "TRUNCATE TABLE {t}",
        "INSERT INTO {t} VALUES (2, 5, 'z')",
        "TRUNCATE {t}",
        "INSERT INTO {t} VALUES (9, 9, 'n')",
    ),
    "again_and_again": hazard(
        ROWS,
        *[f"ALTER TABLE {{t}} ADD COLUMN c{n} INT NOT NULL DEFAULT {n}" for n in range(5)],
        "ALTER TABLE {t} DROP COLUMN c1, RENAME COLUMN c2 TO c1",
        "INSERT INTO {t} (id) VALUES (3)",
    ),
    "swap_one": hazard(
        ROWS,
        "RENAME TABLE swap_one TO swap_tmp, swap_two TO swap_one, swap_tmp TO swap_two",
        "INSERT INTO swap_one VALUES (8, 8)",
    ),
    "swap_two": hazard(("CREATE TABLE {t} (id INT PRIMARY KEY, z INT)", "INSERT INTO {t} VALUES (7, 7)")),
    "moved_from": hazard(
        ROWS, "RENAME TABLE moved_from TO moved_to", "INSERT INTO moved_to VALUES (3, 30, 'z')"
    ),
    "gone_one": hazard(ROWS, "DROP TABLE gone_one, gone_two"),
    "gone_two": hazard(ROWS),
}

GONE = {"moved_from", "gone_one", "gone_two"}
NEW = {"moved_to"}


def live_through(group: Group) -> None:
    database = group.case.database
    group.case.write_file(tables={"include": [f"{database}.*"], "exclude": [f"{database}.*_other"]})
    with running(group, FOLLOWED) as pipeline:
        change(group, FOLLOWED)
        look(group, pipeline)
        assert pipeline.stop() == 0


@pytest.mark.parametrize("table", sorted((FOLLOWED.keys() | NEW) - GONE))
def test_the_target_has_the_columns_and_rows_of_the_source(group: Group, table: str) -> None:
    group.assert_follows(table)


@pytest.mark.parametrize("table", sorted(GONE))
def test_the_target_of_a_name_that_is_gone_stays(group: Group, table: str) -> None:
    assert group.table(table)["status"] == "dropped"
    if table == "moved_from" and group.case.sink == "delta":
        return  # its target is that of `moved_to`
    assert sorted(row["id"] for row in group.case.target(table).collect()) == [1, 2]


@pytest.mark.parametrize("table", ["swap_one", "swap_two", "moved_to"])
def test_a_renamed_table_takes_its_target_along_where_the_sink_can_move_it(group: Group, table: str) -> None:
    last = [decision for what, decision in group.changes(table) if what.startswith("renamed from ")][-1]
    assert ("its target has come with it" in last) == (group.case.sink == "delta")
    assert ("read from its beginning" in last or last == "captured") == (group.case.sink == "iceberg")


@pytest.mark.parametrize("table", ["reshaped"])
def test_an_online_schema_change_does_not_read_the_table_again(group: Group, table: str) -> None:
    assert not [what for what, _ in group.changes(table) if "read again" in what]


@pytest.mark.parametrize(
    "table", ["partition_dropped", "partition_emptied", "partition_exchanged", "numbered"]
)
def test_rows_that_changed_silently_are_read_again(group: Group, table: str) -> None:
    assert [what for what, _ in group.changes(table) if "read again" in what]


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_backlog_with_changes_in_the_middle_is_decoded_with_the_definition_of_each_part(
    scenario: Make, sink: str
) -> None:
    case = scenario(sink)
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (0, 0, 0)")
    assert case.command("run", "--once", timeout=900).returncode == 0
    changes = [
        "RENAME COLUMN a TO tmp, RENAME COLUMN b TO a", "RENAME COLUMN tmp TO b", "MODIFY b BIGINT FIRST",
        "MODIFY a VARCHAR(20)", "MODIFY b INT AFTER id",
    ]  # fmt: skip
    for number, what in enumerate(changes):
        first = number * 1000
        rows = ", ".join(f"({n}, {n}, {n})" for n in range(first + 1, first + 400))
        case.server.execute(f"INSERT INTO t VALUES {rows}", f"UPDATE t SET a = id + 1 WHERE id > {first}")
        case.server.execute(f"ALTER TABLE t {what}")
    done = case.command("run", "--once", timeout=900)
    assert done.returncode == 0, done.stderr
    case.assert_equal("t")


def test_killed_again_and_again_while_definitions_change_it_ends_equal(scenario: Make) -> None:
    case = scenario("delta", snapshot={"chunk_rows": 200})
    rows = ", ".join(f"({n}, {n}, 'x{n}')" for n in range(2000))
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))", f"INSERT INTO t VALUES {rows}"
    )
    changes = [
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7 FIRST",
        "ALTER TABLE t MODIFY b VARCHAR(30)",  # INT until now
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t ADD COLUMN u INT AS (id * 2) STORED",
    ]
    with case.running() as pipeline:
        for number, statement in enumerate(changes):
            case.server.execute(statement, f"UPDATE t SET b = '{number}' WHERE id % 50 = {number}")
            pipeline.next_epoch(seconds=400, restart=True)
            pipeline.kill(("driver", "jvm", "worker")[number % 3])
            pipeline.ensure_alive()
        status = case.drain(pipeline, restart=True)
        assert [table["status"] for table in status["tables"]] == ["live"]
    case.assert_equal("t")


def test_a_change_log_goes_on_through_every_change_and_a_truncate_begins_what_is_read_again(
    scenario: Make,
) -> None:
    case = scenario("parquet")
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9))", "INSERT INTO t VALUES (1, 10, 'x')"
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "ALTER TABLE t CHANGE a amount BIGINT, DROP COLUMN b",
            "INSERT INTO t VALUES (2, 99999999999)",
            "ALTER TABLE t ADD COLUMN u INT AS (id * 2) STORED",
        )
        case.drain(pipeline)
        case.server.execute("DELETE FROM t WHERE id = 1")
        case.drain(pipeline)
    rows = sorted(case.target("t").collect(), key=lambda row: row["_sequence"])
    kinds = [(row["_change_type"], row["id"], row["a"], row["amount"]) for row in rows]
    assert kinds[:2] == [("read", 1, 10, None), ("insert", 2, None, 99999999999)]
    assert kinds[2] == ("truncate", None, None, None)
    assert sorted(kinds[3:]) == [
        ("delete", 1, None, 10), ("read", 1, None, 10), ("read", 2, None, 99999999999)
    ]  # fmt: skip


def test_columns_are_kept_as_they_are_if_changes_are_ignored_and_come_back_if_they_no_longer_are(
    scenario: Make,
) -> None:
    case = scenario(schema={"changes": "ignore"})
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 10, 100)"
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "ALTER TABLE t RENAME COLUMN a TO renamed, DROP COLUMN b, ADD COLUMN c INT",
            "INSERT INTO t VALUES (2, 20, 200)",
            "UPDATE t SET renamed = 11 WHERE id = 1",
        )
        case.drain(pipeline)
        rows = [tuple(row)[:3] for row in case.target("t").orderBy("id").collect()]
        assert rows == [(1, 11, None), (2, 20, None)]
        assert pipeline.stop() == 0
        case.write_file(schema={"changes": "evolve"})
        pipeline.start()
        case.server.execute("ALTER TABLE t ADD COLUMN d INT", "INSERT INTO t VALUES (3, 30, 300, 3)")
        case.drain(pipeline)
    case.assert_equal("t")


def test_a_change_that_is_not_wanted_parks_its_table_and_resnapshot_takes_it(scenario: Make) -> None:
    case = scenario(schema={"changes": "fail", "rereads": "fail", "dropped_tables": "drop"})
    case.server.execute(*[one.replace("{t}", name) for name in ("t", "p", "d") for one in ROWS])
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("ALTER TABLE t ADD COLUMN c INT", "INSERT INTO t VALUES (3, 30, 'z', 1)")
        case.server.execute("DROP TABLE d", "INSERT INTO p VALUES (3, 30, 'z')")
        status = case.drain(pipeline)
        states = {table["table"].split(".")[1]: table["status"] for table in status["tables"]}
        assert states == {"t": "parked", "p": "live", "d": "dropped"}
        assert not case.spark.catalog.tableExists(f"lake.{case.namespace}.d")
        assert case.command("resnapshot", f"{case.database}.t").returncode == 0
        case.server.execute("INSERT INTO t VALUES (4, 40, 'z', 1)")
        pipeline.wait_until(
            lambda s: s["snapshot"]["done"] and all(t["status"] != "parked" for t in s["tables"]),
            "the table to come back",
            seconds=400,
        )
        case.drain(pipeline)
    case.assert_equal("t", "p")
    history = json.loads(case.command("status", "--history", "--json").stdout)
    assert "target dropped" in [one["decision"] for one in history]


def test_a_pipeline_that_begins_in_the_past_finds_each_definition_in_the_log_or_reads_the_table_again(
    scenario: Make,
) -> None:
    case = scenario()
    case.server.execute(
        "CREATE TABLE older (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
        "INSERT INTO older VALUES (1, 1, 'x')",
    )
    [(executed,)] = case.server.query("SELECT @@gtid_executed")
    case.server.execute(
        "CREATE TABLE born (id INT PRIMARY KEY, a INT)",
        "INSERT INTO born VALUES (1, 10)",
        "INSERT INTO older VALUES (2, 2, 'y')",
        "ALTER TABLE born ADD COLUMN b VARCHAR(20) FIRST",
        "INSERT INTO born VALUES ('y', 2, 20)",
        "ALTER TABLE older DROP COLUMN a",
        "INSERT INTO older VALUES (3, 'z')",
        "ALTER TABLE born DROP COLUMN a",
        "UPDATE born SET b = 'x' WHERE id = 1",
    )
    case.source_options = {"start": {"gtid": executed.replace("\n", "")}}
    case.write_file()
    done = case.command("run", "--once", timeout=900)
    assert done.returncode == 0, done.stderr
    case.assert_equal("born", "older")
    history = json.loads(case.command("status", "--history", "--json").stdout)
    assert not [one for one in history if one["table"].endswith(".born") and "read again" in one["what"]]


def test_definitions_that_change_faster_than_they_can_be_read_stop_nothing(scenario: Make) -> None:
    case = scenario()
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)",
        "CREATE TABLE calm (id INT PRIMARY KEY)",
    )  # fmt: skip

    def storm(ending: threading.Event) -> None:
        for number in range(1, 20_000):
            if ending.is_set():
                return
            case.server.execute(
                f"ALTER TABLE t ADD COLUMN c{number} INT AS (id * {number}) STORED",
                f"ALTER TABLE t DROP COLUMN c{number}",
                f"INSERT INTO calm VALUES ({number})",
            )

    with case.running() as pipeline:
        with meanwhile(storm):
            pipeline.wait_until(lambda s: s["epoch"] > 5, "epochs in the storm", seconds=400)
        case.server.execute("INSERT INTO t VALUES (2, 2)")
        status = case.drain(pipeline)
        assert {table["status"] for table in status["tables"]} == {"live"}
    case.assert_equal("t", "calm")
