"""What statements come to for captured tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.config import TablesConfig
from penstock.model.offset import Offset
from penstock.model.plan import ColumnOrigin, Evolve, Park, TruncateTarget
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, TableId, TableSchema, TypeOptions
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import Statement
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.server import SQL_MODE_BITS, Server
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter

SERVER = Server(version=(8, 0, 36), sql_mode=None)
STRICT = SQL_MODE_BITS["STRICT_TRANS_TABLES"]
T, U = TableId("shop", "t"), TableId("shop", "u")
MADE = """
CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(10), e ENUM('x','y'), p DECIMAL(10,2),
    UNIQUE (a)) CHARACTER SET utf8mb4
"""


class Pipeline:
    """A log of statements, and what a planner would hold of its tables."""

    def __init__(
        self,
        *captured: str,
        catalog: Callable[[TableId], TableSchema | None] | None = None,
        types: TypeOptions = DEFAULT_TYPES,
        server: Server = SERVER,
    ) -> None:
        self._types = types
        self._server = server
        self.events: dict[Offset, Statement] = {}
        """Statements as their events hold them."""
        self.read: list[Offset] = []
        self.log: list[Statement] = []
        self.live: dict[TableId, TableSchema] = {}
        self.asked: list[TableId] = []
        self._catalog = catalog or (lambda table: None)
        self._captured = TableFilter(TablesConfig(include=list(captured or ("shop.*",))))
        self.parks_cascades = True
        self.with_foreign_keys = False
        self.restart()

    def restart(self) -> None:
        self.reader = MySqlStatements(
            self._captured,
            self._ask,
            lambda: self._server,
            read_database=lambda name: ("latin1", "latin1_swedish_ci"),
            earlier=lambda offset: [one for one in self.log if one.end <= offset],
            in_full=self._in_full,
            types=self._types,
            parks_cascades=self.parks_cascades,
            with_foreign_keys=self.with_foreign_keys,
        )

    def _ask(self, table: TableId) -> TableSchema | None:
        self.asked.append(table)
        return self._catalog(table)

    def _in_full(self, statement: Statement) -> Statement | None:
        self.read.append(statement.offset)
        return self.events.get(statement.offset)

    def run(
        self,
        sql: str,
        mode: int | None = STRICT,
        *,
        database: str = "shop",
        kept: int | None = None,
        updates: tuple[str, ...] | None = None,
        unsaid: bool = False,
        alone: bool = False,
        lost: bool = False,
        server_charset: str | None = None,
    ) -> list[TableEffect]:
        """What it comes to; the planner then holds what the effects say. `kept`: characters that the index
        keeps. `unsaid`, `updates`: what the event says of databases; the index does not hold it. `lost`:
        the event cannot be read."""
        offset = self.log[-1].end if self.log else Offset(100)
        whole = Statement(offset, Offset(offset + 100), database, sql, 0, sql_mode=mode, alone=alone)
        whole = replace(whole, server_charset=server_charset)
        statement = whole
        if kept is not None:
            statement = replace(whole, sql=sql[:kept], truncated=True)
        if not lost:
            self.events[offset] = replace(whole, updates=updates, unsaid=unsaid)
        found = self.reader.effects(statement, dict(self.live))
        assert found == self.reader.effects(statement, dict(self.live)), "repeated"
        self.log.append(statement)
        for effect in found:
            if effect.dropped or effect.renamed:
                self.live.pop(effect.table, None)
            if effect.created:
                self.live[effect.table] = effect.created
            for step in effect.steps:
                if isinstance(step, Evolve):
                    self.live[effect.table] = step.schema
        return found


@pytest.fixture
def shop() -> Pipeline:
    pipeline = Pipeline()
    pipeline.run(MADE)
    return pipeline


def evolved(effects: list[TableEffect]) -> Evolve:
    [effect] = effects
    step = effect.steps[0]
    assert isinstance(step, Evolve)
    return step


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


def test_a_created_table_has_the_definition_of_its_statement(shop: Pipeline) -> None:
    assert not shop.asked
    assert shop.live[T].key == ("id",)
    assert shop.live[T].column("b").charset == "utf8mb4"
    [effect] = shop.run("CREATE TABLE c (v VARCHAR(3), PRIMARY KEY (v))")
    assert effect.created is not None and effect.created.column("v").charset == "latin1"


def test_added_columns_come_where_the_statement_says_with_their_default(shop: Pipeline) -> None:
    step = evolved(shop.run("ALTER TABLE t ADD n INT NOT NULL DEFAULT 7 AFTER id, ADD m DATE FIRST"))
    assert names(step.schema) == ["m", "id", "n", "a", "b", "e", "p"]
    assert step.schema.version == 2
    assert step.origins[:3] == (ColumnOrigin(), ColumnOrigin("id"), ColumnOrigin(None, "7"))


def test_one_statement_may_do_everything_at_once(shop: Pipeline) -> None:
    step = evolved(
        shop.run("ALTER TABLE t DROP b, CHANGE a aa BIGINT NOT NULL FIRST, RENAME COLUMN p TO q, ADD z TEXT")
    )
    assert names(step.schema) == ["aa", "id", "e", "q", "z"]
    assert [origin.before for origin in step.origins] == ["a", "id", "e", "p", None]


@pytest.mark.parametrize(
    ("action", "strict", "lax"),
    [
        ("MODIFY a BIGINT NOT NULL", False, False),
        ("MODIFY a SMALLINT NOT NULL", False, True),
        ("MODIFY b VARCHAR(300)", False, False),
        ("MODIFY b VARCHAR(5)", True, True),
        ("MODIFY b TEXT", False, False),
        ("MODIFY b CHAR(20)", True, True),
        ("MODIFY b VARCHAR(10) CHARACTER SET latin1", False, True),
        ("MODIFY b VARCHAR(10) NOT NULL", False, True),
        ("MODIFY e ENUM('x','y','z')", False, False),
        ("MODIFY e ENUM('y','x')", False, False),
        ("MODIFY e ENUM('x','Y')", True, True),
        ("MODIFY p DECIMAL(12,4)", False, False),
        ("MODIFY p DECIMAL(12,1)", True, True),
        ("MODIFY p DOUBLE", True, True),
        ("ADD n DATETIME DEFAULT CURRENT_TIMESTAMP", True, True),
        ("ADD n INT DEFAULT (1 + 1)", True, True),
        ("ADD n INT DEFAULT (2)", False, False),
        ("ADD n INT AS (a + 1)", True, True),
        ("ADD n INT AUTO_INCREMENT, ADD UNIQUE (n)", True, True),
        ("DROP b, ADD b VARCHAR(10)", True, True),
        ("DROP b", False, False),
        ("CONVERT TO CHARACTER SET utf16", False, False),
        ("CONVERT TO CHARACTER SET latin1", False, True),
    ],
)
def test_a_table_is_read_again_when_values_may_have_changed(
    shop: Pipeline, action: str, strict: bool, lax: bool
) -> None:
    known = dict(shop.live)
    for mode, again in ((STRICT, strict), (0, lax), (None, lax)):
        shop.live = dict(known)
        [effect] = shop.run(f"ALTER TABLE t {action}", mode)
        assert bool(effect.rereads) == again, mode
        step = evolved([effect])
        kept = [name for name in names(known[T]) if f"DROP {name}" not in action]
        assert [origin.before for origin in step.origins if origin.before] == kept
        assert step.schema.version == known[T].version + 1 and step.schema.columns != known[T].columns
        assert ("b, e" if action.startswith("CONVERT") else action.split()[1]) in effect.what


@pytest.mark.parametrize(
    ("types", "action", "again"),
    [
        ({}, "MODIFY p DECIMAL(38,2)", False),
        ({}, "MODIFY p DECIMAL(39,2)", True),  # text from here on
        ({}, "MODIFY a DECIMAL(40,3) NOT NULL", True),
        ({}, "MODIFY w DECIMAL(45,5)", False),
        ({}, "MODIFY w DECIMAL(45,6)", True),
        ({}, "RENAME COLUMN w TO v, RENAME COLUMN p TO w", False),
        ({"decimal": "string"}, "MODIFY p DECIMAL(12,2)", False),
        ({"decimal": "string"}, "MODIFY p DECIMAL(12,3)", True),
        ({"decimal": "string"}, "MODIFY a DECIMAL(12,0) NOT NULL", True),
        ({"decimal": "double"}, "MODIFY p DECIMAL(40,3)", False),
        ({"decimal": "double"}, "DROP PRIMARY KEY, ADD PRIMARY KEY (id, q)", True),  # exact in a key
        ({"bigint_unsigned": "string"}, "MODIFY a BIGINT UNSIGNED NOT NULL", True),
        ({"zero_dates": "text"}, "MODIFY d DATETIME", True),
        ({"zero_dates": "text"}, "MODIFY m DATETIME(3)", True),
        ({}, "MODIFY m DATETIME(3)", False),
        ({"tinyint1": "boolean"}, "MODIFY f INT", True),
        ({}, "MODIFY f INT", False),
    ],
)
def test_a_table_is_read_again_when_values_arrive_in_another_form(
    types: dict[str, Any], action: str, again: bool
) -> None:
    pipeline = Pipeline(types=TypeOptions(**types))
    pipeline.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, p DECIMAL(10,2), q DECIMAL(10,2) NOT NULL, "
        "w DECIMAL(40,5), d DATE, m DATETIME, f TINYINT(1))"
    )
    [effect] = pipeline.run(f"ALTER TABLE t {action}")
    assert bool(effect.rereads) == again, effect.rereads


@pytest.mark.parametrize(
    ("action", "again"),
    [
        ("MODIFY short YEAR(4)", True),  # 70 becomes 1970
        ("MODIFY year YEAR(2)", True),
        ("MODIFY short TINYINT", False),
        ("MODIFY year SMALLINT", False),
    ],
)
def test_years_of_two_and_of_four_digits_are_other_values(action: str, again: bool) -> None:
    pipeline = Pipeline(server=Server(version=(10, 11, 5), mariadb=True))
    pipeline.run("CREATE TABLE t (id INT PRIMARY KEY, short YEAR(2), year YEAR)")
    effects = pipeline.run(f"ALTER TABLE t {action}")
    assert any(effect.rereads for effect in effects) == again


def test_rows_that_go_without_row_events_are_read_again(shop: Pipeline) -> None:
    for action in ("DROP PARTITION p0", "TRUNCATE PARTITION p0", "IMPORT TABLESPACE", "ENGINE = BLACKHOLE"):
        [effect] = shop.run(f"ALTER TABLE t {action}")
        assert effect.rereads and effect.voids and not effect.steps
    shop.run("CREATE TABLE u LIKE t")
    both = shop.run("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u")
    assert {effect.table for effect in both if effect.rereads} == {T, U}


def test_what_changes_neither_columns_nor_keys_is_no_effect(shop: Pipeline) -> None:
    for sql in (
        "ALTER TABLE t COMMENT = 'x', ALGORITHM = COPY",
        "ALTER TABLE t ADD INDEX (b), FORCE",
        "CREATE INDEX i ON t (b)",
        "DROP INDEX i ON t",
        "CREATE TABLE IF NOT EXISTS t (x INT)",
        "ANALYZE TABLE t",
        "CREATE VIEW v AS SELECT 1",
    ):
        assert shop.run(sql) == []
    assert not shop.asked


def test_the_key_is_found_when_the_primary_key_goes(shop: Pipeline) -> None:
    step = evolved(shop.run("ALTER TABLE t DROP PRIMARY KEY"))
    assert step.schema.key == ("a",)
    step = evolved(shop.run("ALTER TABLE t ADD PRIMARY KEY (b, id), DROP INDEX a"))
    assert step.schema.key == ("b", "id")


def test_a_unique_key_that_is_not_the_key_leaves_the_version(shop: Pipeline) -> None:
    step = evolved(shop.run("ALTER TABLE t ADD UNIQUE k (b)"))
    assert step.schema.version == 1
    assert [key.name for key in step.schema.unique or ()] == ["PRIMARY", "a", "k"]


def test_truncate_and_drop(shop: Pipeline) -> None:
    [effect] = shop.run("TRUNCATE t")
    assert effect.steps == (TruncateTarget(),) and effect.voids
    [effect] = shop.run("DROP TABLE IF EXISTS nothing, t")
    assert effect.dropped and effect.voids
    shop.run(MADE)
    assert [effect.dropped for effect in shop.run("DROP DATABASE shop")] == [True]


def test_a_renamed_table_goes_on_under_its_new_name() -> None:
    shop = Pipeline("shop.t", "shop.u")
    shop.run(MADE)
    gone, begun = shop.run("ALTER TABLE t RENAME u, ADD z INT")[1:]
    assert gone.renamed == U
    assert begun.table == U and begun.fills and begun.created is not None and begun.created.table == U
    assert names(begun.created)[-1] == "z"
    [gone] = shop.run("RENAME TABLE u TO elsewhere")
    assert gone.dropped


def test_tables_that_change_names_change_rows(shop: Pipeline) -> None:
    shop.run("CREATE TABLE u (k INT PRIMARY KEY)")
    effects = shop.run("RENAME TABLE t TO x, u TO t, x TO u")
    assert {effect.table: effect.created and effect.created.key for effect in effects} == {
        T: ("k",), U: ("id",)
    }  # fmt: skip
    assert all(effect.fills for effect in effects)


TOOLS = {
    "gh-ost": (
        "create /* gh-ost */ table `shop`.`_t_gho` like `shop`.`t`",
        "alter /* gh-ost */ table `shop`.`_t_gho` CHANGE b bb VARCHAR(20), ADD n INT DEFAULT 3",
        "create /* gh-ost */ table `shop`.`_t_del` (id int auto_increment primary key) engine=InnoDB",
        "drop /* gh-ost */ table if exists `shop`.`_t_del`",
        "rename /* gh-ost */ table `shop`.`t` to `shop`.`_t_del`, `shop`.`_t_gho` to `shop`.`t`",
    ),
    "pt-online-schema-change": (
        MADE.replace("TABLE t", "TABLE _t_new"),
        "ALTER TABLE `shop`.`_t_new` CHANGE b bb VARCHAR(20), ADD n INT DEFAULT 3",
        "RENAME TABLE `shop`.`t` TO `shop`.`_t_old`, `shop`.`_t_new` TO `shop`.`t`",
    ),
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("tool", TOOLS)
def test_an_online_schema_change_repeats_no_rows(tool: str, restarted: bool) -> None:
    shop = Pipeline("shop.t")
    shop.run(MADE)
    for sql in TOOLS[tool][:-1]:
        assert shop.run(sql) == []
    if restarted:
        shop.restart()
    [effect] = shop.run(TOOLS[tool][-1])
    step = effect.steps[0]
    assert isinstance(step, Evolve)
    assert effect.rereads is None and not effect.fills
    assert names(step.schema) == ["id", "a", "bb", "e", "p", "n"]
    assert step.origins[2] == ColumnOrigin("b") and step.origins[-1] == ColumnOrigin(None, "3")
    assert step.schema.table == T and "online" in effect.what
    assert not shop.asked


@pytest.mark.parametrize(
    "change", ["MODIFY p INT", "MODIFY p DECIMAL(5,2)", "MODIFY p DECIMAL(10,2) NOT NULL"]
)
def test_an_online_schema_change_that_converts_values_is_read_again(change: str) -> None:
    """Also under a strict sql_mode: tools copy rows with INSERT IGNORE."""
    shop = Pipeline("shop.t")
    shop.run(MADE)
    shop.run("CREATE TABLE _t_gho LIKE t")
    shop.run(f"ALTER TABLE _t_gho {change}")
    [effect] = shop.run("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert effect.rereads and "column p" in effect.rereads


def test_a_copy_whose_making_was_not_seen_is_compared_with_the_catalog() -> None:
    catalog = Catalog(SERVER)
    catalog.database = "shop"
    catalog.execute(MADE)
    catalog.execute("ALTER TABLE t ADD z INT")
    shop = Pipeline("shop.t", catalog=lambda table: catalog.tables[table].to_schema())
    shop.run(MADE)
    [effect] = shop.run("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert shop.asked and effect.rereads is None and isinstance(effect.steps[0], Evolve)


def test_a_table_is_read_again_after_an_alter_that_is_not_understood_though_its_definition_is_as_before() -> (
    None
):
    held: dict[TableId, TableSchema] = {}
    shop = Pipeline(catalog=held.get)
    shop.run(MADE)
    shop.run("CREATE TABLE u (k INT PRIMARY KEY)")
    held.update(shop.live)
    for sql in (
        "ALTER TABLE t SOMETHING NEW 4711",
        "ALTER TABLE t ADD COLUMN ('",
        "CREATE INDEX i ON t (a SOMEHOW",
    ):
        [effect] = shop.run(sql)
        assert effect.table == T and effect.rereads == effect.voids and not effect.steps
        assert sql[:13] in (effect.rereads or "") and "4711" not in (effect.rereads or "")
    both = shop.run("ALTER TABLE t MINGLE PARTITION p WITH TABLE U")
    assert {effect.table for effect in both if effect.rereads} == {T, U}
    assert not shop.asked


def test_a_statement_that_was_counted_in_already_has_no_effect() -> None:
    held: dict[TableId, TableSchema] = {}
    shop = Pipeline(catalog=held.get)
    shop.run(MADE)
    held.update(shop.live)
    assert shop.run("ALTER TABLE t ADD COLUMN b VARCHAR(10)") == []
    assert shop.run("ALTER TABLE t DROP COLUMN long_gone") == []


def test_a_table_created_again_begins_anew(shop: Pipeline) -> None:
    for sql in ("CREATE TABLE t (k INT PRIMARY KEY)", "CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)"):
        [effect] = shop.run(sql)
        assert effect.created is not None and effect.created.key == ("k",) and effect.voids


def test_an_event_that_may_have_changed_rows_concerns_every_table(shop: Pipeline) -> None:
    incident = Statement(Offset(900), Offset(1000), "", "", 0, event=26)
    assert [bool(effect.rereads) for effect in shop.reader.effects(incident, shop.live)] == [True]


CASCADES = [
    "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE",
    "ALTER TABLE t ADD n INT, ADD CONSTRAINT c FOREIGN KEY (n) REFERENCES parent (id) ON UPDATE SET NULL",
]


@pytest.mark.parametrize("sql", CASCADES)
def test_a_cascading_foreign_key_parks_the_table_where_cascades_are_not_logged(
    shop: Pipeline, sql: str
) -> None:
    step = shop.run(sql)[-1].steps[-1]
    assert isinstance(step, Park)
    assert "before MySQL 9.6" in step.reason and "penstock resnapshot FILE shop.t" in step.hint


def test_a_cascading_foreign_key_changes_nothing_where_cascades_are_logged(shop: Pipeline) -> None:
    shop.parks_cascades = False
    shop.restart()
    assert shop.run(CASCADES[0]) == []
    step = evolved(shop.run(CASCADES[1]))
    assert names(step.schema) == ["id", "a", "b", "e", "p", "n"] and step.schema.foreign_keys == ()


@pytest.mark.parametrize("parks", [True, False])
def test_a_table_created_with_a_cascading_foreign_key(shop: Pipeline, parks: bool) -> None:
    shop.parks_cascades = parks
    shop.restart()
    sql = "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)"
    [created] = shop.run(sql)
    assert created.created is not None
    assert [type(step) for step in created.steps] == ([Park] if parks else [])


CHILD = (
    "CREATE TABLE child (id INT PRIMARY KEY, t_id INT, CONSTRAINT k FOREIGN KEY (t_id) REFERENCES t (id) "
    "ON DELETE CASCADE ON UPDATE SET NULL)"
)


@pytest.fixture
def family(shop: Pipeline) -> Pipeline:
    """Table t and its child, whose foreign key is followed."""
    shop.parks_cascades, shop.with_foreign_keys = False, True
    shop.restart()
    shop.run(CHILD)
    return shop


def test_a_cascading_key_is_known_from_the_statement_that_makes_its_table(family: Pipeline) -> None:
    [key] = family.live[TableId("shop", "child")].foreign_keys
    assert key == CascadingKey("k", ("t_id",), T, ("id",), "CASCADE", "SET NULL")
    assert family.live[T].foreign_keys == ()


def test_a_cascading_key_follows_the_names_of_its_columns_until_it_is_dropped(family: Pipeline) -> None:
    step = evolved(family.run("ALTER TABLE child RENAME COLUMN t_id TO x, ADD n INT"))
    assert [key.columns for key in step.schema.foreign_keys] == [("x",)]
    [effect] = family.run("ALTER TABLE child DROP FOREIGN KEY k")
    assert evolved([effect]).schema.foreign_keys == () and effect.rereads is None


def test_a_new_cascading_key_makes_its_table_be_read_again(family: Pipeline) -> None:
    [effect] = family.run("ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES t (a) ON DELETE CASCADE")
    assert effect.rereads == "a foreign key that cascades was added"
    assert len(evolved([effect]).schema.foreign_keys) == 2
    [effect] = family.run("ALTER TABLE child ADD n INT")
    assert effect.rereads is None


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t RENAME COLUMN id TO key_id",
        "ALTER TABLE t CHANGE id key_id INT",
        "RENAME TABLE t TO old_t",
        "DROP TABLE t",
    ],
)
def test_a_table_is_read_again_when_its_parent_gets_another_name(family: Pipeline, sql: str) -> None:
    child = [effect for effect in family.run(sql) if effect.table.table == "child"]
    assert [bool(effect.rereads) for effect in child] == [True]


def test_other_changes_of_a_parent_are_no_matter_to_its_children(family: Pipeline) -> None:
    assert [effect.table for effect in family.run("ALTER TABLE t RENAME COLUMN b TO bb, ADD n INT")] == [T]
