"""Rows of a real PostgreSQL's log, against SELECT."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import psycopg
import pytest
from tests.sources.postgresql.pg_log import PgLog, table_of

from penstock._core import DecodeError
from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableId, TypeOptions
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.reading import Received, copy
from penstock.testing.servers.postgresql import PostgreSqlServer

TYPES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "real": ["1.5", "-0.1", "'NaN'", "'Infinity'", "'-Infinity'"],
    "double precision": ["1e308", "-0.1", "'NaN'", "'-Infinity'"],
    "numeric(10,2)": ["12345678.91", "-0.01", "0"],
    "numeric(38,10)": ["9999999999999999999999999999.9999999999", "-1e-10"],
    "numeric(3,-2)": ["12300", "-99900"],
    "numeric(2,5)": ["0.00099", "-0.00001"],
    "numeric": ["1e100", "-1e-100", "'NaN'", "'Infinity'", "'-Infinity'", "12.340"],
    "money": ["'12.34'", "'-92233720368547758.08'"],
    "text": ["''", "'h\u00e9\u4f60\U0001f600'", "repeat('x', 100000)"],
    "varchar(5)": ["'abc'"],
    "char(5)": ["'ab'"],
    '"char"': ["'x'"],
    "name": ["'a_name'"],
    "xml": ["'<a>1</a>'"],
    "json": ["'{\"b\": 1,  \"a\": [1, null]}'"],
    "jsonb": ["'{\"b\": 1, \"a\": [1, null]}'", "'null'"],
    "bytea": ["'\\x'", "'\\x00ff41'"],
    "bit(5)": ["B'10101'"],
    "bit varying": ["B''", "B'1'", "B'110011001'"],
    "date": ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'"],
    "timestamp": ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.5'"],
    "timestamp(3)": ["'2024-02-29 12:34:56.789'"],
    "timestamptz": [
        "'0001-01-01 00:00:00+00'", "'1969-12-31 23:59:59.999999+00'", "'2024-02-29 12:00:00+05:30'",
    ],
    "time": ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"],
    "timetz": ["'12:34:56.5+05:30'", "'00:00:00-12'"],
    "interval": [
        "'1 year 2 months 3 days 04:05:06.7'", "'-1 month -1 day -00:00:00.000001'", "'0'", "'infinity'",
        "'25 hours'",
    ],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"],
    "inet": ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'2001:db8::1/64'", "'::ffff:1.2.3.4'", "'::1.2.3.4'"],
    "cidr": ["'10.0.0.0/8'", "'10.1.2.3'", "'2001:db8::/32'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "pg_lsn": ["'16/B374D848'"],
    "happy": ["'fine'", "'so so'"],
    "positive": ["7"],
}  # fmt: skip
"""Types with values, as SQL. Of each table, one column has the type."""
SINCE = {"numeric(3,-2)": 15, "numeric(2,5)": 15, "'infinity'": 17}
"""The versions that types, and values of `interval`, came with."""

ARRAYS: dict[str, list[tuple[str, Any]]] = {
    "integer[]": [("'{1,NULL,-3}'", [1, None, -3]), ("'{}'", []), ("'{{1,2},{3,4}}'", [[1, 2], [3, 4]])],
    "text[]": [("ARRAY['a', NULL, 'NULL', '', 'q\"\\,{}']", ["a", None, "NULL", "", 'q"\\,{}'])],
    "boolean[]": [("'{t,f}'", [True, False])],
    "double precision[]": [("'{1.5,NaN,Infinity}'", [1.5, "NaN", "Infinity"])],
    "jsonb[]": [("ARRAY['{\"a\": 1}'::jsonb]", [{"a": 1}])],
    "date[]": [("'{2024-02-29}'", ["2024-02-29"])],
}


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_values_of_every_type_are_those_that_select_shows(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, binary: bool
) -> None:
    log, schema = PgLog(server, connection, "types"), f"types_{int(binary)}"
    types = {
        kind: [one for one in values if server.version >= SINCE.get(one, 0)]
        for kind, values in TYPES.items()
        if server.version >= SINCE.get(kind, 0)
    }
    try:
        connection.execute(f"CREATE SCHEMA {schema}")
        for number, (kind, values) in enumerate(types.items()):
            connection.execute(f"CREATE TABLE {schema}.t{number} (id int PRIMARY KEY, v {kind})")
            for id, value in enumerate([*values, "NULL"]):
                connection.execute(f"INSERT INTO {schema}.t{number} VALUES ({id}, {value})")
        segment = log.segment(tmp_path / "0.pgoutput", binary=binary)
        for number, kind in enumerate(types):
            table = table_of(connection, TableId(schema, f"t{number}"))
            found = {row["id"]: row["v"] for row in segment.changes(table.schema.to_json())}
            assert _shown(found) == _shown(_read(connection, table))
            shown = "CASE WHEN v IS NOT NULL THEN format('%s', v) END"  # as SELECT shows it, also char(n)
            wanted = connection.execute(f"SELECT id, {shown} FROM {schema}.t{number}").fetchall()
            assert len(found) == len(wanted) == len(types[kind]) + 1
            for id, text in wanted:
                assert _is_same(found[id], text), (kind, found[id], text)
    finally:
        log.close()


def _read(connection: psycopg.Connection[Any], table: PgTable) -> dict[int, Any]:
    """The values as a chunk has them."""
    chunk = Chunk(table.table, 0, None, None)
    batches = list(copy(connection, table, chunk, DEFAULT_TYPES, Received()))
    return {row["id"]: row["v"] for batch in batches for row in batch.to_pylist()}


def _shown(values: dict[int, Any]) -> dict[int, str]:
    """NaN is not equal to itself."""
    return {id: repr(value) for id, value in values.items()}


def _is_same(found: Any, text: str | None) -> bool:
    """Whether a value is the one that the server prints."""
    match found:
        case None:
            return text is None
        case bool():
            return text == str(found).lower()[0]
        case int() | Decimal():
            digits = (text or "").replace("$", "").replace(",", "")
            return Decimal(found) == Decimal(digits)
        case float():
            wide = float(text or "")
            with numpy.errstate(over="ignore"):
                return repr(found) in (repr(wide), repr(numpy.float32(wide).item()))
        case bytes():
            return text == "\\x" + found.hex()
        case datetime():
            return found == datetime.fromisoformat((text or "").replace("+00", "+00:00"))
        case date():
            return found.isoformat() == text
    # Times of day have all six digits here.
    return found == text or re.sub(r"\.?0*$", "", found) == text


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_arrays_are_documents(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, binary: bool
) -> None:
    log, schema = PgLog(server, connection, "arrays"), f"arrays_{int(binary)}"
    try:
        connection.execute(f"CREATE SCHEMA {schema}")
        for number, (kind, values) in enumerate(ARRAYS.items()):
            connection.execute(f"CREATE TABLE {schema}.t{number} (id int PRIMARY KEY, v {kind})")
            for id, (value, _) in enumerate(values):
                connection.execute(f"INSERT INTO {schema}.t{number} VALUES ({id}, {value})")
        segment = log.segment(tmp_path / "0.pgoutput", binary=binary)
        for number, (kind, values) in enumerate(ARRAYS.items()):
            table = table_of(connection, TableId(schema, f"t{number}"))
            found = {row["id"]: row["v"] for row in segment.changes(table.schema.to_json())}
            assert found == _read(connection, table)
            for id, (_, document) in enumerate(values):
                assert json.loads(found[id]) == document, (kind, found[id])
    finally:
        log.close()


LISTS: dict[str, list[str]] = {
    "integer[]": ["'{1,NULL,-3}'", "'{}'", "NULL", "'{NULL}'"],
    "bigint[]": ["ARRAY[9223372036854775807, -9223372036854775808]"],
    "text[]": ["ARRAY['a', NULL, 'NULL', '', 'q\"\\,{}', ' b ']"],
    "varchar(10)[]": ["'{a,b}'"],
    "boolean[]": ["'{t,f,NULL}'"],
    "double precision[]": ["'{1.5,-Infinity,Infinity}'"],
    "numeric(10,2)[]": ["'{1.5,-12345678.90,NULL}'"],
    "date[]": ["'{2024-02-29,0001-01-01}'"],
    "timestamp[]": ["'{\"2024-02-29 12:34:56.789\"}'"],
    "timestamptz[]": ["'{\"2024-02-29 12:00:00.000001+05:30\",NULL}'"],
    "bytea[]": ["ARRAY['\\x00ff'::bytea, NULL, '']"],
    "uuid[]": ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"],
}  # fmt: skip


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_arrays_can_be_lists_whose_elements_are_those_of_the_server(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, binary: bool
) -> None:
    log, schema, lists = (
        PgLog(server, connection, "lists"),
        f"lists_{int(binary)}",
        TypeOptions(arrays="list"),
    )
    try:
        connection.execute(f"CREATE SCHEMA {schema}")
        for number, (kind, values) in enumerate(LISTS.items()):
            connection.execute(f"CREATE TABLE {schema}.t{number} (id int PRIMARY KEY, v {kind})")
            for id, value in enumerate(values):
                connection.execute(f"INSERT INTO {schema}.t{number} VALUES ({id}, {value})")
        for name, value in (("deep", "'{{1,2},{3,4}}'"), ("shifted", "'[0:1]={1,2}'")):
            connection.execute(f"CREATE TABLE {schema}.{name} (id int PRIMARY KEY, v int[])")
            connection.execute(f"INSERT INTO {schema}.{name} VALUES (1, {value})")
        segment = log.segment(tmp_path / "0.pgoutput", binary=binary)
        for number, kind in enumerate(LISTS):
            definition = table_of(connection, TableId(schema, f"t{number}")).schema.to_json()
            found = {row["id"]: row["v"] for row in segment.changes(definition, types=lists)}
            wanted = dict(connection.execute(f"SELECT id, v FROM {schema}.t{number}").fetchall())
            wanted = {id: [str(one) for one in v] if kind == "uuid[]" else v for id, v in wanted.items()}
            assert found == wanted, kind
            (table,) = read_tables(connection, "all", names=[TableId(schema, f"t{number}")])
            whole = Chunk(table.schema.table, 0, None, None)
            read = [
                row for one in copy(connection, table, whole, lists, Received()) for row in one.to_pylist()
            ]
            assert {row["id"]: row["v"] for row in read} == wanted, kind
        for name in ("deep", "shifted"):
            definition = table_of(connection, TableId(schema, name)).schema.to_json()
            assert len(segment.changes(definition)) == 1
            with pytest.raises(DecodeError, match=r"`v`.*which no list can be"):
                segment.changes(definition, types=lists)
    finally:
        log.close()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_large_value_that_did_not_change_is_not_lost(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, identity: str
) -> None:
    log = PgLog(server, connection, "toast")
    try:
        connection.execute("DROP TABLE IF EXISTS public.toast")
        connection.execute("CREATE TABLE public.toast (id int PRIMARY KEY, small int, large text)")
        connection.execute("ALTER TABLE public.toast ALTER large SET STORAGE EXTERNAL")
        connection.execute(f"ALTER TABLE public.toast REPLICA IDENTITY {identity}")
        connection.execute("INSERT INTO public.toast VALUES (1, 1, repeat('x', 10000))")
        connection.execute("UPDATE public.toast SET small = 2")
        connection.execute("UPDATE public.toast SET id = 7")
        connection.execute("UPDATE public.toast SET large = 'y'")
        connection.execute("DELETE FROM public.toast")
        segment = log.segment(tmp_path / "0.pgoutput")
        whole = "x" * 10_000
        updates = [
            one for one in segment.messages("json") if one.get("table") == "toast" and one["op"] == "u"
        ]
        assert [one["after"].get("large", "absent") for one in updates] == (
            [whole, whole, "y"] if identity == "FULL" else ["absent", "absent", "y"]
        )
        assert [one["before"]["id"] for one in updates] == [1, 1, 7]
        assert [one["after"]["id"] for one in updates] == [1, 7, 7]
        assert ("large" in updates[0]["before"]) is (identity == "FULL")
    finally:
        log.close()


def test_transactions_have_their_ids_places_and_statements(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    log = PgLog(server, connection, "places")
    try:
        connection.execute("DROP TABLE IF EXISTS public.a, public.b CASCADE")
        connection.execute("CREATE TABLE public.a (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE public.b (id int PRIMARY KEY REFERENCES public.a)")
        xids = []
        for statements in (
            ["INSERT INTO a VALUES (1), (2)", "SAVEPOINT s", "INSERT INTO a VALUES (3)", "ROLLBACK TO s",
             "INSERT INTO b VALUES (1)"],
            ["TRUNCATE a CASCADE"],
            ["INSERT INTO a VALUES (4)"],
        ):  # fmt: skip
            with connection.transaction():
                [(xid,)] = connection.execute("SELECT pg_current_xact_id()::text")
                xids.append(int(xid))
                for statement in statements:
                    connection.execute(statement)
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO a VALUES (5)")
        segment = log.segment(tmp_path / "0.pgoutput")
        messages = segment.messages("json")
        rows = [(one["xid"], one["table"], one["after"]["id"]) for one in messages if "op" in one]
        assert rows == [(xids[0], "a", 1), (xids[0], "a", 2), (xids[0], "b", 1), (xids[2], "a", 4)]
        definition = table_of(connection, TableId("public", "a")).schema.to_json()
        sequences = [one["sequence"] for one in messages if one.get("table") == "a" and "op" in one]
        assert [row["_sequence"] for row in segment.changes(definition)] == sequences
        emptied = [(one["id"], one["sql"]) for one in messages if "sql" in one]
        assert {id for id, _ in emptied} == {str(xids[1])}
        assert [sql for _, sql in emptied] == ['{"emptied":true,"table":"a"}', '{"emptied":true,"table":"b"}']
        [debezium] = [one for one in segment.messages("debezium") if one.get("op") == "c"][:1]
        source = debezium["source"]
        assert (source["connector"], source["schema"], source["table"]) == ("postgresql", "public", "a")
        assert source["txId"] == xids[0] and log.start < source["lsn"]
        # Each statement is a part of its transaction with an end of its own.
        transactions = sum(entry.get("transactions", 0) for entry in segment.entries)
        assert transactions == 4 or (server.version == 14 and transactions > 4), "14 sends empty ones, too"
        ends = [one["end"] for entry in segment.entries for one in entry.get("statements", [])]
        assert len(ends) == len(set(ends)) == 2
    finally:
        log.close()


def test_a_table_that_is_emptied_between_its_rows_keeps_the_later_ones(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    log = PgLog(server, connection, "emptied")
    try:
        connection.execute("DROP TABLE IF EXISTS public.e")
        connection.execute("CREATE TABLE public.e (id int PRIMARY KEY)")
        with connection.transaction():
            connection.execute("INSERT INTO e VALUES (1)")
            connection.execute("TRUNCATE e")
            connection.execute("INSERT INTO e VALUES (2)")
        with connection.transaction():
            connection.execute("TRUNCATE e")
            connection.execute("INSERT INTO e VALUES (3)")
        segment = log.segment(tmp_path / "0.pgoutput")
        said = [
            one["after"]["id"] if "op" in one else "emptied"
            for one in segment.messages("json")
            if one.get("table") == "e" or "sql" in one
        ]
        assert said == [1, "emptied", 2, "emptied", 3]
        ends = [statement["end"] for entry in segment.entries for statement in entry.get("statements", [])]
        offsets = {row["id"]: row["_sequence"] for row in segment.changes(table_of(
            connection, TableId("public", "e")).schema.to_json())}  # fmt: skip
        assert offsets[1] < ends[0] <= offsets[2] < ends[1] <= offsets[3]
    finally:
        log.close()
