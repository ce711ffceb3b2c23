"""Scripts are cut into the statements that the mysql client would send."""

from __future__ import annotations

import io
import time

import pytest

from penstock.sources.mysql.ddl import script
from penstock.sources.mysql.ddl.script import read_script


def cut(text: str) -> list[str]:
    return [statement.sql for statement in read_script(io.StringIO(text))]


CASES = {
    "quotes": (
        """INSERT INTO t VALUES ('a;''b', "c;\\";", `d;`); SELECT 1""",
        ["""INSERT INTO t VALUES ('a;''b', "c;\\";", `d;`)""", "SELECT 1"],
    ),
    "comments": (
        "-- a;\n# b;\n/* c; */ SELECT 1 /* ; */ + 1; -- d;\nSELECT 2 -- ;\n;--5;\n",
        ["SELECT 1 /* ; */ + 1", "SELECT 2 -- ;"],
    ),
    "version comments": ("/*!40101 SET a = 1 */;\n/*M! x */;", ["/*!40101 SET a = 1 */", "/*M! x */"]),
    "delimiters": (
        "DELIMITER $$\nCREATE TRIGGER x BEGIN a; b; END$$\ndelimiter ;\nSELECT 1;",
        ["CREATE TRIGGER x BEGIN a; b; END", "SELECT 1"],
    ),
    "long delimiters": ("delimiter //\nA; B //\nC//\ndelimiter ;\nD;", ["A; B", "C", "D"]),
    "client commands": ("\\! ls\nsource x/y.sql\nSELECT 1\\G\nUSE a;", ["SELECT 1", "USE a"]),
    "a body without a delimiter": (
        """CREATE PROCEDURE p() BEGIN IF (a = 1) THEN SELECT IF(a, b, c); END IF; CASE WHEN 1 THEN x; END
        CASE; WHILE 1 DO y; END WHILE; BEGIN z; END; END; SELECT 1;""",
        None,
    ),
    "bodies of one statement": (
        "CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET NEW.a = CASE WHEN 1 THEN 2 END; SELECT 1;",
        None,
    ),
    "a body that is an IF": (
        "CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW IF NEW.a = 1 THEN SET b = 1; END IF; SELECT 1;",
        None,
    ),
    "an event": ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO BEGIN a; b; END; SELECT 1;", None),
    "a body without any delimiter behind it": (
        "CREATE PROCEDURE p() aaa:BEGIN l:LOOP IF a THEN b; END IF; END LOOP l; END\n#end\nSELECT 1;",
        ["CREATE PROCEDURE p() aaa:BEGIN l:LOOP IF a THEN b; END IF; END LOOP l; END", "SELECT 1"],
    ),
    "a body with a label behind it": (
        "CREATE PROCEDURE p() aaa:BEGIN b; END aaa ; SELECT 1;",
        ["CREATE PROCEDURE p() aaa:BEGIN b; END", "SELECT 1"],
    ),
    "tables named like keywords": (
        "CREATE TABLE begin_t (a INT COMMENT 'procedure'); SELECT 1;",
        ["CREATE TABLE begin_t (a INT COMMENT 'procedure')", "SELECT 1"],
    ),
    "nothing": (" ;; -- x", []),
    "a quote that is not closed": ("SELECT 'a; b", ["SELECT 'a; b"]),
}


@pytest.mark.parametrize("block", [1, 7, script.BLOCK_CHARACTERS])
@pytest.mark.parametrize("name", CASES)
def test_a_script_is_cut_at_its_delimiters(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "BLOCK_CHARACTERS", block)
    text, expected = CASES[name]
    if expected is None:
        expected = [text.removesuffix("; SELECT 1;"), "SELECT 1"]
    assert cut(text) == expected


def test_statements_know_their_lines() -> None:
    text = "-- x\n\nSELECT\n1;\nSELECT 2; SELECT 3;\n/* \n */ SELECT 4"
    assert [statement.line for statement in read_script(io.StringIO(text))] == [3, 5, 5, 7]


def test_a_large_dump_is_read_in_linear_time() -> None:
    row = "(1,'some text; with ''quotes'' and \\' more',NULL,0x00),"
    text = ("INSERT INTO t VALUES " + row * 20_000 + "(2);\n") * 10
    began = time.process_time()
    assert len(cut(text)) == 10
    assert time.process_time() - began < 10


@pytest.mark.parametrize("text", ["'" * 99_999, "/*" * 100_000, "`" * 99_999, "-" * 200_000, "(" * 200_000])
def test_hostile_scripts_end(text: str) -> None:
    began = time.process_time()
    cut("SELECT " + text)
    assert time.process_time() - began < 10
