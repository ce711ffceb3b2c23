"""Online schema changes as gh-ost and pt-online-schema-change make them, each statement, under writes.

The tools themselves are not run: what they do to the log is what counts, so their sessions are played here,
with the locks and the two sessions of gh-ost's cut-over. The judge is the server's own SELECT.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pymysql
import pytest
from tests.scenarios.schema_changes import Group, look

from penstock.testing.meanwhile import Work, meanwhile
from penstock.testing.scenario import Scenario, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = 400
CHUNK = 50


def application(case: Scenario, table: str) -> Work:
    """It writes all the time, and waits where the tool locks it out."""

    def write(ending: threading.Event) -> None:
        dice = random.Random(table)
        with case.server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.002):  # the pace of the application
                key = dice.randrange(2 * ROWS)
                cursor.execute(f"INSERT IGNORE INTO {table} (id, a, b) VALUES (%s, 1, 'new')", (key,))
                cursor.execute(f"UPDATE {table} SET a = a + 1 WHERE id BETWEEN %s AND %s", (key - 3, key))
                cursor.execute(f"DELETE FROM {table} WHERE id = %s", (dice.randrange(2 * ROWS),))

    return write


def ghost(case: Scenario, table: str, alteration: str, shared: str) -> None:
    """gh-ost: the copy is kept up to date from the binlog, by REPLACE and DELETE of whole rows."""
    copy, log, gone = f"_{table}_gho", f"_{table}_ghc", f"_{table}_del"
    case.server.execute(
        f"DROP /* gh-ost */ TABLE IF EXISTS {copy}", f"DROP /* gh-ost */ TABLE IF EXISTS {gone}",
        f"CREATE /* gh-ost */ TABLE {log} (id BIGINT UNSIGNED AUTO_INCREMENT, last_update TIMESTAMP NOT NULL "
        "DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint VARCHAR(64) CHARSET ascii NOT NULL, "
        "value VARCHAR(4096) CHARSET ascii NOT NULL, PRIMARY KEY (id), UNIQUE KEY hint_uidx (hint)) "
        "AUTO_INCREMENT=256",
        f"CREATE /* gh-ost */ TABLE {copy} LIKE {table}",
        f"ALTER /* gh-ost */ TABLE {copy} {alteration}",
        f"INSERT /* gh-ost */ INTO {log} (id, hint, value) VALUES (NULLIF(2, 0), 'state', 'Migrated')",
    )  # fmt: skip
    with case.server.connect() as applier, applier.cursor() as cursor:
        for low in range(0, 2 * ROWS, CHUNK):
            cursor.execute(
                f"INSERT /* gh-ost */ IGNORE INTO {copy} ({shared}) (SELECT {shared} FROM {table} "
                f"FORCE INDEX (PRIMARY) WHERE id >= {low} AND id < {low + CHUNK} LOCK IN SHARE MODE)"
            )
            cursor.execute(
                f"INSERT /* gh-ost */ INTO {log} (id, hint, value) VALUES (NULLIF(1, 0), 'heartbeat', 'x') "
                "ON DUPLICATE KEY UPDATE last_update = NOW(), value = VALUES(value)"
            )
    _cut_over(case, table, copy, gone, shared)
    case.server.execute(
        f"DROP /* gh-ost */ TABLE IF EXISTS {log}", f"DROP /* gh-ost */ TABLE IF EXISTS {gone}"
    )


def _cut_over(case: Scenario, table: str, copy: str, gone: str, shared: str) -> None:
    """A sentry table keeps the RENAME from succeeding before the lock is held; then one session lets the
    other through. What the application wrote meanwhile is applied to the copy under the lock.

    The server takes the locks of a RENAME in the order of the names' bytes. The table has an upper-case
    letter in front, so that it comes before `_`, and the RENAME waits for it, ahead of the application. Else
    the application may write to it once more after the lock is gone, and the source itself loses those
    rows."""
    case.server.execute(
        f"CREATE /* gh-ost */ TABLE {gone} (id INT AUTO_INCREMENT PRIMARY KEY) "
        "COMMENT='ghost-cut-over-sentry'"
    )
    failed: list[Exception] = []

    def rename() -> None:
        try:
            case.server.execute(f"RENAME /* gh-ost */ TABLE {table} TO {gone}, {copy} TO {table}")
        except pymysql.Error as error:
            failed.append(error)

    with case.server.connect() as locker, locker.cursor() as cursor:
        cursor.execute(f"LOCK /* gh-ost */ TABLES {table} WRITE, {gone} WRITE")
        cursor.execute(f"SELECT {shared} FROM {table}")
        _apply(case, list(cursor.fetchall()), copy, shared)
        renamer = threading.Thread(target=rename)
        renamer.start()
        wait_for(
            lambda: case.server.query(
                "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'RENAME%' "
                "AND state LIKE 'Waiting%'"
            ),
            "the RENAME to wait",
        )
        cursor.execute(f"DROP /* gh-ost */ TABLE IF EXISTS {gone}")
        cursor.execute("UNLOCK TABLES")
    renamer.join()
    assert not failed, failed


def _apply(case: Scenario, rows: list[Any], copy: str, shared: str) -> None:
    """What gh-ost applies from the binlog row by row, here by comparison: rows changed since they were
    copied."""
    now = {row[0]: row for row in rows}
    places = ", ".join(["%s"] * len(shared.split(", ")))
    with case.server.connect() as applier, applier.cursor() as cursor:
        cursor.execute(f"SELECT {shared} FROM {copy}")
        copied = {row[0]: row for row in cursor.fetchall()}
        for key, row in now.items():
            if copied.get(key) != row:
                cursor.execute(f"REPLACE /* gh-ost */ INTO {copy} ({shared}) VALUES ({places})", row)
        for key in copied.keys() - now.keys():
            cursor.execute(f"DELETE /* gh-ost */ FROM {copy} WHERE id = %s", (key,))


def triggered(case: Scenario, table: str, alteration: str, shared: str) -> None:
    """pt-online-schema-change: triggers keep the copy up to date."""
    copy, gone, prefix = f"_{table}_new", f"_{table}_old", f"pt_osc_{table}"
    [(_, definition)] = case.server.query(f"SHOW CREATE TABLE {table}")
    new = ", ".join(f"NEW.{name}" for name in shared.split(", "))
    case.server.execute(
        definition.replace(f"CREATE TABLE `{table}`", f"CREATE TABLE `{case.database}`.`{copy}`", 1),
        f"ALTER TABLE `{case.database}`.`{copy}` {alteration}",
        f"CREATE TRIGGER {prefix}_del AFTER DELETE ON {table} FOR EACH ROW "
        f"DELETE IGNORE FROM {copy} WHERE {copy}.id <=> OLD.id",
        f"CREATE TRIGGER {prefix}_upd AFTER UPDATE ON {table} FOR EACH ROW BEGIN "
        f"DELETE IGNORE FROM {copy} WHERE !(OLD.id <=> NEW.id) AND {copy}.id <=> OLD.id; "
        f"REPLACE INTO {copy} ({shared}) VALUES ({new}); END",
        f"CREATE TRIGGER {prefix}_ins AFTER INSERT ON {table} FOR EACH ROW "
        f"REPLACE INTO {copy} ({shared}) VALUES ({new})",
    )
    for low in range(0, 2 * ROWS, CHUNK):
        case.server.execute(
            f"INSERT LOW_PRIORITY IGNORE INTO `{case.database}`.`{copy}` ({shared}) SELECT {shared} FROM "
            f"{table} FORCE INDEX(`PRIMARY`) WHERE id >= {low} AND id < {low + CHUNK} LOCK IN SHARE MODE "
            "/*pt-online-schema-change 4711 copy nibble*/"
        )
    case.server.execute(
        f"ANALYZE TABLE `{case.database}`.`{copy}` /* pt-online-schema-change */",
        f"RENAME TABLE `{case.database}`.`{table}` TO `{case.database}`.`{gone}`, "
        f"`{case.database}`.`{copy}` TO `{case.database}`.`{table}`",
        f"DROP TABLE IF EXISTS `{case.database}`.`{gone}`",
        *[f"DROP TRIGGER IF EXISTS `{case.database}`.`{prefix}_{kind}`" for kind in ("del", "upd", "ins")],
    )


CHANGES = {
    "Ghosted": (ghost, "ADD COLUMN c INT NOT NULL DEFAULT 7, MODIFY a BIGINT", "id, a, b, d"),
    "Ghosted_in_place": (ghost, "ENGINE=InnoDB", "id, a, b, d"),
    "by_triggers": (triggered, "DROP COLUMN d, ADD COLUMN e VARCHAR(9) DEFAULT 'e' AFTER id", "id, a, b"),
}
"""The tool, what it alters, and the columns that both tables have, which it copies."""


def live_through(group: Group) -> None:
    case = group.case
    rows = ", ".join(f"({n}, {n}, 'row', {n})" for n in range(ROWS))
    for table in CHANGES:
        case.server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b VARCHAR(20), d INT)",
            f"INSERT INTO {table} VALUES {rows}",
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        for table, (tool, alteration, shared) in CHANGES.items():
            with meanwhile(application(case, table)):
                tool(case, table, alteration, shared)
        look(group, pipeline)
        assert pipeline.stop() == 0


@pytest.mark.parametrize("table", CHANGES)
def test_an_online_schema_change_under_writes_ends_equal_and_repeats_no_row(group: Group, table: str) -> None:
    group.assert_follows(table)
    assert group.table(table)["chunks"]["total"] == 1, "its rows were read once, at the start"
    assert not [what for what, decision in group.changes(table) if "read" in what + decision]


def test_the_helper_tables_have_no_targets(group: Group) -> None:
    assert sorted(table["table"].split(".")[1] for table in group.status["tables"]) == sorted(CHANGES)
