"""Statements that are easily taken for something else: by the tables they name, or by their text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sources.mysql.test_statements import MADE, SERVER, STRICT, Pipeline, T, U, evolved, names

from penstock.model.plan import TruncateTarget
from penstock.model.schema import TableId, TableSchema
from penstock.sources.mysql.ddl.server import SQL_MODE_BITS


@pytest.fixture
def shop() -> Pipeline:
    pipeline = Pipeline()
    pipeline.run(MADE)
    return pipeline


# tables that a statement names besides its own -------------------------------------------------------------


@pytest.mark.parametrize("partitioned", ["other.hist", "hist"])
def test_a_table_that_is_exchanged_with_a_partition_of_one_that_is_not_captured_is_read_again(
    partitioned: str,
) -> None:
    shop = Pipeline("shop.t")
    shop.run(MADE)
    [effect] = shop.run(f"ALTER TABLE {partitioned} EXCHANGE PARTITION p0 WITH TABLE shop.t")
    assert effect.table == T and effect.rereads


@pytest.mark.parametrize("before", ["other.t", "t_next"])
def test_a_table_that_takes_a_captured_name_by_alter_table_is_read(before: str) -> None:
    there = Pipeline("shop.t")
    there.run(MADE)
    definition = there.live[T]
    shop = Pipeline("shop.t", catalog=lambda table: definition)
    shop.run(MADE)
    shop.run("DROP TABLE t")
    [effect] = shop.run(f"ALTER TABLE {before} RENAME TO shop.t")
    assert (effect.table, effect.fills) == (T, True) and effect.created is not None


def test_a_list_of_partitions_that_is_reorganized_may_lose_rows_and_ranges_do_not(shop: Pipeline) -> None:
    partitions = "ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION p0 VALUES {})"
    [effect] = shop.run(partitions.format("IN (1)"))
    assert effect.table == T and effect.rereads
    assert shop.run(partitions.format("LESS THAN (10)")) == []


def test_a_table_has_the_character_set_that_its_database_had_then() -> None:
    shop = Pipeline("shop.*")
    shop.run("CREATE DATABASE shop CHARACTER SET utf8mb4")
    shop.run("CREATE TABLE n (a VARCHAR(3) PRIMARY KEY)")
    assert shop.live[TableId("shop", "n")].columns[0].charset == "utf8mb4", "not what the catalog says now"


def test_a_column_of_a_key_may_be_called_like_a_word_of_the_grammar(shop: Pipeline) -> None:
    for word in ("period", "without", "desc_", "visible", "using_", "comment"):
        shop.run(f"CREATE TABLE k (account INT, {word} INT, v INT, PRIMARY KEY (account, {word}))")
        assert shop.live[TableId("shop", "k")].key == ("account", word)
        shop.run("DROP TABLE k")
    step = evolved(
        shop.run("ALTER TABLE t ADD COLUMN period INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, period)")
    )
    assert step.schema.key == ("id", "period")


def test_a_key_over_a_period_of_mariadb_is_that_of_the_catalog() -> None:
    """Its rows have one `id` for several times: the columns of the period are part of the key."""
    asked = TableSchema(TableId("shop", "k"), (), ("id", "e", "s"))
    shop = Pipeline(catalog=lambda table: asked, server=replace(SERVER, version=(10, 11, 5), mariadb=True))
    columns = "id INT, s DATE, e DATE, PERIOD FOR p (s, e)"
    shop.run(f"CREATE TABLE k ({columns}, PRIMARY KEY (id, p WITHOUT OVERLAPS))")
    assert shop.live[TableId("shop", "k")].key == ("id", "e", "s")
    shop.run(f"CREATE TABLE l ({columns}, v INT NOT NULL UNIQUE)")
    [effect] = shop.run("ALTER TABLE l ADD PRIMARY KEY (id, p WITHOUT OVERLAPS)")
    assert effect.rereads


# text that is not what it seems -----------------------------------------------------------------------------


def test_only_the_white_space_of_the_server_separates_words(shop: Pipeline) -> None:
    assert shop.run("TRUNCATE \u3000t") == [], "the name of another table begins with U+3000"
    [effect] = shop.run("TRUNCATE\tt")
    assert isinstance(effect.steps[0], TruncateTarget)


def test_a_comment_for_mariadb_is_an_ordinary_one_to_mysql(shop: Pipeline) -> None:
    [effect] = shop.run("/*M! /* */ TRUNCATE t")
    assert isinstance(effect.steps[0], TruncateTarget)


def test_a_name_in_double_quotes_has_no_escapes(shop: Pipeline) -> None:
    sql = 'ALTER TABLE "t" ADD "x\\" INT, DROP COLUMN b, ADD "y" INT -- "'
    step = evolved(shop.run(sql, SQL_MODE_BITS["ANSI_QUOTES"]))
    assert names(step.schema) == ["id", "a", "e", "p", "x\\", "y"]


@pytest.mark.parametrize("digits", ["0" * 5000 + "10", "9" * 5000])
def test_numbers_of_any_length_are_read_or_not_understood(shop: Pipeline, digits: str) -> None:
    assert shop.run(f"CREATE TABLE other.z (v VARCHAR({digits}))") == []
    effects = shop.run(f"ALTER TABLE t MODIFY b VARCHAR({digits})")
    assert [bool(one.rereads) for one in effects] == ([] if digits.endswith("10") else [True])


def test_a_char_that_is_read_with_its_spaces_is_another_value_in_a_varchar() -> None:
    shop = Pipeline("shop.t")
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, c CHAR(5)) CHARACTER SET utf8mb4")
    mode = STRICT | SQL_MODE_BITS["PAD_CHAR_TO_FULL_LENGTH"]
    [effect] = shop.run("ALTER TABLE t MODIFY c VARCHAR(5)", mode)
    assert effect.rereads


@pytest.mark.parametrize(
    ("charset", "expected"), [("utf8mb4", "utf8mb4"), ("latin1", "latin1"), (None, "latin1")]
)
def test_a_new_database_has_the_character_set_of_the_session_that_creates_it(
    charset: str | None, expected: str
) -> None:
    """Before MySQL 8.0, and in MariaDB, the log does not say which one a column has."""
    pipeline = Pipeline("new.*", server=replace(SERVER, version=(5, 7, 22), charset="latin1"))
    pipeline.run("CREATE DATABASE new", server_charset=charset)
    pipeline.run("CREATE TABLE new.t (v TEXT)", server_charset="gbk")
    [column] = pipeline.live[TableId("new", "t")].columns
    assert column.charset == expected


def test_a_table_that_is_not_followed_any_more_gives_no_old_definition_to_the_name_that_it_takes() -> None:
    now = TableSchema(U, (), ("id",))
    shop = Pipeline(catalog=lambda table: now if table == U else None)
    shop.run(MADE)
    shop.run("ALTER TABLE t ADD z INT")
    del shop.live[T]  # it is parked
    [begun] = shop.run("RENAME TABLE t TO u")
    assert begun.created == now and set(shop.asked) == {U}
