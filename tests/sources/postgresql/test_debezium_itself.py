"""Messages of Debezium itself, beside ours, on one log of a real server. They differ only where
docs/formats.md says so: `DIFFERENT` has those columns."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.postgres.log import debezium_command
from tests.core.test_encode_peers import differences, loads, parsed
from tests.sources.postgresql.pg_log import PgLog, connected

from penstock._core import EncodedMessages, LogEncoder
from penstock.testing.servers.postgresql import PostgreSqlServer

pytestmark = pytest.mark.slow

SAME = """
flag boolean | true | false
small smallint | -32768 | 1
n int | 5 | 6
big bigint | -9223372036854775808 | 4
o oid | 4294967295 | 1
f4 real | 0.1 | 1e10
f8 double precision | 0.1 | 1e300
fixed char(10) | 'ab  ' | 'x'
one char | 'a' | 'b'
short varchar(20) | 'käse 🧀' | ''
body text | 'text "q"' || chr(10) | 'x'
ci citext | 'Ab' | 'aB'
doc xml | '<a>1</a>' | '<b/>'
js json | '{"b": [1, 2.50, null],   "a": "ü"}' | '[]'
jb jsonb | '{"b": [1, 2.50, null],   "a": "ü"}' | '"s"'
raw bytea | '\\x00ff' | ''
u uuid | '6ecd8c99-4036-403d-bf84-cf8400f67836' | '00000000-0000-0000-0000-000000000000'
day date | '2024-02-29' | '0001-01-01'
hour time | '10:11:12.123456' | '24:00:00'
hour3 time(3) | '10:11:12.123' | '00:00:00'
at timestamp | '2024-02-29 23:59:59.123456' | '1969-12-31 23:59:59.999999'
at0 timestamp(0) | '2024-02-29 23:59:59' | '1969-12-31 23:59:59'
at3 timestamp(3) | '2024-02-29 23:59:59.123' | '1600-01-01 00:00:00.001'
tz timestamptz | '2024-02-29 23:59:59.123456+02' | '1969-12-31 23:59:59.9+00'
tz3 timestamptz(3) | '2024-02-29 23:59:59.120+02' | '1969-12-31 23:59:00+00'
span interval | '1 year 2 months 3 days 04:05:06.789' | '00:00:01'
price numeric(20,4) | -1234567890.5 | 0
whole numeric(5) | 12345 | 0
free numeric | 123.45 | -1e-10
cash money | 12.34 | -0.01
host inet | '10.0.0.1/8' | '::1'
net cidr | '10.0.0.0/8' | '2001:db8::/32'
mac macaddr | '08:00:2b:01:02:03' | '08:00:2b:01:02:04'
mac8 macaddr8 | '08:00:2b:01:02:03:04:05' | '08:00:2b:01:02:03:04:06'
tree ltree | 'a.b.c' | 'a'
r4 int4range | '[1,5)' | 'empty'
r8 int8range | '[1,5]' | '(,)'
rn numrange | '(1.5,2.5]' | 'empty'
rt tsrange | '[2024-01-01 00:00:00,2024-01-02 00:00:00)' | 'empty'
rz tstzrange | '[2024-01-01 00:00:00+00,2024-01-02 00:00:00+00)' | 'empty'
rd daterange | '[2024-01-01,2024-01-02)' | '(,2024-01-01)'
mood happy | 'so so' | 'fine'
dom positive | 3 | 4
tv tsvector | 'a:1 b:2' | ''
ints int[] | '{1,NULL,3}' | '{}'
texts text[] | '{a,NULL,"b,c"}' | '{}'
flags boolean[] | '{t,f,NULL}' | '{}'
floats real[] | '{0.5,0.1}' | '{}'
prices numeric(10,2)[] | '{1.50,2}' | '{}'
days date[] | '{2024-02-29}' | '{}'
moments timestamp[] | '{"2024-02-29 01:02:03.5"}' | '{}'
zoned timestamptz[] | '{"2024-02-29 01:02:03.5+00"}' | '{}'
tags uuid[] | '{6ecd8c99-4036-403d-bf84-cf8400f67836}' | '{}'
docs jsonb[] | ARRAY['{"a": 1}'::jsonb] | '{}'
raws bytea[] | ARRAY['\\x00ff'::bytea] | '{}'
moods happy[] | '{fine,so so}' | '{}'
hosts inet[] | '{10.0.0.1}' | '{}'
ranges int4range[] | ARRAY['[1,5)'::int4range] | '{}'
"""
"""The types of Debezium's and Flink CDC's lists that both write in one way, with two values each."""

DIFFERENT = """
nm name | 'me' | 'you'
bits bit(12) | b'000000000101' | b'100000000101'
bits2 bit varying(20) | b'10101' | b'1'
hourz timetz | '10:11:12.5+02' | '23:59:59-03:30'
zeros numeric | 123.4500 | 1.0
large numeric(60,10) | 1234567890123456789012345678901234567890.5 | 0
pt point | '(1,2.5)' | '(0,0)'
hs hstore | 'a=>1, b=>NULL' | ''
frees numeric[] | '{1.50,2}' | '{}'
hourzs timetz[] | '{01:02:03.5+02}' | '{}'
stores hstore[] | ARRAY['a=>1'::hstore] | '{}'
"""
ABSENT = """
li line | '{1,2,3}' | '{1,-1,0}'
bo box | '(1,1),(0,0)' | '(2,2),(0,0)'
mr int4multirange | '{[1,2),[5,7)}' | '{}'
pair couple | ROW(1,'x') | ROW(2, NULL)
tq tsquery | 'a & b' | 'a'
place pg_lsn | '0/16B3748' | '0/0'
xi xid8 | '5' | '6'
spans interval[] | '{1 day}' | '{}'
moneys money[] | '{12.34}' | '{}'
points point[] | ARRAY['(1,2)'::point] | '{}'
"""
"""Debezium leaves out columns of these types."""

FILLED = {
    "js": ("{}", ""), "jb": ("{}", ""), "u": ("00000000-0000-0000-0000-000000000000", ""),
    "tz": ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00Z"),
    "tz3": ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00Z"),
}  # fmt: skip
"""What stands for a value that the log lacks, in columns that are NOT NULL: ours and Debezium's."""
OF_SOURCE = {"value.source.version", "value.source.sequence"}
OF_MESSAGE = {"value.ts_ms", "value.ts_us", "value.ts_ns"}

Message = tuple[Any, Any]


def lines(text: str) -> list[list[str]]:
    return [line.split(" | ") for line in text.strip().splitlines()]


def name_of(declared: str) -> str:
    return declared.split()[0]


def write(sql: psycopg.Connection[Any]) -> None:
    """A table with all columns, one with the key alone as identity and NOT NULL, and one with FULL."""
    columns = [*lines(SAME), *lines(DIFFERENT), *lines(ABSENT)]
    for extension in ("citext", "hstore", "ltree"):
        sql.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}".encode())
    sql.execute("CREATE SCHEMA itself; SET search_path = itself, public")
    sql.execute("CREATE TYPE couple AS (a int, b text)")
    sql.execute("CREATE TABLE tail (id int PRIMARY KEY)")
    for table, suffix in (("by_key", ""), ("required", " NOT NULL"), ("whole", "")):
        declared = ", ".join(f"{one}{suffix}" for one, *_ in columns)
        sql.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {declared})".encode())
    sql.execute("ALTER TABLE whole REPLICA IDENTITY FULL")


def change(server: PostgreSqlServer, sql: psycopg.Connection[Any]) -> None:
    columns = [*lines(SAME), *lines(DIFFERENT), *lines(ABSENT)]
    first, second = (", ".join(one[place] for one in columns) for place in (1, 2))
    assigned = ", ".join(f"{name_of(declared)} = {value}" for declared, _, value in columns)
    for table in ("by_key", "required", "whole"):
        statements = [
            f"INSERT INTO {table} VALUES (1, {first}), (2, {second})",
            f"UPDATE {table} SET {assigned} WHERE id = 1",
            f"UPDATE {table} SET id = 20 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 1",
        ]
        if table != "required":
            statements.insert(1, f"INSERT INTO {table} (id) VALUES (3)")
        for statement in statements:
            sql.execute(statement.encode())
    # A transaction that begins first and ends last.
    with connected(server) as other, other.transaction():
        other.execute("INSERT INTO itself.by_key (id) VALUES (31)")
        with sql.transaction():
            sql.execute("INSERT INTO by_key (id) VALUES (32)")
            sql.execute("INSERT INTO by_key (id) VALUES (33)")
        other.execute("INSERT INTO itself.by_key (id) VALUES (34)")


def peers_messages(server: PostgreSqlServer, slot: str) -> list[Message]:
    command = [
        *debezium_command("messages"), server.host, str(server.port), server.user, server.password,
        server.database, "itself.*", slot, "all", "tail",
        "time.precision.mode=adaptive_time_microseconds", "interval.handling.mode=string",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return [parsed(line) for line in done.stdout.splitlines()]


def our_messages(path: Path, size: int) -> list[Message]:
    tables = [("itself", "by_key"), ("itself", "required"), ("itself", "whole")]
    options = json.dumps({"topic_prefix": "bench"})
    encoder = LogEncoder([(str(path), 0, 0, size, [])], "debezium", options=options, tables=tables)
    found: list[str] = []
    while (step := encoder.read(1 << 20)) is not None:
        if isinstance(step, EncodedMessages):
            found += step.lines(keys=True).decode().splitlines()
    return [parsed(line) for line in found]


def in_one_form(column: str, value: Any) -> Any:
    """Debezium writes all parts of an interval, also those that are zero."""
    if column != "span" or value is None:
        return value
    parts = re.findall(r"(-?[\d.]+)([YMDHS])", value)
    return [(float(number), unit) for number, unit in parts if float(number)]


@pytest.mark.timeout(600)
def test_debezium_writes_the_same_messages(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    write(connection)
    connection.execute("SELECT pg_create_logical_replication_slot('debezium_itself', 'pgoutput')")
    log = PgLog(server, connection, "beside_debezium")
    try:
        change(server, connection)
        segment = log.segment(tmp_path / "0.pgoutput")
        connection.execute("INSERT INTO tail VALUES (1)")
        peers = peers_messages(server, "debezium_itself")
    finally:
        log.close()
    ours = our_messages(segment.path, segment.size)
    assert len(ours) == len(peers) > 20
    unlike, absent = ({name_of(one) for one, *_ in lines(text)} for text in (DIFFERENT, ABSENT))
    found, differing = set[str](), set[str]()
    for (our_key, our), (peers_key, peer) in zip(ours, peers, strict=True):
        assert our_key == peers_key and (our is None) == (peer is None)
        if our is None:
            continue
        is_filled = our["before"] is not None and our["source"]["table"] == "required"
        for image in ("before", "after"):
            mine, theirs = our.pop(image), peer.pop(image)
            assert (mine is None) == (theirs is None), image
            if mine is None:
                continue
            assert list(theirs) == [name for name in mine if name not in absent]
            for name, value in theirs.items():
                if type(mine[name]) is type(value) and in_one_form(name, mine[name]) == in_one_form(
                    name, value
                ):
                    continue
                if is_filled and image == "before" and (mine[name], value) == FILLED.get(name):
                    continue
                differing.add(name)
        found |= set(differences({"value": our}, {"value": peer}))
    assert differing == unlike
    assert found <= OF_SOURCE | OF_MESSAGE
    places = [loads(our["source"]["sequence"]) for _, our in ours if our is not None]
    assert places == sorted(places, key=lambda pair: [int(one) for one in pair]), (
        "transactions in their order"
    )
    assert {our["source"]["db"] for _, our in ours if our is not None} == {server.database}
