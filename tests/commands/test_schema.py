"""`penstock schema`: files in, tables out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.commands.schema import schema
from penstock.errors import ConfigError

DUMP = """
-- MySQL dump 10.13
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET latin1 */;
USE `shop`;
DROP TABLE IF EXISTS `orders`;
CREATE TABLE `orders` (
  `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT COMMENT 'the key',
  `state` enum('new','it''s') DEFAULT 'new',
  `total` decimal(10,2) NOT NULL DEFAULT '0.00',
  `note` varchar(20) COLLATE utf8mb4_bin DEFAULT NULL,
  `twice` int(11) GENERATED ALWAYS AS ((`id` * 2)) VIRTUAL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`note`(10)),
  CONSTRAINT `f` FOREIGN KEY (`total`) REFERENCES `sums` (`total`) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='c';
LOCK TABLES `orders` WRITE;
INSERT INTO `orders` VALUES (1,'new',0,'a;b',2);
UNLOCK TABLES;
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER t BEFORE INSERT ON orders
FOR EACH ROW BEGIN SET @a = 1; END */;;
DELIMITER ;
CREATE VIEW v AS SELECT 1;
ALTER TABLE orders ADD seen TIMESTAMP(3) NULL;
"""


def run(capsys: pytest.CaptureFixture[str], path: Path, text: str, version: str = "8.0") -> tuple[int, Any]:
    path.write_text(text)
    code = schema([path], version=version, database="test", as_json=True)
    return code, json.loads(capsys.readouterr().out)


def test_a_dump_becomes_its_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = run(capsys, tmp_path / "a.sql", DUMP)
    assert (code, found["problems"]) == (0, [])
    [table] = found["tables"]
    assert (table["database"], table["table"], table["charset"]) == ("shop", "orders", "utf8mb4")
    columns = {column["name"]: column for column in table["columns"]}
    assert columns["id"]["column_type"] == "bigint unsigned" and columns["id"]["key"] == "PRI"
    assert columns["id"]["auto_increment"] and columns["id"]["comment"] == "the key"
    assert columns["state"]["labels"] == ["new", "it's"]
    assert columns["note"]["collation"] == "utf8mb4_bin"
    assert columns["twice"]["generated"] == "virtual"
    assert columns["seen"]["fractional_digits"] == 3 and columns["seen"]["nullable"]
    assert table["primary_key"] == ["id"]
    assert table["unique_keys"] == [
        {"name": "u", "kind": "unique", "parts": [{"column": "note", "length": 10}]}
    ]
    assert table["foreign_keys"][0]["on_delete"] == "CASCADE"
    assert table["options"] == {"engine": "InnoDB", "comment": "c"}


def test_the_version_decides_how_types_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "CREATE TABLE t (a INT, b TINYINT(1), c VARCHAR(3), d JSON)"
    shown = {
        version: [
            (column["column_type"], column["collation"])
            for column in run(capsys, tmp_path / "a.sql", text, version)[1]["tables"][0]["columns"]
        ]
        for version in ("5.7.22", "9.7", "mariadb-10.11")
    }
    assert shown["5.7.22"] == [
        ("int(11)", None), ("tinyint(1)", None), ("varchar(3)", "latin1_swedish_ci"), ("json", None)
    ]  # fmt: skip
    assert shown["9.7"][:3] == [("int", None), ("tinyint(1)", None), ("varchar(3)", "utf8mb4_0900_ai_ci")]
    assert shown["mariadb-10.11"][3] == ("longtext", "utf8mb4_bin")


def test_what_is_not_understood_is_named_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = run(capsys, tmp_path / "a.sql", "MAKE COFFEE;\nALTER TABLE nothing ADD a INT;\nSELECT 'x';")
    assert code == 0
    assert [(one["line"], one["statement"], one["understood"]) for one in found["problems"]] == [
        (1, "MAKE COFFEE", False),
        (2, "ALTER TABLE NOTHING ADD", True),
    ]
    code, found = run(capsys, tmp_path / "b.sql", "CREATE TABLE a (x INT);\n\nCREATE TABLE b (x WHATEVER);")
    assert code == 1 and len(found["tables"]) == 1
    assert [one["line"] for one in found["problems"] if one["touches_table"]] == [3]


def test_statements_that_only_read_are_no_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "CREATE TABLE t (a INT); TABLE t; WITH c AS (SELECT 1) SELECT * FROM c; VALUES ROW(1); (SELECT 2);"
    code, found = run(capsys, tmp_path / "a.sql", text)
    assert (code, found["problems"]) == (0, [])


@pytest.mark.parametrize("words", ["CHAR SET", "CHARACTER SET =", "DEFAULT CHARSET"])
def test_the_character_set_of_the_database_in_use_is_changed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str
) -> None:
    text = f"ALTER DATABASE {words} latin1; CREATE TABLE t (a CHAR(3));"
    code, found = run(capsys, tmp_path / "a.sql", text)
    assert (code, found["problems"], found["tables"][0]["charset"]) == (0, [], "latin1")


def test_brackets_around_a_default_are_not_part_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, found = run(capsys, tmp_path / "a.sql", "CREATE TABLE t (a DATETIME DEFAULT (((now()))))")
    assert found["tables"][0]["columns"][0]["default"] == "now()"


def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("")
    with pytest.raises(ConfigError, match="not a server version"):
        schema([tmp_path / "a.sql"], version="newest", database="test", as_json=True)
    with pytest.raises(ConfigError, match="could not be read"):
        schema([tmp_path / "none.sql"], version="8.0", database="test", as_json=True)


def test_a_missing_table_that_may_be_missing_is_no_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(
        "ALTER TABLE IF EXISTS missing ADD COLUMN a INT; ALTER SEQUENCE IF EXISTS gone AS SMALLINT;"
        "CREATE TABLE t (a INT); ALTER TABLE IF EXISTS t ADD COLUMN b INT; ALTER TABLE missing ADD a INT;"
    )
    schema([file], version="mariadb-11.8", database="d", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in found["tables"][0]["columns"]] == ["a", "b"]
    [problem] = found["problems"]
    assert problem["statement"].startswith("ALTER TABLE MISSING ADD")
