"""What messages and the history show of a statement: never a value, in whichever way it is written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.statement_head import CHARACTERS_MAX, statement_head

HEADS = {
    "ALTER TABLE t  /* who */ ADD x INT DEFAULT 'it''s' COMMENT \"also\", -- why\n ALGORITHM=COPY": (
        "ALTER TABLE t ADD x INT DEFAULT '…' COMMENT '…', ALGORITHM=COPY"
    ),
    "UPDATE `my ``t` SET a = 5, b = -17.5e-3, c = .5, d = 1e+9": (
        "UPDATE `my ``t` SET a = …, b = -…, c = …, d = …"
    ),
    "INSERT INTO t VALUES (0xCAFE, 0b101, x'CAFE', X'CAFE', b'101', B'1', N'secret', n'secret')": (
        "INSERT INTO t VALUES (…, …, '…', '…', '…', '…', '…', '…')"
    ),
    "SELECT _utf8mb4'secret', _latin1 \"secret\", _binary 0xCAFE, DATE '2020-01-01'": (
        "SELECT '…', '…', _binary …, DATE '…'"
    ),
    "UPDATE t SET a = 'x\\' , secret, 'y'": "UPDATE t SET a = …",
    'UPDATE t SET a = "x\\" , secret, "y"': "UPDATE t SET a = …",
    "UPDATE t SET a = 'never closed": "UPDATE t SET a = …",
    "CREATE FUNCTION f() LANGUAGE JAVASCRIPT AS $$ secret $$": "CREATE FUNCTION f() LANGUAGE JAVASCRIPT AS …",
    "CREATE FUNCTION f() AS $tag$ secret $tag$": "CREATE FUNCTION f() AS …",
    "/*!50000 UPDATE t SET a = 'secret' */": "UPDATE t SET a = '…'",
    "/*M!100100 UPDATE t SET a = 4711 */": "UPDATE t SET a = …",
    "UPDATE t # secret\n SET a = 1 -- secret\n WHERE b /* secret */ = 2": "UPDATE t SET a = … WHERE b = …",
    "UPDATE t SET a = 1 /* secret": "UPDATE t SET a = … …",
    "UPDATE t SET a = 5--5": "UPDATE t SET a = …--…",
    "CREATE USER 'u'@'%' IDENTIFIED BY 'secret'": "CREATE USER '…'@'…' IDENTIFIED BY '…'",
    "UPDATE a$b.c_1 SET é = 1": "UPDATE a$b.c_1 SET é = …",
    "UPDATE `a\x1b[31m\u202eb` SET\x07x = 1": "UPDATE `a [31m b` SET x = …",
    "": "",
}


@pytest.mark.parametrize("sql", HEADS)
def test_the_head_of_a_statement_holds_keywords_and_names_alone(sql: str) -> None:
    assert statement_head(sql) == HEADS[sql]


def test_a_long_statement_is_cut_without_showing_part_of_a_value() -> None:
    for length in (*range(1990, 2010), 100_000):
        found = statement_head("UPDATE t SET a = " + "'" + "s" * (length - 18) + "'")
        assert "s" not in found.removeprefix("UPDATE t SET a = ") and len(found) <= CHARACTERS_MAX
    assert len(statement_head("UPDATE " + "t, " * 1000)) == CHARACTERS_MAX


_VALUES = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.binary(min_size=1).map(lambda value: "0x" + value.hex()),
    st.binary(min_size=1).map(lambda value: f"X'{value.hex()}'"),
    st.text("sec '\\\"`$#-/*\n%", max_size=9).map(
        lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    ),
    st.text("sec '\\\"`$#-/*\n%", max_size=9).map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.text("sec '\"`$", max_size=9).map(lambda text: '_utf8mb4"' + text.replace('"', '""') + '"'),
)


@settings(max_examples=400)
@given(st.lists(_VALUES, max_size=6))
def test_no_value_passes_however_it_is_written(values: list[str]) -> None:
    """Each string is written for one of the two sql_modes that decide where it ends; which, nobody tells."""
    found = statement_head("INSERT INTO t VALUES (" + ", ".join(values) + ")")
    rest = found.removeprefix("INSERT INTO t VALUES (")
    assert not any(character.isalnum() for character in rest), (found, values)


def test_time_is_linear_in_what_is_looked_at() -> None:
    began = time.perf_counter()
    for part in ("'", "''", "/*", "_x", "`", "$", "1e", "-- ", "\\", '"\\'):
        statement_head(part * 500_000)
    assert time.perf_counter() - began < 2
