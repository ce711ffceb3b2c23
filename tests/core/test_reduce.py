"""Layout `latest`, `LatestReducer`, `KeySet`; judged by the changelog folded here and the source table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from tests.core import logs
from tests.core.logs import decode, decode_range, log_of, schema_of, select

from penstock import _core
from penstock.model.schema import TableSchema
from penstock.testing import servers

Server = servers.MySqlServer

KEYS = {
    "one": "id INT, b VARCHAR(30), PRIMARY KEY (id)",
    "text": "id INT, b VARCHAR(30), PRIMARY KEY (b)",
    "both": "id BIGINT UNSIGNED, b CHAR(40) CHARACTER SET latin1, PRIMARY KEY (b, id)",
    "bytes": "id DATETIME(3), b VARBINARY(30), PRIMARY KEY (id, b)",
    "labels": "id ENUM('0','1','2','3','4','5','6','7','8','9'), b DECIMAL(40,2), PRIMARY KEY (b, id)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Random inserts, updates, key moves, swaps and deletes in tables with keys of several kinds."""
    with servers.MySqlServer({"binlog_row_event_max_size": 256}) as server:
        server.execute("CREATE DATABASE d")
        for name, columns in KEYS.items():
            server.execute(f"CREATE TABLE d.{name} ({columns.replace(', PRIMARY', ', c INT, PRIMARY')})")
        server.execute("FLUSH BINARY LOGS")
        for name in KEYS:
            _write(server, name, random.Random(name))
        yield server


def _write(server: Server, name: str, choice: random.Random) -> None:
    def key() -> tuple[str, str]:
        number = choice.randrange(10)
        identity = f"'2024-01-0{number + 1}'" if name == "bytes" else f"'{number}'"
        return identity, f"'{choice.randrange(30)}'"

    statements = []
    for number in range(300):
        (left, right), (new_left, new_right) = key(), key()
        statements.append(
            choice.choice(
                [
                    f"INSERT IGNORE INTO d.{name} VALUES ({left}, {right}, {number})",
                    f"REPLACE INTO d.{name} VALUES ({left}, {right}, {number})",
                    f"UPDATE d.{name} SET c = {number} WHERE id = {left}",
                    f"UPDATE IGNORE d.{name} SET id = {new_left}, b = {new_right} WHERE b = {right}",
                    f"DELETE FROM d.{name} WHERE id = {left} AND b = {right}",
                ]
            )
        )
    server.execute("SET sql_mode = ''", "BEGIN", *statements[:150], "COMMIT", *statements[150:])


def key_of(schema: TableSchema, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in schema.key)


def folded(schema: TableSchema, changes: pa.Table) -> dict[tuple[Any, ...], dict[str, Any] | None]:
    """The last state of each key, by applying the changelog row by row."""
    state: dict[tuple[Any, ...], dict[str, Any] | None] = {}
    for row in changes.to_pylist():
        gone = row["_change_type"] in ("delete", "update_preimage")
        state[key_of(schema, row)] = None if gone else {name: row[name] for name in ("id", "b", "c")}
    return state


def as_state(schema: TableSchema, latest: pa.Table) -> dict[tuple[Any, ...], dict[str, Any] | None]:
    rows = latest.to_pylist()
    state = {
        key_of(schema, row): None
        if row["_penstock_deleted"]
        else {name: row[name] for name in ("id", "b", "c")}
        for row in rows
    }
    assert len(state) == len(rows)
    return state


@pytest.mark.parametrize("name", KEYS)
def test_latest_is_the_last_state_of_each_key(server: Server, name: str) -> None:
    schema = schema_of(server, f"d.{name}")
    latest = decode(server, schema, layout="latest")
    state = as_state(schema, latest)
    assert state == folded(schema, decode(server, schema))
    assert None in state.values() or name == "one"
    left = select(server, f"SELECT COUNT(*), CAST(SUM(c) AS CHAR) FROM d.{name}")[0]
    alive = [row["c"] for row in state.values() if row is not None]
    assert (str(len(alive)), str(sum(alive))) == tuple(left)
    assert sorted(latest.column("_sequence").to_pylist()) == sorted(
        set(latest.column("_sequence").to_pylist())
    )
    small = decode(server, schema, layout="latest", batch_rows=3)
    assert small.equals(latest) and max(len(chunk) for chunk in small.column("c").chunks) <= 3


@pytest.mark.parametrize("name", KEYS)
def test_latest_of_splits_reduced_is_the_latest_of_the_whole(server: Server, name: str) -> None:
    schema = schema_of(server, f"d.{name}")
    path, size = log_of(server)
    cuts = [event.end for event in logs.events(path) if event.kind == 16][::40]
    ends = [4, *cuts, size]
    reducer = _core.LatestReducer(schema.to_json())
    for start, end in ((ends[at], ends[at + 1]) for at in range(len(ends) - 1)):
        for batch in decode_range(schema, path, start, end, layout="latest").to_batches():
            reducer.push(batch)
    reduced = pa.Table.from_batches(reducer.finish())
    whole = decode(server, schema, layout="latest")
    assert reduced.sort_by("_sequence").equals(whole.sort_by("_sequence"))
    assert reducer.finish() == []


@pytest.mark.parametrize("name", KEYS)
def test_splits_read_backwards_with_one_set_of_keys_give_the_latest_of_the_whole(
    server: Server, name: str
) -> None:
    schema = schema_of(server, f"d.{name}")
    path, size = log_of(server)
    ends = [4, *[event.end for event in logs.events(path) if event.kind == 16][::40], size]
    seen = _core.KeySet(schema.to_json())
    parts = [
        decode_range(schema, path, start, end, layout="latest", seen=seen)
        for start, end in reversed(list(pairwise(ends)))
    ]
    whole = decode(server, schema, layout="latest")
    assert pa.concat_tables(parts).sort_by("_sequence").equals(whole.sort_by("_sequence"))
    assert len(seen) == whole.num_rows
    with pytest.raises(ValueError, match="latest"):
        decode_range(schema, path, 4, size, layout="changelog", seen=seen)


@pytest.mark.parametrize("name", KEYS)
def test_buckets_of_latest_make_up_the_whole(server: Server, name: str) -> None:
    schema = schema_of(server, f"d.{name}")
    shares = [decode(server, schema, layout="latest", bucket=(share, 4)) for share in range(4)]
    assert all(share.num_rows for share in shares) or name == "one"
    whole = decode(server, schema, layout="latest")
    assert pa.concat_tables(shares).sort_by("_sequence").equals(whole.sort_by("_sequence"))


@pytest.mark.parametrize("name", KEYS)
def test_a_key_set_drops_rows_whose_key_occurs_in_any_image(server: Server, name: str) -> None:
    schema = schema_of(server, f"d.{name}")
    path, size = log_of(server)
    changes = decode(server, schema)
    middle = next(event.end for event in logs.events(path) if event.kind == 16 and event.end > size * 0.9)
    keys = _core.KeySet(schema.to_json())
    names = [column.name for column in schema.columns]
    rows = pa.table(changes.select(names)).combine_chunks().to_batches()[0]
    rows = rows.cast(_core.arrow_schema(schema.to_json(), "rows"))
    assert keys.drop_from(rows).equals(rows) and len(keys) == 0
    cut = max(changes.column("_sequence").to_pylist()[len(changes) // 2], 0)
    middle = next(event.end for event in logs.events(path) if event.kind == 16 and event.end > cut)
    keys.add_split(path, 0, 4, middle)
    occurring = {key_of(schema, row) for row in decode_range(schema, path, 4, middle).to_pylist()}
    assert len(keys) == len(occurring)
    kept = keys.drop_from(rows).to_pylist()
    assert kept == [row for row in rows.to_pylist() if key_of(schema, row) not in occurring]
    keys.add_split(path, 0, middle, size)
    assert keys.drop_from(rows).num_rows == 0


def test_a_table_without_a_key_has_no_latest(server: Server) -> None:
    server.execute("CREATE TABLE d.keyless (a INT)")
    schema = schema_of(server, "d.keyless")
    for use in (
        lambda: decode(server, schema, layout="latest"),
        lambda: _core.LatestReducer(schema.to_json()),
        lambda: _core.KeySet(schema.to_json()),
    ):
        with pytest.raises(_core.SchemaMismatch, match=r"d\.keyless has no key"):
            use()


def test_a_zero_date_in_a_key_is_refused_rather_than_mixed_up(server: Server) -> None:
    server.execute(
        "SET sql_mode = ''",
        "CREATE TABLE d.dated (day DATE PRIMARY KEY)",
        "INSERT INTO d.dated VALUES ('2024-00-01'), (0)",
    )
    schema = schema_of(server, "d.dated")
    with pytest.raises(_core.SchemaMismatch, match=r"`day` of d\.dated: a zero"):
        decode(server, schema, layout="latest")
    texts = decode(server, schema, layout="latest", types='{"zero_dates": "text"}').column("day").to_pylist()
    assert sorted(texts) == ["0000-00-00", "2024-00-01"]
