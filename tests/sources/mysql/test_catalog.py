from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.config import TablesConfig
from penstock.model.schema import Column, TableId
from penstock.sources.mysql.catalog import parse_labels, parse_version, read_table, read_tables
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers
from penstock.testing.servers import Database


@pytest.fixture
def connection(mysql: Database) -> Iterator[Any]:
    connection = mysql.connect()
    yield connection
    connection.close()


def column_of(mysql: Database, connection: Any, definition: str) -> Column:
    mysql.execute("DROP TABLE IF EXISTS one", f"CREATE TABLE one (c {definition}) CHARACTER SET latin1")
    schema = read_table(connection, TableId(mysql.name, "one"))
    assert schema is not None
    return schema.columns[0]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (
            "INT UNSIGNED NOT NULL DEFAULT 5",
            {"type": "int", "unsigned": True, "nullable": False, "default": "5"},
        ),
        ("BOOL", {"type": "tinyint", "unsigned": False}),
        ("INT(5) ZEROFILL", {"type": "int", "unsigned": True}),
        ("DECIMAL(20,7) UNSIGNED", {"type": "decimal", "precision": 20, "scale": 7, "unsigned": True}),
        ("REAL", {"type": "double", "precision": None}),
        ("BIT(9) DEFAULT b'101'", {"type": "bit", "length": 9, "default": "b'101'"}),
        ("YEAR", {"type": "year"}),
        ("TIME(2)", {"type": "time", "fsp": 2}),
        ("DATETIME", {"type": "datetime", "fsp": 0}),
        ("DATE", {"type": "date", "fsp": None}),
        ("CHAR(3)", {"type": "char", "length": 3, "charset": "latin1", "collation": "latin1_swedish_ci"}),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT ''", {"length": 9, "charset": "utf8mb4", "default": ""}),
        ("VARCHAR(9) DEFAULT NULL", {"default": None, "default_is_expression": False}),
        ("VARCHAR(9) DEFAULT 'it''s'", {"default": "it's"}),
        ("CHAR(3) CHARACTER SET binary", {"type": "binary", "length": 3, "charset": None}),
        ("VARBINARY(7)", {"type": "varbinary", "length": 7, "charset": None}),
        ("TEXT", {"type": "text", "length": None, "charset": "latin1"}),
        ("JSON", {"type": "json", "charset": None}),
        ("GEOMETRYCOLLECTION", {"type": "geometry"}),
        ("POINT", {"type": "geometry"}),
        ("TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3)", {"fsp": 3, "default_is_expression": True}),
        ("ENUM('a') CHARACTER SET binary", {"type": "enum", "labels": ("a",), "charset": "binary"}),
        ("SET('unsigned','b')", {"type": "set", "labels": ("unsigned", "b"), "unsigned": False}),
    ],
)
def test_a_column_reads_as_it_was_declared(
    mysql: Database, connection: Any, definition: str, expected: dict[str, Any]
) -> None:
    column = column_of(mysql, connection, definition)
    assert {name: getattr(column, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("charset", "labels"),
    [
        ("latin1", ["it's", "a,b", "(q)", "'", '"', "c\\d", "", "x\ny", "z\0z", "tab\t", "é", "enum('x')"]),
        ("utf8mb4", ["ü", "日本", "a'b,'c", "\\'", "\\\\n"]),
        ("sjis", ["ア", "ソ", "表"]),
        ("gbk", ["縗", "中文"]),
    ],
)
@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_labels_are_those_the_server_gives_to_a_row(
    mysql: Database, connection: Any, kind: str, charset: str, labels: list[str]
) -> None:
    if kind == "SET":
        labels = [label for label in labels if "," not in label]
    listed = ",".join(connection.escape(label) for label in labels)
    column = column_of(mysql, connection, f"{kind}({listed}) CHARACTER SET {charset}")
    for number in range(len(labels)):
        mysql.execute(f"INSERT INTO one VALUES ({number + 1 if kind == 'ENUM' else 1 << number})")
    assert [row[0] for row in mysql.query("SELECT c FROM one ORDER BY c + 0")] == list(column.labels or ())
    assert list(column.labels or ()) == labels


def test_generated_columns_are_marked(mysql: Database, connection: Any) -> None:
    mysql.execute("CREATE TABLE g (a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)")
    schema = read_table(connection, TableId(mysql.name, "g"))
    assert schema is not None
    assert [column.generated for column in schema.columns] == [None, "virtual", "stored"]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("id INT, x INT NOT NULL, PRIMARY KEY (x, id)", ("x", "id")),
        ("id INT NOT NULL, x INT NOT NULL UNIQUE, PRIMARY KEY (id)", ("id",)),
        ("id INT NOT NULL, x INT NOT NULL, UNIQUE zz (x), UNIQUE aa (id)", ("x",)),
        ("id INT, x INT NOT NULL, UNIQUE aa (id), UNIQUE bb (x)", ("x",)),
        ("id INT NOT NULL, x INT, UNIQUE (id, x)", ()),
        ("id VARCHAR(50) NOT NULL, UNIQUE (id(5))", ()),
        ("id INT NOT NULL, UNIQUE ((id + 1))", ()),
        ("id INT NOT NULL, KEY (id)", ()),
        ("id VARCHAR(50), PRIMARY KEY (id(5))", ("id",)),
    ],
)
def test_the_key_is_the_primary_key_else_the_first_unique_index_without_nulls_or_parts(
    mysql: Database, connection: Any, definition: str, key: tuple[str, ...]
) -> None:
    if "((" in definition and mysql.query("SELECT VERSION() < '8.0.13'")[0][0]:
        pytest.skip("no functional indexes")
    mysql.execute(f"CREATE TABLE k ({definition})")
    schema = read_table(connection, TableId(mysql.name, "k"))
    assert schema is not None
    assert schema.key == key


def test_views_temporary_and_system_tables_are_left_out(mysql: Database, connection: Any) -> None:
    mysql.execute("CREATE TABLE real_one (id INT)", "CREATE VIEW v AS SELECT * FROM real_one")
    assert list(read_tables(connection, TablesConfig(include=[f"{mysql.name}.*", "mysql.*", "sys.*"]))) == [
        TableId(mysql.name, "real_one")
    ]
    assert read_table(connection, TableId(mysql.name, "v")) is None
    assert read_table(connection, TableId("mysql", "user")) is None
    assert read_table(connection, TableId(mysql.name, "missing")) is None


@pytest.mark.slow
def test_a_sequence_of_mariadb_is_no_table() -> None:
    with servers.FLAVORS["mariadb1011"]() as server:
        server.execute("CREATE DATABASE d", "CREATE SEQUENCE d.s", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        with server.connect() as connection:
            assert list(read_tables(connection, TablesConfig(include=["d.*"]))) == [TableId("d", "t")]
            assert read_table(connection, TableId("d", "s")) is None
            assert read_table(connection, TableId("d", "t")) is not None


def test_names_with_odd_characters_are_found(mysql: Database, connection: Any) -> None:
    mysql.execute("CREATE TABLE `a``b.c %s'\"` (`x y` INT NOT NULL UNIQUE, `%` INT NOT NULL UNIQUE)")
    [(table, schema)] = read_tables(connection, TablesConfig(include=[f"{mysql.name}.a*"])).items()
    assert table == TableId(mysql.name, "a`b.c %s'\"")
    assert [column.name for column in schema.columns] == ["x y", "%"]
    assert schema.key == ("x y",)
    assert read_table(connection, table) == schema


def test_reading_all_tables_and_reading_one_agree(mysql: Database, connection: Any) -> None:
    for number in range(30):
        mysql.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, a VARCHAR({number + 1}))")
    found = read_tables(connection, TablesConfig(include=[f"{mysql.name}.t*"], exclude=[f"{mysql.name}.t1?"]))
    assert len(found) == 20
    assert all(read_table(connection, table) == schema for table, schema in found.items())


def test_many_tables_take_few_queries(mysql: Database, connection: Any) -> None:
    for number in range(40):
        mysql.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY)")
    before = asked(connection)
    assert len(read_tables(connection, TablesConfig(include=[f"{mysql.name}.*"]))) == 40
    assert asked(connection) - before < 10


def asked(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
        return int(cursor.fetchone()[1])


@pytest.mark.parametrize(
    ("pattern", "name", "fold", "matches"),
    [
        ("shop.orders", "shop.orders", False, True),
        ("shop.orders", "shop.orders2", False, False),
        ("shop.order?", "shop.orders", False, True),
        ("shop.*", "shop2.orders", False, False),
        ("*.orders", "shop.orders", False, True),
        ("shop_?.o[rs]*", "shop_1.o[rs]x", False, True),
        ("shop_?.o[rs]*", "shop_1.orders", False, False),
        ("Shop.Orders", "shop.orders", False, False),
        ("Shop.Orders", "shop.orders", True, True),
        ("shop.a.b", "shop.a.b", False, True),
        ("shop.*", "shop.with\nline end", False, True),
    ],
)
def test_patterns_match_whole_names(pattern: str, name: str, fold: bool, matches: bool) -> None:
    assert (TableId.parse(name) in TableFilter(TablesConfig(include=[pattern]), fold_case=fold)) is matches


def test_an_excluded_table_is_not_captured() -> None:
    tables = TableFilter(TablesConfig(include=["shop.*"], exclude=["shop.tmp_*"]))
    assert TableId("shop", "orders") in tables
    assert TableId("shop", "tmp_x") not in tables
    assert tables.unmatched([TableId("other", "x")]) == ["shop.*"]


def test_label_texts_are_unescaped() -> None:
    assert parse_labels(r"enum('it''s','a,b','c\\d','','x\ny','\0')") == (
        "it's",
        "a,b",
        "c\\d",
        "",
        "x\ny",
        "\0",
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.0.36-28-log", (8, 0, 36)),
        ("9.7.4", (9, 7, 4)),
        ("5.5.5-10.11.5-MariaDB-log", (10, 11, 5)),
        ("10.11.5-MariaDB", (10, 11, 5)),
        ("8.4", (8, 4, 0)),
    ],
)
def test_versions_are_numbers(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version
