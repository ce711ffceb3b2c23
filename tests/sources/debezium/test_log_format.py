"""The log of topics has the segment format `rows`: it keeps what messages say, for every reader."""

from __future__ import annotations

import datetime
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.serve.entry import CanalEntry
from tests.sources.debezium.messages import ID, Table, column, consumed, mysql, postgresql
from tests.sources.debezium.receiving import Receiving
from tests.sources.debezium.topic_log import Logs, TopicLog, changes_of, decoder_of

from penstock._core import DecodeError, Inspector, LogEncoder, RowEncoder, transactions_of
from penstock.config import TablesConfig
from penstock.errors import RelayLogCorrupt
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.relaylog.files import LogPlace
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.serve.filters import Filter
from penstock.serve.log.served_log import ServedLog
from penstock.sources import statements_of
from penstock.sources.table_filter import TableFilter

UTC = datetime.timezone.utc
EARLIER = Path(__file__).parent / "data" / "log_of_0.1.0"


def table_of_values() -> Table:
    zoned = "io.debezium.time.ZonedTimestamp"
    return Table(
        "postgresql",
        [
            ID, column("open", "boolean"), column("at", "string", zoned), column("much", "double"),
            column("tags", "array", items={"type": "string"}),
            column("doc", "string", "io.debezium.data.Json"),
            column("clock", "string", "io.debezium.time.ZonedTime"),
        ],
        source={"db": "shop", "schema": "public", "table": "values"},
    )  # fmt: skip


ROWS: list[dict[str, Any]] = [
    {"id": 1, "open": True, "at": "0001-01-01T00:00:00Z", "much": "Infinity", "tags": ["a", None],
     "doc": '{"a": [1.50]}', "clock": "23:59:59.999999+05:30"},
    {"id": 2, "open": False, "at": "9999-12-31T23:59:59.999999+00:00", "much": "-Infinity", "tags": [],
     "doc": "null", "clock": "00:00:00Z"},
    {"id": 3, "open": None, "at": "1901-12-13T20:45:51+01:00", "much": "NaN", "tags": None, "doc": None,
     "clock": None},
]  # fmt: skip


def filled(logs: Logs) -> TopicLog:
    table, log = table_of_values(), logs()
    pairs = [table.change("c", None, row, **postgresql(at, at)) for at, row in enumerate(ROWS, 1)]
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(pairs)) == []
    return log


def test_values_that_mysql_cannot_hold_arrive_unchanged(logs: Logs) -> None:
    rows = filled(logs).changes("public.values")
    assert [row["open"] for row in rows] == [True, False, None] and rows[0]["open"] is True
    assert [row["at"] for row in rows] == [
        datetime.datetime(1, 1, 1, tzinfo=UTC),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime.datetime(1901, 12, 13, 19, 45, 51, tzinfo=UTC),
    ]
    assert rows[0]["much"] == math.inf and rows[1]["much"] == -math.inf and math.isnan(rows[2]["much"])
    assert [row["tags"] for row in rows] == ['["a",null]', "[]", None]
    assert [row["doc"] for row in rows] == ['{"a": [1.50]}', "null", None]
    assert [row["clock"] for row in rows] == ["23:59:59.999999+05:30", "00:00:00Z", None]


def messages(log: RelayLog, format: str) -> list[bytes]:
    options = "{}"
    ids = (lambda *_: 1) if format in ("avro", "protobuf") else None
    encoder = LogEncoder(parts_of(log, LogRange(Offset(0), log.end)), format, options=options, schema_ids=ids)
    found: list[bytes] = []
    while (step := encoder.read()) is not None:
        if not isinstance(step, list):
            found += [bytes(value) for value in step.values()]
    return found


@pytest.mark.parametrize("format", ["json", "debezium", "maxwell", "canal"])
def test_messages_have_them_too(logs: Logs, format: str) -> None:
    found = [json.loads(one) for one in messages(filled(logs).log, format)]
    text = json.dumps(found)
    for part in ("Infinity", "-Infinity", "NaN", "23:59:59.999999+05:30", "0001-01-01", "9999-12-31"):
        assert part in text, part
    images = {"json": "after", "debezium": "after", "maxwell": "data", "canal": "data"}[format]
    rows = [one.get("payload", one)[images] for one in found]
    rows = [row for rows_of_one in rows for row in rows_of_one] if format == "canal" else rows
    assert len(rows) == len(ROWS)
    shown = {"canal": ["1", "0", None]}.get(format, [True, False, None])
    assert [row["open"] for row in rows] == shown


def test_entries_of_canal_name_no_file_and_no_server_that_topics_do_not_have(logs: Logs) -> None:
    log = filled(logs).log
    headers = [CanalEntry.Entry.FromString(one).header for one in messages(log, "canal-entry")]
    assert len(headers) > 2, "with the borders of the transaction"
    assert {(one.logfileName, one.sourceType) for one in headers} == {("", 0)}
    assert {one.schemaName for one in headers} == {"", "public"}
    assert str(log.position_at(log.end)) == "1", "a time, and no place in a file"


def test_the_file_says_what_it_is_and_inspect_reads_it(logs: Logs) -> None:
    log = filled(logs)
    path = next(log.folder.glob("*.rows"))
    assert path.read_bytes()[:4] == b"PNST" and not list(log.folder.glob("*.binlog"))
    inspector = Inspector(str(path))
    lines: list[str] = []
    while (some := inspector.next_lines()) is not None:
        lines += some
    rows = [json.loads(line) for line in lines]
    assert [(row["table"], row["op"], row["after"]["id"]) for row in rows] == [
        ("public.values", "c", 1), ("public.values", "c", 2), ("public.values", "c", 3),
    ]  # fmt: skip
    summary = json.loads(inspector.summary())
    assert summary["rows"] == {"insert public.values": 3} and summary["problems"] == []
    assert summary["events"]["DEFINITION"] >= 1 and summary["error"] is None


def test_inspect_shows_a_log_with_the_words_of_its_format(logs: Logs) -> None:
    log = filled(logs)
    table = table_of_values()
    log.take([consumed(table, 3, table.change("d", ROWS[0], None, **postgresql(9, 9)))])

    def inspect(*options: str) -> str:
        command = [sys.executable, "-m", "penstock", "inspect", str(log.folder), *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    lines = [json.loads(line) for line in inspect("--json").splitlines()]
    assert [(one["op"], one["transaction"]) for one in lines] == [
        ("c", f"{table.topic}:0-3"), ("c", f"{table.topic}:0-3"), ("c", f"{table.topic}:0-3"),
        ("d", f"{table.topic}:0-4"),
    ]  # fmt: skip
    assert lines[0]["after"]["much"] == "Infinity" and not any("gtid" in one for one in lines)
    summary = json.loads(inspect("--summary", "--json"))
    executed = str(log.log.executed_at(log.log.end))
    assert summary["executed"] == executed and f"{table.topic}:0-4" in executed and "gtids" not in summary
    assert summary["rows"] == {"delete public.values": 1, "insert public.values": 3}
    assert {"BEGIN", "DEFINITION", "ROWS", "STATEMENT", "COMMIT"} <= summary["events"].keys()
    assert f"executed: {executed}" in inspect("--summary")


def test_a_database_is_not_left_out_because_mysql_has_one_of_its_name(logs: Logs) -> None:
    table, log = Table(source={"db": "sys", "table": "orders"}), logs()
    log.take([consumed(table, 0, table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10)))])
    [message] = messages(log.log, "json")
    assert json.loads(message)["database"] == "sys"
    begins, *_ = transactions_of(parts_of(log.log, LogRange(Offset(0), log.log.end)), [])
    assert len(begins) == 1
    served = ServedLog(LogPlace.at(log.folder), None, None)
    served.begin(lambda *_, **__: None)
    part = served.part(served.start, Filter(("",)))
    assert part is not None and part.tables == (TableId("sys", "orders"),) and len(part.schemas) <= 1
    served.close()


def test_every_transaction_can_be_entered_alone(logs: Logs) -> None:
    """Each has the definitions of its rows."""
    table, log = table_of_values(), logs()
    for at, row in enumerate(ROWS, 1):
        log.take([consumed(table, at - 1, table.change("c", None, row, **postgresql(at, at)))])
    opened = log.log
    found = transactions_of(parts_of(opened, LogRange(Offset(0), opened.end)), [("public", "values")])
    assert len(found) >= len(ROWS)
    rows = 0
    for split in opened.splits(LogRange(Offset(0), opened.end), TableId("public", "values"), bytes_aim=1):
        rows += sum(len(batch) for batch in decoder_of(log.folder, "public.values", split))
    assert rows == len(ROWS)


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_a_damaged_record_is_named_and_nothing_of_it_is_read(logs: Logs, at: float) -> None:
    log = filled(logs)
    path = next(log.folder.glob("*.rows"))
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x40
    path.write_bytes(data)
    inspector = Inspector(str(path))
    with pytest.raises(Exception, match=r"damaged|cut off|beyond the end|kind|ends at"):
        while inspector.next_lines() is not None:
            pass


def test_a_log_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It has the segments of a database server, with statements in SQL."""
    folder = tmp_path / "relay"
    shutil.copytree(EARLIER, folder)
    log = RelayLog.open(folder)
    statements = statements_of(log, TableFilter(TablesConfig(include=["*.*"])), types=DEFAULT_TYPES)
    assert type(statements).__name__ == "MySqlStatements"
    rows = changes_of(folder, "shop.orders")
    kinds = [(row["_change_type"], row["id"], row.get("n")) for row in rows]
    assert kinds == [
        ("insert", 1, None), ("insert", 2, 8), ("update_preimage", 2, 8), ("update_postimage", 2, 9),
        ("delete", 1, 7),
    ]  # fmt: skip
    assert len(messages(log, "json")) == 4


def test_a_log_of_an_earlier_version_is_not_continued(tmp_path: Path) -> None:
    """What it has would be written twice, in another form."""
    receiving = Receiving("127.0.0.1:1", tmp_path / "one", "shop.orders")
    shutil.copytree(EARLIER, receiving.log_path)
    before = {path.name: path.read_bytes() for path in receiving.log_path.iterdir()}
    command = [sys.executable, "-m", "penstock", "receive", str(receiving.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "mysql-binlog" in done.stderr and "new `state`" in done.stderr
    assert {name: (receiving.log_path / name).read_bytes() for name in before} == before


FRESH = """
import json, sys
from pathlib import Path
from penstock import config
from penstock.commands.encode import encode
from penstock.epochs import log_definitions
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import DefinitionChange
from penstock.relaylog.reader import RelayLog
from penstock.sources import open_source
from penstock.sources.logged_definitions import defined

folder, file = sys.argv[1:]
for format, options in (("canal", []), ("maxwell", ["output_ddl=true"]),
                        ("debezium", ["include.schema.changes=true"])):
    assert encode([folder], format=format, options=options, ddl=[], ddl_version="8.0", server=None, tables=[],
                  keys=False, as_json=False) == 0

class Sink:
    format, format_options = "debezium", json.dumps({"include_schema_changes": True})
    def subject_of(self, table): return table

log = RelayLog.open(folder)
[statement] = log.statements(LogRange(Offset(0), log.end))
table, schema = defined(vars(statement))
change = log_definitions.ShownChange(table, DefinitionChange(None, schema), False)
[[(_, _, value, _)]] = log_definitions.messages([change], Sink(), log, LogRange(Offset(0), statement.end))
print(value.decode())
opened = open_source(config.load(Path(file)))
import penstock.runtime.run, penstock.serve.server
print([name for name in sys.modules if name.startswith("penstock.sources.mysql")])
"""


def test_messages_of_definitions_that_a_log_says_load_no_grammar(logs: Logs, tmp_path: Path) -> None:
    """In an interpreter that encodes them, sends them, and has all of a pipeline and of a server."""
    log = filled(logs)
    file = Receiving("127.0.0.1:1", tmp_path / "one", "public.values").file
    command = [sys.executable, "-c", FRESH, str(log.folder), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *found, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    messages = [json.loads(line) for line in found]
    canal = [one for one in messages if one.get("isDdl")]
    assert [(one["type"], one["table"]) for one in canal] == [("CREATE", "values")]
    maxwell = [one for one in messages if one.get("type") == "table-create"]
    assert [[column["name"] for column in one["def"]["columns"]] for one in maxwell] == [list(ROWS[0])]
    changes = [one["tableChanges"] for one in messages if "tableChanges" in one]
    assert len(changes) == 2 and changes[0] == changes[1]
    [[change], _] = changes
    assert [column["name"] for column in change["table"]["columns"]] == list(ROWS[0])
    assert [one["ddl"] for one in messages if "tableChanges" in one] == [None, None], "it is no SQL"
    sources = [one["source"] for one in messages if "source" in one]
    assert {one["connector"] for one in sources} == {"penstock"} and not any("gtid" in one for one in sources)


def test_a_repeated_name_of_another_case_is_another_table(logs: Logs) -> None:
    one, other, log = Table(), Table(source={"db": "shop", "table": "ORDERS"}), logs()
    log.take([consumed(one, 0, one.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10)))])
    log.take([consumed(other, 1, other.change("c", None, {"id": 1, "note": "b"}, **mysql(pos=20)))])
    assert [row["note"] for row in log.rows("shop.orders")] == ["a"]
    assert [row["note"] for row in log.rows("shop.ORDERS")] == ["b"]


def test_a_statement_that_says_nothing_is_damage(logs: Logs) -> None:
    log = filled(logs)
    statements = statements_of(log.log, TableFilter(TablesConfig(include=["*.*"])), types=DEFAULT_TYPES)
    (statement,) = log.log.statements(LogRange(Offset(0), log.log.end))
    for sql in ("", "[]", '{"table": 7}', "{" * 1000):
        with pytest.raises(RelayLogCorrupt):
            statements.effects(replace(statement, sql=sql), {})


def test_encode_prints_definitions_and_rows_of_a_log(logs: Logs) -> None:
    table, log = Table(), logs()
    pairs = [
        table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10)),
        table.change("t", None, None, **mysql(pos=20)),
        table.change("c", None, {"id": 2, "note": "b"}, **mysql(pos=30)),
    ]
    log.take(consumed(table, at, pair) for at, pair in enumerate(pairs))
    found = {}
    for format in ("canal", "debezium"):
        command = [sys.executable, "-m", "penstock", "encode", str(log.folder), "--format", format]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "shop.orders is emptied" in done.stderr
        found[format] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["type"] for one in found["canal"]] == ["CREATE", "INSERT", "TRUNCATE", "INSERT"]
    assert [one["after"]["id"] for one in found["debezium"]] == [1, 2]


def test_a_boolean_that_rules_made_is_a_number_on_its_way() -> None:
    schema = TableSchema(
        TableId("d", "t"), (Column("id", "bigint", nullable=False), Column("open", "boolean")), ("id",)
    )
    rows = {"id": pa.array([1, 2, 3]), "open": pa.array([1, 0, None], pa.int32())}
    encoder = RowEncoder(schema.to_json(), "json")
    found = [json.loads(one)["after"] for one in encoder.encode(pa.record_batch(rows), at_us=1).values()]
    assert [row["open"] for row in found] == [True, False, None]
    rows["open"] = pa.array([2, 0, 0], pa.int32())
    with pytest.raises(DecodeError, match="open"):
        encoder.encode(pa.record_batch(rows), at_us=1)
