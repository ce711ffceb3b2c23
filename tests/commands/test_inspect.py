"""`penstock inspect` on the files of a real server; the judges are its SELECT, SHOW BINLOG EVENTS and
python-mysql-replication."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from penstock._core import DecodeError, Inspector, read_statement
from penstock.testing.servers import MySqlServer

COLUMNS = """
    id INT PRIMARY KEY AUTO_INCREMENT, tiny TINYINT, utiny TINYINT UNSIGNED, medium MEDIUMINT, big BIGINT,
    ubig BIGINT UNSIGNED, price DECIMAL(20,4), ratio DOUBLE, small FLOAT, flags BIT(12), born YEAR,
    day DATE, at DATETIME(6), seen TIMESTAMP(3) NULL, took TIME(2),
    name VARCHAR(50), latin VARCHAR(300) CHARACTER SET latin1, fixed CHAR(10), body TEXT,
    pad BINARY(4), raw VARBINARY(20), data BLOB, kind ENUM('a','ü','c'), tags SET('x','y','z'), doc JSON
"""
ROWS = [
    """-128, 255, -8388608, -9223372036854775808, 18446744073709551615, -1234567890123456.7890, 0.1, 0.25,
    b'101', 2024, '2024-02-29', '2024-02-29 23:59:59.123456', '2038-01-19 03:14:07.999', '-838:59:59',
    'käse 🧀', 'é€', 'ab  ', 'text', x'0001', x'00ff', x'deadbeef', 'ü', 'x,z',
    '{"b": [1, 2.5, null], "a": "ü"}'""",
    """127, 0, 8388607, 9223372036854775807, 0, 0.0001, -1e300, 1e10, b'0', 0,
    '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '00:00:00.5', '', '', '', '',
    x'', x'', x'', 'a', '', 'null'""",
    ", ".join(["NULL"] * 24),
]
CHANGES = [
    "UPDATE t SET name = 'changed', big = big - 1 WHERE id = 2",
    "UPDATE t SET id = 30 WHERE id = 3",
    "DELETE FROM t WHERE id = 1",
]
# As SELECT prints it, in the form of docs/inspect.md; `+ 0` for what JSON has as numbers.
SELECT = """SELECT id, tiny, utiny, medium, big, ubig, CAST(price AS CHAR), ratio, small, flags + 0, born + 0,
    CAST(day AS CHAR), CAST(at AS CHAR), CAST(seen AS CHAR), CAST(took AS CHAR), name, latin, fixed, body,
    TO_BASE64(pad), TO_BASE64(raw), TO_BASE64(data),
    CAST(kind AS CHAR), CAST(tags AS CHAR), CAST(doc AS CHAR) FROM t"""


def write_log(server: MySqlServer, *, options: str = "") -> list[dict[str, Any]]:
    """Makes table t and all its changes, in one file of the log; the rows as they were inserted."""
    server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        "CREATE DATABASE d",
        f"CREATE TABLE d.t ({COLUMNS})",
        "FLUSH LOGS",
    )
    server.execute(
        f"SET time_zone = '+00:00', sql_mode = ''{options}",
        "USE d",
        *[f"INSERT INTO t VALUES (NULL, {row})" for row in ROWS],
    )
    rows = snapshot(server)
    server.execute("USE d", *CHANGES, "FLUSH LOGS")
    return rows


def snapshot(server: MySqlServer) -> list[dict[str, Any]]:
    with server.connect(database="d") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        cursor.execute(SELECT + " ORDER BY id")
        names = [column.split()[0] for column in COLUMNS.replace("DECIMAL(20,4)", "DECIMAL").replace(
            "ENUM('a','ü','c')", "ENUM").replace("SET('x','y','z')", "SET").split(",")]  # fmt: skip
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def log_file(server: MySqlServer) -> Path:
    return server.binlog_files()[-2]


def changes(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(path, **options)]


def lines(path: Path, **options: Any) -> Iterator[str]:
    inspector = Inspector(str(path), **options)
    while (part := inspector.next_lines(2)) is not None:
        yield from part


def summary(path: Path) -> dict[str, Any]:
    inspector = Inspector(str(path), count_only=True)
    try:
        while inspector.next_lines(10) is not None:
            pass
    except DecodeError:
        pass
    result: dict[str, Any] = json.loads(inspector.summary())
    return result


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "inspect", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[MySqlServer, list[dict[str, Any]]]]:
    with MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        yield server, write_log(server)


@pytest.fixture(scope="module")
def unchecked() -> Iterator[Path]:
    """A log without checksums, so that damage reaches everything behind them."""
    with MySqlServer({"binlog_row_metadata": "FULL", "binlog_checksum": "NONE"}) as server:
        write_log(server)
        yield log_file(server)


def test_values_are_those_that_select_prints(full: tuple[MySqlServer, list[dict[str, Any]]]) -> None:
    server, rows = full
    found = changes(log_file(server))
    inserted = [change for change in found if change["op"] == "c"]
    assert [change["after"] for change in inserted] == rows
    assert [change["op"] for change in found] == ["c", "c", "c", "u", "u", "d"]
    assert found[3]["before"] == rows[1]
    assert found[3]["after"] == {**rows[1], "name": "changed", "big": 2**63 - 2}
    assert (found[4]["before"]["id"], found[4]["after"]["id"]) == (3, 30)
    assert (found[5]["before"], found[5]["after"]) == (rows[0], None)


def test_each_change_says_where_it_stands(full: tuple[MySqlServer, list[dict[str, Any]]]) -> None:
    server, _ = full
    path = log_file(server)
    events = {row[1]: row for row in server.query(f"SHOW BINLOG EVENTS IN '{path.name}'")}
    executed = server.gtid_executed()
    found = changes(path, base=1000)
    for change in found:
        assert events[change["pos"]][2] in ("Write_rows", "Update_rows", "Delete_rows")
        assert change["file"] == path.name
        assert change["pos"] + 1000 < change["sequence"] < events[change["pos"]][4] + 1000
        assert change["gtid"].split(":")[0] == executed.split(":")[0]
        assert change["ts"].endswith("Z")
    sequences = [change["sequence"] for change in found]
    assert sequences == sorted(set(sequences))


SHOW_NAMES = {
    "Format_desc": "FORMAT_DESCRIPTION_EVENT", "Previous_gtids": "PREVIOUS_GTIDS_LOG_EVENT",
    "Gtid": "GTID_LOG_EVENT", "Anonymous_Gtid": "ANONYMOUS_GTID_LOG_EVENT",
    "Query": "QUERY_EVENT", "Table_map": "TABLE_MAP_EVENT",
    "Write_rows": "WRITE_ROWS_EVENT", "Update_rows": "UPDATE_ROWS_EVENT", "Delete_rows": "DELETE_ROWS_EVENT",
    "Xid": "XID_EVENT", "Rotate": "ROTATE_EVENT", "Stop": "STOP_EVENT",
    "Write_rows_v1": "WRITE_ROWS_EVENT_V1",
    "Update_rows_v1": "UPDATE_ROWS_EVENT_V1", "Delete_rows_v1": "DELETE_ROWS_EVENT_V1",
}  # fmt: skip


def events_of_server(server: MySqlServer, path: Path) -> Counter[str]:
    return Counter(SHOW_NAMES[row[2]] for row in server.query(f"SHOW BINLOG EVENTS IN '{path.name}'"))


def rows_of_peer(server: MySqlServer, path: Path) -> Counter[str]:
    """Row counts by python-mysql-replication."""
    settings = {"host": server.host, "port": server.port, "user": server.user, "passwd": server.password}
    kinds = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
    stream = BinLogStreamReader(
        settings,
        server_id=4711,
        log_file=path.name,
        log_pos=4,
        only_events=list(kinds),
        end_log_pos=path.stat().st_size,
        ignore_decode_errors=True,
    )
    counts: Counter[str] = Counter()
    for event in stream:
        if stream.log_file == path.name:
            counts[f"{kinds[type(event)]} {event.schema}.{event.table}"] += len(event.rows)
    stream.close()
    return counts


@pytest.mark.parametrize(
    "options",
    [
        {"binlog_row_metadata": "MINIMAL"},
        {"binlog_row_metadata": "FULL", "binlog_checksum": "NONE"},
        pytest.param({"log_bin_use_v1_row_events": "1"}, marks=pytest.mark.slow),
        pytest.param({"binlog_row_image": "MINIMAL", "binlog_row_metadata": "FULL"}, marks=pytest.mark.slow),
        pytest.param({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}, marks=pytest.mark.slow),
    ],
    ids=["minimal metadata", "no checksums", "v1 row events", "minimal images", "no GTIDs"],
)
def test_counts_are_those_of_the_server_and_of_a_peer(
    emptied_mysql: Callable[..., MySqlServer], options: dict[str, str]
) -> None:
    server = emptied_mysql(**options)
    rows = write_log(server)
    path = log_file(server)
    found = summary(path)
    assert found["error"] is None
    assert found["events"] == dict(events_of_server(server, path))
    assert (
        found["rows"]
        == {"insert d.t": 3, "update d.t": 2, "delete d.t": 1}
        == dict(rows_of_peer(server, path))
    )
    assert found["transactions"] == 6
    inserted = [change["after"] for change in changes(path) if change["op"] == "c"]
    if options.get("binlog_row_metadata") == "FULL":
        assert inserted == rows
    else:
        assert [list(row.values())[:16] for row in inserted] == [list(row.values())[:16] for row in rows]
        assert list(inserted[0]) == [f"@{number}" for number in range(1, 26)]
        assert (inserted[0]["@23"], inserted[0]["@24"]) == (2, 5)


def test_columns_that_an_image_lacks_are_left_out(emptied_mysql: Callable[..., MySqlServer]) -> None:
    server = emptied_mysql(binlog_row_image="MINIMAL", binlog_row_metadata="FULL")
    write_log(server)
    update, _, delete = changes(log_file(server))[3:]
    assert update["before"] == {"id": 2} and set(update["after"]) == {"name", "big"}
    assert delete["before"] == {"id": 1}


def test_a_file_cut_anywhere_gives_a_clean_prefix(
    full: tuple[MySqlServer, list[dict[str, Any]]], tmp_path: Path
) -> None:
    server, _ = full
    data = log_file(server).read_bytes()
    whole = [change["pos"] for change in changes(log_file(server))]
    ends = {row[4] for row in server.query(f"SHOW BINLOG EVENTS IN '{log_file(server).name}'")} | {4}
    cut = tmp_path / "cut.000001"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        inspector = Inspector(str(cut))
        positions = []
        try:
            while (part := inspector.next_lines()) is not None:
                positions += [json.loads(line)["pos"] for line in part]
            clean = True
        except DecodeError as error:
            clean = False
            assert error.path == str(cut) and 0 <= error.offset <= length
        assert positions == whole[: len(positions)]
        assert clean == (length in ends), length


def test_flipped_bits_are_found_by_the_checksum(
    full: tuple[MySqlServer, list[dict[str, Any]]], tmp_path: Path
) -> None:
    data = log_file(full[0]).read_bytes()
    whole = list(lines(log_file(full[0])))
    seed = random.Random(20261121)
    for _ in range(300):
        damaged = bytearray(data)
        place = seed.randrange(len(data))
        damaged[place] ^= 1 << seed.randrange(8)
        path = tmp_path / log_file(full[0]).name
        path.write_bytes(damaged)
        found = []
        with pytest.raises(DecodeError):
            found += list(lines(path))
        assert found == whole[: len(found)]


def test_damage_without_checksums_never_crashes(unchecked: Path, tmp_path: Path) -> None:
    data = unchecked.read_bytes()
    seed = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(seed.randrange(1, 4)):
            damaged[seed.randrange(len(data))] = seed.randrange(256)
        path = tmp_path / "damaged.000001"
        path.write_bytes(damaged)
        try:
            for line in lines(path):
                json.loads(line)
        except DecodeError as error:
            assert error.offset <= len(data) and error.reason


DAMAGED = """
import contextlib, io, json, resource, signal, sys
from pathlib import Path
from penstock.commands.inspect import inspect

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 256 * 1024**2,) * 2)
signal.signal(signal.SIGPROF, lambda *_: sys.exit("too slow"))
for path in map(Path, sys.argv[1:]):
    answers = []
    for mode in ({"summary": True, "as_json": True}, {"summary": False, "as_json": True},
                 {"summary": False, "as_json": False}):
        signal.setitimer(signal.ITIMER_PROF, 5)  # of its own work: others may keep it from the CPU
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = inspect([str(path)], tables=[], limit=None, **mode)
        answers.append([code, out.getvalue(), err.getvalue()])
    print(json.dumps([path.name, answers]))
"""


def test_damaged_files_end_the_command_with_a_position_in_bounded_time_and_memory(
    full: tuple[MySqlServer, list[dict[str, Any]]], unchecked: Path, tmp_path: Path
) -> None:
    seed = random.Random(20261122)
    files = []
    for number in range(250):
        data = bytearray((log_file(full[0]) if number % 4 == 0 else unchecked).read_bytes())
        if number < 200:
            data[seed.randrange(len(data))] ^= seed.randrange(1, 256)
        else:
            del data[seed.randrange(len(data)) :]
        files.append(tmp_path / f"{'flipped' if number < 200 else 'cut'}.{number:06d}")
        files[-1].write_bytes(data)
    command = [sys.executable, "-c", DAMAGED, *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    answers = dict(json.loads(line) for line in result.stdout.splitlines())
    assert len(answers) == len(files)
    for file in files:
        (counted, document, _), (code, _, said), (shown, _, told) = answers[file.name]
        assert code == shown and 0 <= counted <= code <= 1  # to be counted, values need not be read
        assert (json.loads(document)["error"] is None) == (counted == 0)
        if code == 1:
            error = json.loads(said)["error"]
            assert counted == 0 or json.loads(document)["error"]["position"] >= error["position"]
            assert error["file"] == file.name and 0 <= error["position"] <= file.stat().st_size
            assert f"at position {error['position']}: " in told
    assert sum(answers[file.name][1][0] for file in files) > 100


def test_changes_of_json_documents_are_applied_and_without_the_document_named(
    emptied_mysql: Callable[..., MySqlServer],
) -> None:
    server = emptied_mysql(binlog_row_metadata="FULL")
    document = json.dumps({"name": "x" * 200, "count": 1})
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.p (id INT PRIMARY KEY, whole JSON, doc JSON, note VARCHAR(9))",
        "FLUSH LOGS",
        f"INSERT INTO d.p VALUES (1, '[1]', '{document}', 'a')",
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
        "UPDATE d.p SET doc = JSON_SET(doc, '$.count', 2), whole = '[2]', note = 'b'",
        "UPDATE d.p SET note = 'c'",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE d.p SET doc = JSON_SET(doc, '$.count', 3)",
        "FLUSH LOGS",
    )
    path = log_file(server)
    assert "PARTIAL_UPDATE_ROWS_EVENT" in summary(path)["events"]
    _, changed, other, unknown = changes(path)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT JSON_SET(doc, '$.count', 2) FROM d.p")
        [(text,)] = cursor.fetchall()
    assert json.loads(changed["before"]["doc"]) == json.loads(document)
    assert changed["after"] == {"id": 1, "whole": "[2]", "doc": text, "note": "b"}
    # The log has no documents that stayed as they were.
    assert other["after"] == {"id": 1, "whole": "[2]", "doc": text, "note": "c"}
    assert (unknown["partial"], unknown["after"]) == (["doc"], {})
    assert "(only changes are known)" in " ".join(run(path).stdout.replace("│", " ").split())


def test_an_event_that_claims_four_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.000001"
    path.write_bytes(
        b"\xfebin" + bytes(4) + bytes([15]) + bytes(4) + b"\xff\xff\xff\xff" + bytes(6) + bytes(100)
    )
    with pytest.raises(DecodeError, match="ends inside an event") as caught:
        list(lines(path))
    assert caught.value.offset == 4


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\xfdbin" + bytes(512), "encrypted"),
        (b"\x1f\x8b" + bytes(30), "gzip"),
        (b"SQLite format 3" + bytes(200), "not a binlog file"),
        (
            b"\xfebin" + bytes(4) + b"\x01" + bytes(4) + (75).to_bytes(4, "little") + bytes(66),
            "version 1 or 3",
        ),
    ],
)
def test_what_is_no_readable_binlog_file_is_said(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(DecodeError, match=reason):
        list(lines(path))


def test_a_file_without_head_is_read_all_the_same(
    full: tuple[MySqlServer, list[dict[str, Any]]], tmp_path: Path
) -> None:
    server, _ = full
    path = log_file(server)
    events = server.query(f"SHOW BINLOG EVENTS IN '{path.name}'")
    first = next(row[1] for row in events if row[2] == "Gtid")
    tail = tmp_path / path.name
    tail.write_bytes(path.read_bytes()[first:])
    assert [change["after"] for change in changes(tail)] == [change["after"] for change in changes(path)]


def test_a_statement_is_read_at_its_position(full: tuple[MySqlServer, list[dict[str, Any]]]) -> None:
    server, _ = full
    path = server.binlog_files()[0]
    [position] = [
        row[1] for row in server.query(f"SHOW BINLOG EVENTS IN '{path.name}'") if "CREATE TABLE" in row[5]
    ]
    statement = read_statement(str(path), position)
    assert statement["sql"].startswith("CREATE TABLE d.t")
    assert "ENUM('a','ü','c')" in statement["sql"]
    assert statement["charset"] == "utf8mb4"
    with pytest.raises(DecodeError, match="not a QUERY event"):
        read_statement(str(path), 4)


def test_command_prints_changes_then_the_error_and_fails(
    full: tuple[MySqlServer, list[dict[str, Any]]], tmp_path: Path
) -> None:
    path = log_file(full[0])
    good = run(path, "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert [json.loads(line) for line in good.stdout.splitlines()] == changes(path)
    cut = tmp_path / "cut.000001"
    cut.write_bytes(path.read_bytes()[:-50])
    bad = run(cut, "--json")
    assert bad.returncode == 1
    error = json.loads(bad.stderr)["error"]
    assert error["file"] == "cut.000001" and error["position"] > 4 and "ends inside" in error["message"]
    assert len(bad.stdout.splitlines()) == 6
    counted = run(cut, "--summary", "--json")
    assert counted.returncode == 1
    assert json.loads(counted.stdout)["error"] == error
    assert run(cut, "--limit", "2").returncode == 0
    assert "position" in run(path).stdout


def test_command_reads_a_folder_in_order_and_filters_tables(
    full: tuple[MySqlServer, list[dict[str, Any]]],
) -> None:
    server, _ = full
    folder = run(server.datadir, "--summary", "--json")
    assert folder.returncode == 0, folder.stderr
    found = json.loads(folder.stdout)
    assert found["rows"] == {"insert d.t": 3, "update d.t": 2, "delete d.t": 1}
    assert found["gtids"] == server.gtid_executed()
    assert run(server.datadir, "--json", "--table", "d.other").stdout == ""
    missing = run(server.datadir / "nothing")
    assert missing.returncode == 1 and "does not exist" in missing.stderr
