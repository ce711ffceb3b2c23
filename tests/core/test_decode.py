"""Layout `changelog` against what a real server writes; the server's own SELECT is the judge of values."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from tests.core import alltypes, logs
from tests.core.logs import decode, decode_range, log_of, schema_of, select

from penstock import _core
from penstock.testing import servers

Server = servers.MySqlServer
Factory = Callable[..., Server]

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "full metadata": {"binlog_row_metadata": "FULL"},
    "minimal metadata": {"binlog_row_metadata": "MINIMAL"},
    "without checksums": {"binlog_checksum": "NONE"},
    "version 1 rows, without GTIDs": {
        "log_bin_use_v1_row_events": True, "gtid_mode": "OFF", "enforce_gtid_consistency": "OFF",
    },
}  # fmt: skip
QUICK = ("full metadata", "version 1 rows, without GTIDs")


@pytest.fixture(
    scope="module",
    params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS],
    ids=lambda name: name.replace(" ", "-"),
)
def written(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that has written every type, once."""
    with servers.MySqlServer(CONFIGURATIONS[request.param]) as server:
        server.execute("CREATE DATABASE d", alltypes.create_table("d.t"))
        server.execute("CREATE TABLE d.other (id INT PRIMARY KEY, x TEXT)", "FLUSH BINARY LOGS")
        server.execute(
            "INSERT INTO d.other VALUES (1, 'x')", *alltypes.SELECT_SESSION, *alltypes.inserts("d.t")
        )
        yield server


@pytest.fixture(scope="module")
def changed() -> Iterator[Server]:
    """A server with a log of all kinds of changes to `d.t`, some of `d.other` between them."""
    with servers.MySqlServer({"binlog_row_event_max_size": 256}) as server:
        server.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(20), b INT)",
            "CREATE TABLE d.other LIKE d.t",
            "FLUSH BINARY LOGS",
            "INSERT INTO d.t VALUES " + ",".join(f"({n}, 'row {n}', {n})" for n in range(100)),
            "INSERT INTO d.other VALUES (1, 'x', 1)",
            "BEGIN",
            "UPDATE d.t SET b = b + 1000, a = CONCAT(a, '!') WHERE id < 60",
            "DELETE FROM d.other",
            "DELETE FROM d.t WHERE id % 10 = 3",
            "UPDATE d.t SET id = id + 500 WHERE id % 10 = 4",
            "COMMIT",
            "INSERT INTO d.t VALUES (3, 'again', 3)",
        )
        yield server


def differences(table: pa.Table, expected: list[tuple[Any, ...]]) -> list[str]:
    """Columns and rows of which the decoder and the server speak differently."""
    found = []
    for position, name in enumerate(["id", *(sample.name for sample in alltypes.SAMPLES)]):
        for row, value in enumerate(table.column(name).to_pylist()):
            server = expected[row][position]
            if not alltypes.same(value, server):
                found.append(f"{name} of row {row + 1}: {str(value)[:80]!r}, server {str(server)[:80]!r}")
    return found


def without_zero_dates(expected: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    def is_zero(text: Any) -> bool:
        if not isinstance(text, str) or text[4:5] != "-" or text[7:8] != "-":
            return False
        return text.startswith("0000-") or "00" in (text[5:7], text[8:10])

    return [tuple(None if is_zero(value) else value for value in row) for row in expected]


def test_every_type_has_the_value_that_select_shows(written: Server) -> None:
    expected = select(written, alltypes.select("d.t"))
    table = decode(written, schema_of(written, "d.t"))
    assert table.num_rows == alltypes.ROWS
    assert table.column("_change_type").to_pylist() == ["insert"] * alltypes.ROWS
    assert differences(table, without_zero_dates(expected)) == []


def test_dates_as_text_are_what_select_shows_zeros_too(written: Server) -> None:
    expected = select(written, alltypes.select("d.t"))
    assert (
        differences(decode(written, schema_of(written, "d.t"), types='{"zero_dates": "text"}'), expected)
        == []
    )


def test_zero_dates_are_refused_on_demand_naming_table_and_column(written: Server) -> None:
    with pytest.raises(_core.SchemaMismatch, match=r"`c_zero_date` of d\.t: a zero") as caught:
        decode(written, schema_of(written, "d.t"), types='{"zero_dates": "error"}')
    assert caught.value.table == "d.t" and caught.value.path is not None
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.table, copy.offset) == (str(caught.value), "d.t", caught.value.offset)


def test_rows_and_values_are_those_of_another_reader(changed: Server) -> None:
    stream = BinLogStreamReader(
        connection_settings={
            "host": changed.host, "port": changed.port, "user": changed.user, "passwd": changed.password,
        },
        server_id=77, log_file=log_of(changed)[0].rsplit("/", 1)[1], log_pos=4, resume_stream=True,
        only_tables=["t"], only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )  # fmt: skip
    expected = []
    for event in stream:
        for row in event.rows:
            if isinstance(event, UpdateRowsEvent):
                expected.append(("update_preimage", *row["before_values"].values()))
                expected.append(("update_postimage", *row["after_values"].values()))
            else:
                kind = "insert" if isinstance(event, WriteRowsEvent) else "delete"
                expected.append((kind, *row["values"].values()))
    stream.close()
    table = decode(changed, schema_of(changed, "d.t"))
    ours = list(
        zip(*(table.column(name).to_pylist() for name in ("_change_type", "id", "a", "b")), strict=True)
    )
    assert ours == expected and len(expected) == 251


def test_sequences_are_unique_and_increase_and_commit_times_are_the_transactions(changed: Server) -> None:
    before = datetime.datetime.now(datetime.timezone.utc)
    table = decode(changed, schema_of(changed, "d.t"))
    sequences = table.column("_sequence").to_pylist()
    assert sequences == sorted(set(sequences))
    commits = table.column("_commit_timestamp").to_pylist()
    assert commits == sorted(commits) and len(set(commits)) == 3
    assert before - datetime.timedelta(minutes=10) < commits[0] < before


@pytest.mark.parametrize(
    ("options", "rows_max"), [({"batch_rows": 7}, 8), ({"batch_bytes": 300}, 25), ({"batch_rows": 1}, 2)]
)
def test_batch_limits_change_only_the_batches(
    changed: Server, options: dict[str, int], rows_max: int
) -> None:
    """An update's two rows stay together, so a batch may have one row more."""
    schema = schema_of(changed, "d.t")
    whole, parts = decode(changed, schema), decode(changed, schema, **options)
    assert parts.equals(whole)
    assert max(len(chunk) for chunk in parts.column("id").chunks) <= rows_max


def test_projection_and_before_images_leave_the_rest_as_it_was(changed: Server) -> None:
    schema = schema_of(changed, "d.t")
    whole = decode(changed, schema)
    added = ["_change_type", "_sequence", "_commit_timestamp"]
    assert decode(changed, schema, columns=["b", "id"]).equals(whole.select(["b", "id", *added]))
    assert decode(changed, schema, columns=[]).equals(whole.select(added))
    without = decode(changed, schema, before_images=False)
    kept = [kind != "update_preimage" for kind in whole.column("_change_type").to_pylist()]
    assert without.equals(whole.filter(pa.array(kept)))
    with pytest.raises(_core.DecodeError, match="no column `nothing`"):
        decode(changed, schema, columns=["nothing"])


def test_buckets_share_out_the_rows_by_key(changed: Server) -> None:
    schema = schema_of(changed, "d.t")
    shares = [decode(changed, schema, bucket=(share, 3)) for share in range(3)]
    keys = [set(share.column("id").to_pylist()) for share in shares]
    assert not keys[0] & keys[1] and not keys[1] & keys[2] and not keys[0] & keys[2]
    assert pa.concat_tables(shares).sort_by("_sequence").equals(decode(changed, schema).combine_chunks())


def test_any_cut_at_events_with_its_preamble_gives_the_same_rows(changed: Server) -> None:
    schema = schema_of(changed, "d.t")
    path, size = log_of(changed)
    whole = decode(changed, schema)
    gtid: int | None = None
    maps: list[int] = []
    for event in logs.events(path):
        if event.kind == logs.GTID:
            gtid, maps = event.offset, []
        if event.kind == logs.TABLE_MAP:
            maps.append(event.offset)
        preamble = [(path, 0, offset) for offset in ([gtid] if gtid else []) + maps]
        parts = [
            decode_range(schema, path, 0, event.end),
            decode_range(schema, path, event.end, size, preamble=preamble),
        ]
        assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())


def test_a_range_that_begins_behind_its_table_map_is_an_error(changed: Server) -> None:
    path, size = log_of(changed)
    first = next(event for event in logs.events(path) if event.kind in logs.ROWS)
    with pytest.raises(_core.DecodeError, match="no table map") as caught:
        decode_range(schema_of(changed, "d.t"), path, first.offset, size)
    assert (caught.value.offset, caught.value.path) == (first.offset, path)


def test_a_range_must_end_where_an_event_ends(changed: Server) -> None:
    path, _ = log_of(changed)
    schema = schema_of(changed, "d.t")
    event = next(event for event in logs.events(path) if event.kind in logs.ROWS)
    for end in (event.end - 1, event.offset + 1, event.offset + 19):
        with pytest.raises(_core.DecodeError) as caught:
            decode_range(schema, path, 0, end)
        assert caught.value.offset == event.offset


def test_a_truncated_file_is_an_error_that_names_it(changed: Server, tmp_path: Path) -> None:
    path, size = log_of(changed)
    schema = schema_of(changed, "d.t")
    data = Path(path).read_bytes()
    cut = tmp_path / "cut"
    for length in range(0, size, 97):
        cut.write_bytes(data[:length])
        with pytest.raises(_core.DecodeError) as caught:
            decode_range(schema, str(cut), 0, size)
        assert caught.value.path == str(cut)
    with pytest.raises(_core.DecodeError, match="cannot be opened"):
        decode_range(schema, str(tmp_path / "missing"), 0, size)


def test_excluded_gtids_leave_out_whole_transactions(changed: Server) -> None:
    schema = schema_of(changed, "d.t")
    uuid, last = changed.gtid_executed().split(":1-")
    without = decode(changed, schema, exclude=f"{uuid}:{int(last) - 1}")
    whole = decode(changed, schema)
    times = whole.column("_commit_timestamp").to_pylist()
    middle = sorted(set(times))[1]
    assert without.equals(whole.filter(pa.array([time != middle for time in times])))
    assert decode(changed, schema, exclude=f"{uuid}:1-{last}").num_rows == 0


def test_a_table_map_that_differs_from_the_schema_is_a_mismatch(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_metadata="FULL")
    server.execute("CREATE DATABASE d")
    for number, (before, change, difference) in enumerate(
        [
            ("a INT", "ADD COLUMN b INT", "2 columns, the schema 3"),
            ("a INT, b INT", "DROP COLUMN b", "column `b` that the schema lacks"),
            ("a INT", "RENAME COLUMN a TO b", "the log calls it `a`"),
            ("a INT", "MODIFY a BIGINT", "schema bigint"),
            ("a INT", "MODIFY a INT UNSIGNED", "unsigned in the schema only"),
            ("a DECIMAL(10,2)", "MODIFY a DECIMAL(10,3)", "schema decimal"),
            ("a TIME(3)", "MODIFY a TIME(6)", "schema time"),
            ("a VARCHAR(9) CHARSET latin1", "MODIFY a VARCHAR(9) CHARSET utf8mb4", "another character set"),
            ("a ENUM('x','y')", "MODIFY a ENUM('x','z')", "other labels"),
            ("a BIT(3)", "MODIFY a BIT(4)", "schema bit"),
            ("a BINARY(3)", "MODIFY a BINARY(4)", "schema binary"),
            ("a TEXT", "MODIFY a BLOB", "another character set"),
            ("a INT", "MODIFY a VARCHAR(20)", "schema varchar"),
        ]
    ):
        table = f"d.t{number}"
        server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, {before})", f"INSERT INTO {table} (id) VALUES (1)"
        )
        server.execute(f"ALTER TABLE {table} {change}")
        with pytest.raises(_core.SchemaMismatch, match=difference) as caught:
            decode(server, schema_of(server, table))
        assert caught.value.table == table and caught.value.offset > 0


def test_rows_of_a_prepared_xa_transaction_are_not_emitted(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    server.execute("XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE")
    server.execute("INSERT INTO d.t VALUES (2)")
    schema = schema_of(server, "d.t")
    assert decode(server, schema).column("id").to_pylist() == [1, 2]
    server.execute("XA START 'y'", "INSERT INTO d.t VALUES (3)", "XA END 'y'", "XA PREPARE 'y'")
    with pytest.raises(_core.SchemaMismatch, match="XA prepared") as caught:
        decode(server, schema)
    assert caught.value.table == "d.t"
    server.execute("XA ROLLBACK 'y'")


def test_bytes_that_mean_nothing_in_their_character_set_are_escaped_not_lost(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_checksum="NONE")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(9))")
    server.execute("INSERT INTO d.t VALUES (1, 'abcd', 'ok'), (2, 'xy', 'ä')")
    path, _ = log_of(server)
    data = Path(path).read_bytes()
    broken = Path(path).with_name("broken")
    broken.write_bytes(data.replace(b"\x04abcd", b"\x04a\xffc\xe2"))
    table = decode_range(schema_of(server, "d.t"), str(broken), 0, len(data))
    assert table.column("a").to_pylist() == ["a\\xFFc\\xE2", "xy"]
    assert table.column("b").to_pylist() == ["ok", "ä"]


def test_an_event_whose_checksum_is_wrong_is_an_error_with_its_place(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(20))")
    server.execute("INSERT INTO d.t VALUES (1, 'abcd')", "INSERT INTO d.t VALUES (2, 'efgh')")
    path, _ = log_of(server)
    data = Path(path).read_bytes()
    broken = Path(path).with_name("broken")
    broken.write_bytes(data.replace(b"\x04efgh", b"\x04efgi"))
    at = data.index(b"\x04efgh")
    for layout in ("changelog", "latest"):
        with pytest.raises(_core.DecodeError, match="checksum") as caught:
            decode_range(schema_of(server, "d.t"), str(broken), 0, len(data), layout=layout)
        assert at - 60 < caught.value.offset < at and caught.value.path == str(broken)


def test_images_of_sessions_without_foreign_key_checks_can_be_left_out(changed: Server) -> None:
    changed.execute("CREATE TABLE d.parent (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    changed.execute(
        "INSERT INTO d.parent VALUES (1), (2), (3)",
        "SET foreign_key_checks = 0",
        "DELETE FROM d.parent WHERE id = 1",
        "SET foreign_key_checks = 1",
        "DELETE FROM d.parent WHERE id = 2",
    )
    schema = schema_of(changed, "d.parent")

    def deleted(**options: Any) -> list[Any]:
        rows = decode(changed, schema, **options).to_pylist()
        return [row["id"] for row in rows if row["_change_type"] == "delete"]

    assert deleted() == [1, 2]
    assert deleted(foreign_key_checks=True) == [2]
