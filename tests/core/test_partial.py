"""Row images that are not whole: partial JSON, MINIMAL and NOBLOB. The server's SELECT is the judge."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.core import logs
from tests.core.logs import decode, decode_range, log_of, schema_of, select

from penstock import _core
from penstock.model.schema import DEFAULT_TYPES, TableSchema
from penstock.sources.mysql.omitted_columns import omitted_values
from penstock.testing.servers import MySqlServer

Factory = Callable[..., MySqlServer]

MEMBERS = ["a", "b", "key with spaces", 'quo\\\\"te', "ä", "", "long" * 20, "0", "B"]
VALUES = [
    "1", "-7", "3000000000", "1.5", "1e100", "TRUE", "NULL", "'text'", "REPEAT('x', 300)", "'ä\\n\"'",
    "CAST('[1, [2, 3], {\"a\": []}]' AS JSON)", "CAST('{}' AS JSON)", "CAST('12.340' AS DECIMAL(10,3))",
    "CAST('2024-02-29' AS DATE)", "CAST('-11:22:33.5' AS TIME(1))", "x'00ff'", "CAST('[]' AS JSON)",
    "JSON_OBJECT('b', 1, 'a', REPEAT('y', 70000))",
]  # fmt: skip


def a_path(chance: random.Random) -> str:
    legs = "".join(
        f"[{chance.randrange(4)}]" if chance.random() < 0.4 else f'."{chance.choice(MEMBERS)}"'
        for _ in range(chance.randint(1, 3))
    )
    return f"'${legs}'"


def a_change(chance: random.Random, column: str) -> str:
    """JSON functions of which the server logs what they changed."""
    expression = column
    for _ in range(chance.randint(1, 3)):
        function = chance.choice(["JSON_SET", "JSON_REPLACE", "JSON_REMOVE", "JSON_SET"])
        arguments = [a_path(chance)] + ([] if function == "JSON_REMOVE" else [chance.choice(VALUES)])
        expression = f"{function}({expression}, {', '.join(arguments)})"
    return f"UPDATE d.t SET {column} = {expression}, n = n + 1 WHERE id = {chance.randint(1, 8)}"


def documents(server: MySqlServer) -> dict[int, tuple[Any, ...]]:
    rows = select(server, "SELECT id, a, b FROM d.t")
    return {int(row[0]): (row[1], row[2]) for row in rows}


def test_partial_json_updates_give_the_whole_document_as_the_server_prints_it(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_value_options="PARTIAL_JSON")
    chance = random.Random(20261121)
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a JSON, x JSON, n INT DEFAULT 0, b JSON)",
        *(f"INSERT INTO d.t (id, a, b) VALUES ({n}, '{{}}', JSON_ARRAY(1, 'two', JSON_OBJECT('a', 3)))"
          for n in range(1, 8)),
        "INSERT INTO d.t (id) VALUES (8)",
        "FLUSH BINARY LOGS",
    )  # fmt: skip
    states = []
    for _ in range(15):
        server.execute(*(a_change(chance, chance.choice("ab")) for _ in range(25)))
        states.append((documents(server), log_of(server)[1]))
    path, size = log_of(server)
    assert sum(event.kind == 39 for event in logs.events(path)) > 100
    schema = schema_of(server, "d.t")
    known: dict[int, tuple[Any, ...]] = {}
    start = 0
    for number, (state, end) in enumerate(states):
        for row in decode_range(schema, path, start, end, layout="latest").to_pylist():
            known[row["id"]] = (row["a"], row["b"])
        assert {key: state[key] for key in known} == known, number
        start = end
    changelog = decode(server, schema).to_pylist()
    befores = [row for row in changelog if row["_change_type"] == "update_preimage"]
    afters = [row for row in changelog if row["_change_type"] == "update_postimage"]
    last: dict[int, tuple[Any, ...]] = {}
    for before, after in zip(befores, afters, strict=True):
        assert last.get(before["id"], (before["a"], before["b"])) == (before["a"], before["b"])
        last[after["id"]] = (after["a"], after["b"])
    assert size == states[-1][1]


def test_partial_json_without_the_document_before_is_refused(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_value_options="PARTIAL_JSON", binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a JSON)")
    server.execute("""INSERT INTO d.t VALUES (1, '{"a": 1, "b": "text of some length"}')""")
    server.execute("UPDATE d.t SET a = JSON_SET(a, '$.a', 2)")
    for partial_images in (False, True):
        with pytest.raises(_core.SchemaMismatch, match=r"column `a` of d\.t: .*binlog_row_image = FULL"):
            decode(server, schema_of(server, "d.t"), partial_images=partial_images)


TABLE = """CREATE TABLE d.t (
    id INT PRIMARY KEY, a INT DEFAULT 7, b VARCHAR(20) DEFAULT 'deflt', note TEXT, data BLOB, doc JSON,
    v INT AS (a + 1) VIRTUAL, s VARCHAR(40) AS (CONCAT(b, '!')) STORED, price DECIMAL(10,2) NOT NULL,
    at TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    e ENUM('x','y') DEFAULT 'y')"""

COLUMNS = ["id", "a", "b", "note", "data", "doc", "v", "s", "price", "at", "e"]


def a_statement(chance: random.Random) -> str:
    key = chance.randint(1, 25)
    values = {
        "a": chance.choice(["NULL", "1", "-5", "DEFAULT"]),
        "b": chance.choice(["'one'", "'two'", "NULL", "DEFAULT"]),
        "note": chance.choice(["'text'", "NULL", "REPEAT('n', 300)"]),
        "data": chance.choice(["x'00ff'", "NULL"]),
        "doc": chance.choice(["""'{"a": 1}'""", "NULL", "'[1, 2]'"]),
        "price": chance.choice(["1.5", "-2.25", "0"]),
        "e": chance.choice(["'x'", "'y'"]),
    }
    chosen = chance.sample(sorted(values), chance.randint(1, 4))
    if chance.random() < 0.2:
        return f"DELETE FROM d.t WHERE id = {key}"
    if chance.random() < 0.4:
        names, literals = (
            ", ".join(["id", *chosen]),
            ", ".join([str(key), *(values[name] for name in chosen)]),
        )
        verb = chance.choice(["INSERT IGNORE", "REPLACE"])
        return f"{verb} INTO d.t ({names}) VALUES ({literals})"
    return f"UPDATE d.t SET {', '.join(f'{name} = {values[name]}' for name in chosen)} WHERE id = {key}"


def state_of(server: MySqlServer) -> dict[int, tuple[Any, ...]]:
    columns = ", ".join("HEX(data)" if name == "data" else name for name in COLUMNS)
    return {int(row[0]): tuple(row) for row in select(server, f"SELECT {columns} FROM d.t")}


def as_text(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "data":
        return value.hex().upper()
    if name == "at":
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return str(value)


def defaults_of(schema: TableSchema) -> pa.RecordBatch:
    values: dict[str, Any] = dict.fromkeys(COLUMNS)
    values |= {"a": 7, "b": "deflt", "e": "y", "price": 0}
    arrow = _core.arrow_schema(schema.to_json(), "latest")
    known = [name for name in COLUMNS if name not in ("id", "v", "s", "at")]
    return pa.RecordBatch.from_pydict(
        {name: pa.array([values[name]], arrow.field(name).type) for name in known}
    )


def apply(state: dict[int, tuple[Any, ...]], batch: pa.Table) -> None:
    """What a sink does: rows that are not whole are completed from what is there."""
    for row in batch.to_pylist():
        if row["_penstock_deleted"]:
            state.pop(row["id"], None)
            continue
        present, old = row["_penstock_present"], state.get(row["id"])
        assert present is None or (old is not None and present[0] == "1"), row["id"]
        state[row["id"]] = tuple(
            as_text(name, row[name]) if old is None or present is None or present[at] == "1" else old[at]
            for at, name in enumerate(COLUMNS)
        )


@pytest.mark.parametrize("image", ["MINIMAL", pytest.param("NOBLOB", marks=pytest.mark.slow)])
def test_partial_images_laid_over_what_was_there_give_what_select_shows(
    emptied_mysql: Factory, image: str
) -> None:
    server = emptied_mysql(binlog_row_image=image)
    chance = random.Random(image)
    server.execute("CREATE DATABASE d", TABLE, "SET sql_mode = ''")
    state, start = state_of(server), 0
    path, _ = log_of(server)
    schema, partial = schema_of(server, "d.t"), 0
    for _ in range(12):
        server.execute("SET sql_mode = ''", *(a_statement(chance) for _ in range(25)))
        end = log_of(server)[1]
        # In two splits, the later one first, as a task reads them; then put together.
        cuts = [event.end for event in logs.events(path) if start < event.end < end and event.kind == 16]
        middle = cuts[len(cuts) // 2]
        seen, reducer = _core.KeySet(schema.to_json()), _core.LatestReducer(schema.to_json())
        for low, high in ((middle, end), (start, middle)):
            for batch in _core.RangeDecoder(
                schema.to_json(), path, 0, low, high, layout="latest", seen=seen, partial_images=True,
                defaults=defaults_of(schema), batch_rows=7,
            ):  # fmt: skip
                batch.validate(full=True)
                reducer.push(batch)
        batches = reducer.finish()
        rows = pa.Table.from_batches(batches)
        assert len(set(rows.column("id").to_pylist())) == rows.num_rows == len(seen)
        partial += sum(present is not None for present in rows.column("_penstock_present").to_pylist())
        apply(state, rows)
        assert state == state_of(server)
        start = end
    assert partial > 20


@pytest.mark.parametrize("image", [pytest.param("MINIMAL", marks=pytest.mark.slow), "NOBLOB"])
def test_partial_images_in_the_window_are_laid_over_the_rows_of_a_chunk(
    emptied_mysql: Factory, image: str
) -> None:
    """A chunk read before changes, and those changes, give the rows after them; rows that the log has in
    whole are left to it."""
    server = emptied_mysql(binlog_row_image=image)
    server.execute("CREATE DATABASE d", TABLE, "SET sql_mode = ''")
    server.execute(
        "SET sql_mode = ''",
        *(f"INSERT INTO d.t (id, note, doc) VALUES ({n}, 'note', '[{n}]')" for n in range(1, 26)),
    )
    schema, chance = schema_of(server, "d.t"), random.Random(image)
    path, start = log_of(server)
    chunk = pa.RecordBatch.from_pylist(
        [dict(zip(COLUMNS, row, strict=True)) for row in chunk_rows(server)],
        _core.arrow_schema(schema.to_json(), "rows"),
    )
    server.execute("SET sql_mode = ''", *(a_statement(chance) for _ in range(40)))
    expected, end = state_of(server), log_of(server)[1]
    keys = _core.KeySet(schema.to_json(), partial_images=True)
    keys.add_split(path, 0, start, end)
    placed = pa.Table.from_batches([keys.drop_from(chunk)])
    whole = {row["id"] for row in latest(schema, path, start, end) if row["_penstock_present"] is None}
    ids = placed.column("id").to_pylist()
    assert set(ids) == set(range(1, 26)) - whole and len(ids) > 5 and whole
    for row in placed.to_pylist():
        assert tuple(as_text(name, row[name]) for name in COLUMNS) == expected[row["id"]]


def chunk_rows(server: MySqlServer) -> list[tuple[Any, ...]]:
    with server.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM d.t ORDER BY id")
        return list(cursor.fetchall())


def latest(schema: TableSchema, path: str, start: int, end: int) -> list[dict[str, Any]]:
    return reduced(schema, path, start, end, defaults=defaults_of(schema))


def reduced(schema: TableSchema, path: str, start: int, end: int, **options: Any) -> list[dict[str, Any]]:
    table = decode_range(schema, path, start, end, layout="latest", partial_images=True, **options)
    reducer = _core.LatestReducer(schema.to_json())
    for batch in table.to_batches():
        reducer.push(batch)
    rows: list[dict[str, Any]] = pa.Table.from_batches(reducer.finish()).to_pylist()
    return rows


def test_updates_that_lack_columns_are_not_a_whole_row_together(emptied_mysql: Factory) -> None:
    """A target that has not got the row would else know it from one range of the log, and not from two."""
    server = emptied_mysql(binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
    server.execute("INSERT INTO d.t VALUES (1, 2, 3)", "FLUSH BINARY LOGS")
    server.execute("UPDATE d.t SET a = 5", "UPDATE d.t SET b = 6")
    schema = schema_of(server, "d.t")
    path, end = log_of(server)
    [row] = reduced(schema, path, 0, end)
    assert (row["id"], row["a"], row["b"], row["_penstock_present"]) == (1, 5, 6, "111")
    keys = _core.KeySet(schema.to_json(), partial_images=True)
    keys.add_split(path, 0, 0, end)
    read = {"id": [1], "a": [2], "b": [3]}
    chunk = pa.RecordBatch.from_pydict(read, _core.arrow_schema(schema.to_json(), "rows"))
    assert keys.drop_from(chunk).to_pylist() == [{"id": 1, "a": 5, "b": 6}]


def test_the_change_log_says_which_columns_a_row_has(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
    server.execute("INSERT INTO d.t VALUES (1, 2, 3)", "UPDATE d.t SET a = 5", "DELETE FROM d.t")
    table = decode(server, schema_of(server, "d.t"), partial_images=True)
    names = ["_change_type", "id", "a", "b", "_penstock_present"]
    assert list(zip(*(table.column(name).to_pylist() for name in names), strict=True)) == [
        ("insert", 1, 2, 3, None),
        ("update_preimage", 1, None, None, "100"),
        ("update_postimage", 1, 5, None, "110"),
        ("delete", 1, None, None, "100"),
    ]


def test_partial_images_are_refused_where_nobody_asked_for_them(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
    server.execute("INSERT INTO d.t VALUES (1, 2, 3)", "UPDATE d.t SET a = 5")
    schema = schema_of(server, "d.t")
    with pytest.raises(_core.SchemaMismatch, match=r"`b` of d\.t: the row image lacks it.*FULL"):
        decode(server, schema, before_images=False)


def test_an_insert_that_leaves_out_a_column_of_the_key_has_its_default(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_image="MINIMAL")
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b VARCHAR(9) DEFAULT 'ü', c DATE NOT NULL DEFAULT '2020-02-29',"
        " n INT, PRIMARY KEY (b, a, c))",
        "INSERT INTO d.t (a, n) VALUES (1, 2)",
        "INSERT INTO d.t (a, b) VALUES (1, 'x')",
        "UPDATE d.t SET n = 7 WHERE b = 'ü'",
        "INSERT INTO d.t (a) VALUES (3)",
    )
    schema = schema_of(server, "d.t")
    defaults = omitted_values(schema, DEFAULT_TYPES)
    path, end = log_of(server)
    rows = reduced(schema, path, 0, end, defaults=defaults)
    found = sorted(tuple(str(row[name]) for name in "abcn") for row in rows)
    expected = select(server, "SELECT a, b, c, IFNULL(n, 'None') FROM d.t")
    assert found == sorted(expected)
    keys = _core.KeySet(schema.to_json(), partial_images=True, defaults=defaults)
    keys.add_split(path, 0, 0, end)
    assert len(keys) == 3
    with pytest.raises(_core.SchemaMismatch) as caught:
        decode(server, schema, layout="latest")
    assert caught.value.lacks == "columns"


def test_what_partial_images_cannot_tell_is_refused(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_image="MINIMAL")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
    server.execute("INSERT INTO d.t VALUES (1, 2, 3)", "UPDATE d.t SET id = 5")
    schema = schema_of(server, "d.t")
    with pytest.raises(_core.SchemaMismatch, match=r"changes the key.*FULL"):
        decode(server, schema, layout="latest", partial_images=True)
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t (id) VALUES (7)")
    with pytest.raises(_core.SchemaMismatch, match=r"`a` of d\.t: the row image of an insert leaves it out"):
        decode(server, schema, layout="latest", partial_images=True)
