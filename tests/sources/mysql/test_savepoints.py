"""Savepoints of functions and triggers, whose names are those of savepoints around them. The judge is the
server's SELECT, and its own binlog files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog.fenced import begin_behind
from tests.relaylog.taken_back import statements_of
from tests.sources.mysql.receiving import Receiving, receiving, source_events
from tests.sources.mysql.test_preflight import config_for

from penstock.changes import TableChanged, follow
from penstock.commands.encode import encode
from penstock.config import RelayLogConfig, TablesConfig
from penstock.model.offset import LogRange
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.relaylog import index
from penstock.relaylog.index import merge, parse_lines
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.segment import list_segments
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources.mysql.event_types import QUERY
from penstock.sources.mysql.savepoints import names_savepoint
from penstock.sources.mysql.source import MySqlSource
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer

OPTIONS: dict[str, dict[str, Any]] = {
    "mysql57": {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
    "mariadb1011": {},
    "mariadb118": {},
}
FUNCTION = (
    "CREATE FUNCTION d.f(n INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN"
    " INSERT INTO d.u VALUES (n); SAVEPOINT a; INSERT INTO d.u VALUES (n + 1); RETURN n; END"
)
FORCED = "DROP TEMPORARY TABLE d.tmp"
"""The server cannot take it back, so it logs what was undone."""


def transaction(*between: str) -> tuple[str, ...]:
    return (
        "CREATE TEMPORARY TABLE d.tmp (id INT)", "BEGIN", "INSERT INTO d.o VALUES (1)", FORCED, "SAVEPOINT a",
        "INSERT INTO d.t VALUES (1)", *between, "INSERT INTO d.t VALUES (4)", "ROLLBACK TO a", "COMMIT",
    )  # fmt: skip


IN_FUNCTION = transaction("DO d.f(2)")
MOVED = transaction("INSERT INTO d.u VALUES (2)", "SAVEPOINT A", "INSERT INTO d.u VALUES (3)")


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name != "mariadb1011")) for name in OPTIONS]
)
def server(request: Any) -> Iterator[DatabaseServer]:
    with servers.FLAVORS[request.param](OPTIONS[request.param]) as server:
        tables = [f"CREATE TABLE d.{name} (id INT PRIMARY KEY)" for name in "otu"]
        server.execute("CREATE DATABASE d", *tables, FUNCTION, "FLUSH BINARY LOGS")
        yield server


def rows(server: DatabaseServer) -> dict[str, list[int]]:
    return {name: [one for (one,) in server.query(f"SELECT id FROM d.{name} ORDER BY id")] for name in "otu"}


def shape(server: DatabaseServer) -> list[tuple[int, bytes]]:
    """The last transaction of the log, without ids, numbers and names of savepoints in another case."""
    events = source_events(server)
    begin = max(at for at, event in enumerate(events) if event[4] == 162 or b"BEGIN" in event)
    rows_of = range(23, 33)
    return [
        (event[4], event[25:-4] if event[4] in rows_of else event[-9:-4].lower())
        for event in events[begin + 1 : -1]
    ]


def doubts(receiver: Receiving) -> list[Statement]:
    receiver.wait_until_level()
    log = receiver.log
    return [one for one in log.statements(LogRange(log.start, log.end)) if one.event == QUERY]


def reread(server: DatabaseServer, receiver: Receiving, folder: Path, **account: str) -> set[TableId]:
    """The tables that are read again because of the last doubt."""
    source = MySqlSource(config_for(server, folder, tables=["d.*"], source=account))
    try:
        captured = TableFilter(TablesConfig(include=["d.*"]))
        reader = source.statements(captured, receiver.log, types=DEFAULT_TYPES, parks_cascades=True)
        effects = reader.effects(doubts(receiver)[-1], source.catalog.read_tables(captured))
        assert all("savepoints of one name" in str(one.rereads) for one in effects)
        return {one.table for one in effects}
    finally:
        source.close()


def test_a_rollback_to_one_of_several_savepoints_reads_the_tables_between_them_again(
    server: DatabaseServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    between = {TableId("d", "t"), TableId("d", "u")}
    with receiving(server, tmp_path / "log", start="latest") as receiver:
        receiver.wait_until_level()
        server.execute(*IN_FUNCTION)
        assert statements_of(server) == ["SAVEPOINT `a`"] * 2 + ["ROLLBACK TO `a`"]
        assert rows(server) == {"o": [1], "t": [], "u": []}
        of_function = shape(server)
        [doubt] = doubts(receiver)
        assert doubt.tables == ["d.t", "d.u"]
        assert reread(server, receiver, tmp_path) == between
        server.execute("CREATE USER p@'%' IDENTIFIED BY 'p'", "GRANT SELECT ON *.* TO p@'%'")

        server.execute("DROP FUNCTION d.f", *(f"DELETE FROM d.{name}" for name in "otu"), *MOVED)
        assert rows(server) == {"o": [1], "t": [1], "u": [2]}, "the same log means other rows"
        assert shape(server) == of_function
        assert len(doubts(receiver)) == 2
        assert reread(server, receiver, tmp_path) == set(), "no function or trigger sets savepoints"
        assert reread(server, receiver, tmp_path, user="p", password="p") == between, "triggers are hidden"
        _followed(receiver)
        server.execute("INSERT INTO d.o VALUES (9)")
        _encoded(server, receiver, tmp_path, capfd)


def _followed(receiver: Receiving) -> None:
    unseen = []
    with follow(receiver.file, ["d.*"], start="earliest", order="log", until=receiver.log.end) as changes:
        for item in changes:
            if isinstance(item, TableChanged):
                unseen.append((item.table.table, "savepoints of one name" in item.unseen))
    assert unseen == []


def _encoded(
    server: DatabaseServer, receiver: Receiving, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ddl = folder / "tables.sql"
    ddl.write_text(
        ";".join(["CREATE DATABASE d", *(f"CREATE TABLE d.{x} (id INT PRIMARY KEY)" for x in "otu")])
    )
    receiver.wait_until_level()
    for paths in (server.binlog_files()[-1:], [receiver.log_path]):
        capfd.readouterr()
        code = encode(
            [str(path) for path in paths], format="json", options=(), ddl=[ddl], ddl_version="8.0",
            server=None, tables=["d.o", "d.t"], keys=False, as_json=False,
        )  # fmt: skip
        captured = capfd.readouterr()
        assert code == 0
        assert json.loads(captured.out.splitlines()[-1])["after"] == {"id": 9}
        assert captured.err.count("which of several savepoints of one name a ROLLBACK TO means") == 2


def test_a_rollback_to_a_savepoint_without_rows_before_the_next_of_its_name_is_clear(
    server: DatabaseServer, tmp_path: Path
) -> None:
    with receiving(server, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        server.execute(
            "CREATE TEMPORARY TABLE d.tmp (id INT)", "BEGIN", "INSERT INTO d.o VALUES (1)", FORCED,
            "SAVEPOINT a", "SAVEPOINT b", "SAVEPOINT a", "INSERT INTO d.t VALUES (1)", "ROLLBACK TO a",
            "SAVEPOINT c", "INSERT INTO d.t VALUES (2)", "ROLLBACK TO c", "INSERT INTO d.t VALUES (3)",
            "ROLLBACK TO c", "COMMIT",
        )  # fmt: skip
        assert statements_of(server).count("ROLLBACK TO `a`") == 1
        assert statements_of(server).count("ROLLBACK TO `c`") == 2
        assert rows(server) == {"o": [1], "t": [], "u": []}
        assert doubts(receiver) == []


@pytest.mark.slow
def test_where_the_index_was_cut_between_two_savepoints_all_tables_are_read_again(
    server: DatabaseServer, tmp_path: Path
) -> None:
    with receiving(server, tmp_path, start="latest", span_size=1) as receiver:
        receiver.wait_until_level()
        server.execute(*IN_FUNCTION)
        [doubt] = doubts(receiver)
        assert {*(doubt.tables or ())} == {"d.o", "d.t", "d.u"}


def test_a_span_that_begins_inside_the_transaction_is_counted_again_with_its_doubt(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """The events that set the savepoints may be before the span, and then nobody reads them again."""
    with receiving(server, tmp_path / "log", start="latest", span_size=1) as receiver:
        receiver.wait_until_level()
        server.execute(*IN_FUNCTION, "BEGIN", *(f"INSERT INTO d.o VALUES ({n})" for n in (8, 9)), "COMMIT")
        [doubt] = doubts(receiver)
        assert receiver.stop() == 0
        name = list_segments(receiver.log_path)[-1]
        entries = parse_lines((receiver.log_path / name.index).read_bytes(), receiver.log_path)
    inside = [at for at, one in enumerate(entries) if "open" in one.fields and one.start < doubt.end]
    assert len(inside) > 8, "spans begin at each event of the transaction"
    behind = next(at for at, one in enumerate(entries) if one.end > doubt.end and one.tables)
    assert entries[behind].committed == doubt.end, "the next transaction has begun, and not ended"
    for at in inside:
        joined = reduce(lambda left, right: merge(left, right, name.format), entries[at : behind + 1])
        spans = [*entries[:at], joined]
        for closed_by in ("a successor", "recovery"):
            copy = tmp_path / f"{closed_by} at {at}"
            shutil.copytree(receiver.log_path, copy)
            (copy / name.index).write_bytes(index.encode(spans))
            if closed_by == "recovery":
                RelayLogWriter(copy, RelayLogConfig(disk_free_min=0)).close()
            else:
                head = {"server_uuid": receiver.log.source_uuid}
                begin_behind(
                    copy, name, doubt.end, entries[0].end - name.base, file=spans[-1].fields["file"],
                    position=spans[-1].fields["position"], head=head,
                )  # fmt: skip
            log = RelayLog.open(copy)
            assert log.tables(LogRange(doubt.end, log.end)) == {}
            found = log.statements(LogRange(log.start, log.end))
            assert [one for one in found if one.event == QUERY] == [doubt], f"{closed_by} at {at}"
            last = log.last_transaction()
            assert last is not None and (last["end"], last["sent"]) == (doubt.end, [])


def test_names_of_savepoints_are_found_in_texts_however_they_are_spelled() -> None:
    for text in ("SAVEPOINT a", "savepoint `A`", 'BEGIN SAVEPOINT /* x */ "a"; END'):
        assert names_savepoint([text], "ROLLBACK TO `a`")
    assert names_savepoint(["SAVEPOINT `q``x`"], "ROLLBACK TO `q``x`")
    assert names_savepoint(["SAVEPOINT e"], "ROLLBACK TO `é`"), "some servers compare without accents"
    assert not names_savepoint(["SAVEPOINT b"], "ROLLBACK TO `outer`")
    assert not names_savepoint([], "ROLLBACK TO `é`")
