"""Values written by INSERT and UPDATE: those of the stream and of a chunk are what SELECT shows.

The oracle is the server: `format('%s', value)` with the settings of `pg_log.SETTINGS`.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import PgLog, table_of

from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.sources.postgresql.reading import Received, copy
from penstock.testing.servers.postgresql import PostgreSqlServer

SETUP = """
CREATE TYPE {0}.mood AS ENUM ('ok', 'so so', 'null', 'a,b', 'q"\\{{}}');
CREATE DOMAIN {0}.short AS varchar(5);
CREATE DOMAIN {0}.shorter AS {0}.short CHECK (length(value) < 5);
CREATE DOMAIN {0}.many AS int[] CHECK (array_length(value, 1) < 9);
CREATE DOMAIN {0}.span AS int4range;
CREATE TYPE {0}.pair AS (a int, b text);
CREATE TYPE {0}.nested AS (p {0}.pair, list {0}.pair[], m {0}.mood, d {0}.short, r numrange, t timestamptz);
CREATE TYPE {0}.floats AS RANGE (subtype = float8);
CREATE TYPE {0}.texts AS RANGE (subtype = text, multirange_type_name = {0}.multitexts);
CREATE DOMAIN {0}.pairs AS {0}.pair[];
CREATE TABLE {0}.other (x int, y text, gone int, z date[]);
ALTER TABLE {0}.other DROP gone;
"""
TEXTS: dict[str, list[str]] = {
    "int4range": ["'[1,5)'", "'empty'", "'(,)'", "'[3,]'", "'(,7]'"],
    "int8range": ["'[-9223372036854775808,9223372036854775806]'"],
    "numrange": ["'[1.50,2e30]'", "'(NaN,)'", "'[-Infinity,Infinity]'"],
    "daterange": [
        "'[2024-01-01,infinity]'",
        "'[\"0044-03-15 BC\",20240-01-01)'",
        "'[-infinity,4713-01-01 BC)'",
    ],
    "tsrange": ["'[2024-01-01 12:00:00.5,infinity)'", "'[,\"0001-01-01 00:00:00 BC\"]'"],
    "tstzrange": [
        "'[\"2024-01-01 12:00:00.000001+05:30\",)'",
        '\'["0044-03-15 BC","294276-12-31 23:59:59.5+00"]\'',
    ],
    "S.floats": ["'[1e-5,1e15)'", "'[0.0001,123456789012345]'", "'(-0,NaN)'", "'[5e-324,1e-300]'"],
    "S.texts": ["'[a,b)'", "S.texts('a b', E'q\"\\\\(,')", "S.texts('', 'null')", "S.texts('(', '[')"],
    "S.multitexts": ["S.multitexts(S.texts('a b', 'c'), S.texts('d', null))"],
    "int4multirange": ["'{}'", "'{[1,2),[5,9]}'", "'{(,3),[7,)}'"],
    "tstzmultirange": ["'{[2024-01-01,2024-02-01 10:00+02)}'"],
    "S.span": ["'[1,5)'"],
    "S.pair": [
        "ROW(1, 'x')",
        "ROW(NULL, NULL)",
        "ROW(-1, '')",
        "ROW(1, E'a \"b\" \\\\ (c),d')",
        "ROW(1, E'\\t\\n')",
        "ROW(1, 'NULL')",
        "ROW(1, 'h\u00e9\u4f60')",
    ],
    "S.nested": [
        "ROW(ROW(1, 'a,b'), ARRAY[ROW(2, 'q\"'), NULL]::S.pair[], 'so so', 'd', '[1,2)', 'infinity')",
        "ROW(NULL, '{}', NULL, NULL, NULL, '0044-03-15 12:00 BC')",
        "ROW(NULL, '[0:0]={\"(1,x)\"}', 'null', '', 'empty', '2024-01-01 00:00:00.1')",
    ],
    "S.other": ["ROW(1, 'x', '{2024-01-01,NULL,infinity}')"],
    "S.mood": ["'null'", "'a,b'"],
    "S.shorter": ["'ab'", "''"],
    "int2vector": ["'1 2 3'"],
    "tsvector": [
        "''",
        "'a b c'",
        "'fat:1A,2B cat:3 ''it''''s'':4D,16383C'",
        "E'''back\\\\\\\\slash'' ''a b'''",
    ],
    "tsquery": [
        "''",
        "'a & b | !c'",
        "'(a | b) & c'",
        "'!(a & b)'",
        "'a <-> b <3> c'",
        "'a <-> (b <-> c)'",
        "'fat:AB* & cat:D'",
        "'(a | b) <-> !c'",
        "'!!a'",
        "'a & (b & c) | (d | e)'",
        "E'''it''''s'''",
    ],
    "point": ["'(1.5,-2e-7)'", "'(NaN,Infinity)'", "'(-0,1e20)'"],
    "lseg": ["'[(1,2),(3,4)]'"],
    "box": ["'(1,2),(3,4)'"],
    "path": ["'((1,2),(3,4))'", "'[(1,2),(3,4),(5,6)]'"],
    "polygon": ["'((1,2),(3,4),(5,6))'"],
    "line": ["'{1,-1,0.5}'"],
    "circle": ["'<(1,2),3.25>'"],
    "uuid": [
        "'a97da629-b098-b75c-294d-ffdc3e463904'",
        "'00000000-0000-1000-8000-000000000000'",
        "md5('2')::uuid",
    ],
    "jsonpath": ["'$.a[*] ? (@ > 1)'"],
    "pg_lsn": ["'0/0'", "'FFFFFFFF/FFFFFFFF'"],
    "interval": ["'-1 year -2 mons +3 days -04:05:06.789'", "'178000000 years'", "'-1 mon 1 day -1 sec'"],
    "timetz": ["'24:00:00-15:59:59'", "'00:00:00.000001+15:59'"],
    "varbit": ["B'0'"],
    "xml": ["'<a b=\"1\">x</a>'"],
    "regclass": ["'pg_class'"],
    "hstore": ["''", '\'a=>1, "b c"=>NULL, "q\\"\\\\"=>""\''],
    "citext": ["'MiXed'"],
    "ltree": ["'Top.Science.Astro'", "''"],
    "lquery": ["'Top.*{0,2}.a|b'"],
    "vector(3)": ["'[1,2.5,-1e-7]'"],
}
ARRAYS: dict[str, list[str]] = {
    "int[]": [
        "'{}'",
        "'{1,NULL,-3}'",
        "'{{1,2},{3,NULL}}'",
        "'[0:1]={1,2}'",
        "'{{{1}},{{2}}}'",
        "'[-1:0][2:2]={{1},{2}}'",
    ],
    "bool[]": ["'{t,f,NULL}'"],
    "float4[]": ["'{1.5,1e6,123456,1e-5,0.0001,NaN,-Infinity,-0,3.4028235e38,1e-45}'"],
    "float8[]": ["'{1e15,123456789012345,1e308,-1e-308,0.1,NaN,Infinity,-0,100000}'"],
    "numeric[]": ["'{1.50,NaN,Infinity,-1e-20,1e40}'"],
    "numeric(5,2)[]": ["'{1.50,-123.45}'"],
    "text[]": ["ARRAY['a', '', 'NULL', NULL, E'q\"\\\\{},\\n', 'h\u00e9']"],
    "char(3)[]": ["'{xyz,bcd}'"],
    "date[]": ["'{2024-02-29,NULL,0001-01-01}'"],
    "timestamp[]": ["'{2024-02-29 01:02:03.500001}'"],
    "time[]": ["'{23:00:00.000001}'"],
    "interval[]": ["'{1 day -00:00:01,2 mons}'"],
    "uuid[]": ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"],
    "inet[]": ["'{10.0.0.1/8,::1/64}'"],
    "bit(3)[]": ["'{101}'"],
    "pg_lsn[]": ["'{1/2}'"],
    "box[]": ["'{(1,2),(3,4);(5,6),(7,8)}'", "'{{(1,2),(3,4);NULL}}'"],
    "point[]": ["'{\"(1,2)\",NULL}'"],
    "tsvector[]": ["ARRAY['a:1 b'::tsvector]"],
    "int4range[]": ["'{\"[1,5)\",empty,NULL}'"],
    "int4multirange[]": ["ARRAY['{[1,5),[7,9)}'::int4multirange]"],
    "S.mood[]": ["ARRAY['ok', 'so so', 'null', 'a,b', NULL]::S.mood[]", "'{}'"],
    "S.short[]": ["'{ab,NULL,\"\"}'"],
    "S.pair[]": ["ARRAY[ROW(1, 'a b'), ROW(NULL, 'q\"\\'), NULL]::S.pair[]"],
    "S.pairs": ["ARRAY[ROW(1, 'x')]::S.pair[]"],
    "S.many": ["'{1,2}'", "'{{1},{2}}'"],
    "S.nested[]": ["ARRAY[ROW(ROW(1, 'a,b'), '{}', 'so so', 'd', '[1,2)', 'infinity')]::S.nested[]"],
    "hstore[]": ["ARRAY['a=>1'::hstore]"],
    "citext[]": ["'{Ab}'"],
}


def _has(connection: psycopg.Connection[Any], kind: str) -> bool:
    """Whether a type of an extension can be had."""
    known = {"hstore": "hstore", "citext": "citext", "ltree": "ltree", "lquery": "ltree", "vector": "vector"}
    extension = known.get(kind.split("[")[0].split("(")[0])
    if extension is None:
        return True
    [(count,)] = connection.execute(
        "SELECT count(*) FROM pg_available_extensions WHERE name = %s", (extension,)
    ).fetchall()
    if count:
        connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public")
    return bool(count)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_values_of_types_that_are_made_of_others_are_those_that_select_shows(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path, binary: bool
) -> None:
    log, schema = PgLog(server, connection, "made"), f"made_{int(binary)}"
    connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    connection.execute(SETUP.format(schema))
    try:
        tables = list[tuple[str, str, list[str]]]()
        for kind, values in (TEXTS | ARRAYS).items():
            # Of a type that is not known in binary the receiver sends text: `text` alone has it here.
            if not values or not _has(connection, kind) or (binary and kind in ("regclass", "int2vector")):
                continue
            name = f"t{len(tables)}"
            tables.append((name, kind, values))
            connection.execute(
                f"CREATE TABLE {schema}.{name} (id int PRIMARY KEY, v {kind.replace('S.', schema + '.')})"
            )
            connection.execute(f"ALTER TABLE {schema}.{name} REPLICA IDENTITY FULL")
            for id, value in enumerate([*values, "NULL"]):
                value = value.replace("S.", f"{schema}.")
                connection.execute(f"INSERT INTO {schema}.{name} VALUES ({id}, {value})")
                connection.execute(f"INSERT INTO {schema}.{name} VALUES ({1000 + id}, NULL)")
                connection.execute(f"UPDATE {schema}.{name} SET v = {value} WHERE id = {1000 + id}")
        segment = log.segment(tmp_path / "0.pgoutput", binary=binary)
        wrong = []
        for name, kind, values in tables:
            table = table_of(connection, TableId(schema, name))
            assert table.columns[1].reads_binary or kind in ("regclass", "int2vector"), kind
            streamed = {row["id"]: row["v"] for row in segment.changes(table.schema.to_json())}
            whole = Chunk(table.table, 0, None, None)
            batches = list(copy(connection, table, whole, DEFAULT_TYPES, Received()))
            read = {row["id"]: row["v"] for batch in batches for row in batch.to_pylist()}
            is_array = kind in ARRAYS
            shown = "array_to_json(v::text[])::text" if is_array else "format('%s', v)"
            query = f"SELECT id, CASE num_nulls(v) WHEN 0 THEN {shown} END FROM {schema}.{name}"
            wanted = dict(connection.execute(query).fetchall())
            assert len(wanted) == 2 * len(values) + 2 and sum(v is None for v in wanted.values()) == 2
            if is_array:
                wanted, streamed, read = (
                    {id: _texts(json.loads(v)) if v is not None else None for id, v in one.items()}
                    for one in (
                        wanted,
                        *({id: _plain(v) for id, v in found.items()} for found in (streamed, read)),
                    )
                )
            if not (wanted == streamed == read):
                wrong += [
                    (kind, v, streamed.get(id), read.get(id))
                    for id, v in wanted.items()
                    if not v == streamed.get(id) == read.get(id)
                ]
        assert not wrong, "\n".join(map(repr, wrong))
    finally:
        log.close()


def _plain(document: str | None) -> str | None:
    """A document whose numbers are strings with the same digits."""
    if document is None:
        return None
    return json.dumps(json.loads(document, parse_float=str, parse_int=str))


def _texts(value: Any) -> Any:
    """As `text[]` has the elements."""
    if isinstance(value, list):
        return [_texts(one) for one in value]
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return value if value is None else Decimal(value).normalize().to_eng_string()  # 1e6 is 1000000.0
    except InvalidOperation:
        return value
