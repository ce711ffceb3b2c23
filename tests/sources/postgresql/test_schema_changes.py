"""What the log says of changed tables that PostgreSQL's log does not tell of: each kind of change, with the
table idle and busy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving

from penstock.testing.scenario import wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer


class Change(NamedTuple):
    """`said`: what the log must say of the table: the kind, and whether the rows are read again; None:
    nothing. `more`: fields that it must have."""

    sql: str
    said: str | None
    reread: bool = False
    more: Mapping[str, Any] = MappingProxyType({})


CHANGES = {
    "added": Change("ALTER TABLE {t} ADD x int", "altered"),
    "added_constant": Change("ALTER TABLE {t} ADD x int DEFAULT 7", "altered", more={"values": {"x": 7}}),
    "added_text": Change(
        "ALTER TABLE {t} ADD x text DEFAULT 'it''s'", "altered", more={"values": {"x": "it's"}}),
    "added_now": Change("ALTER TABLE {t} ADD x timestamptz DEFAULT now()", "altered", True),
    "added_volatile": Change("ALTER TABLE {t} ADD x float8 DEFAULT random()", "altered", True),
    "added_rewritten": Change("ALTER TABLE {t} ADD x int DEFAULT 7; VACUUM FULL {t}", "altered", True),
    "dropped_column": Change("ALTER TABLE {t} DROP v", "altered"),
    "replaced_column": Change(
        "ALTER TABLE {t} DROP v, ADD v text DEFAULT 'new'", "altered", more={"values": {"v": "new"}}),
    "renamed_column": Change("ALTER TABLE {t} RENAME v TO w", "altered", more={"renamed": {"w": "v"}}),
    "same_type_rewritten": Change("ALTER TABLE {t} ALTER v TYPE text USING v || '!'", "altered", True),
    "other_type": Change("ALTER TABLE {t} ALTER n TYPE bigint", "altered", True),
    "longer": Change("ALTER TABLE {t} ALTER c TYPE varchar(50)", "altered"),
    "to_text": Change("ALTER TABLE {t} ALTER c TYPE text", "altered"),
    "vacuum_full": Change("VACUUM FULL {t}", None),
    "analyze": Change("ANALYZE {t}", None),
    "index": Change("CREATE INDEX ON {t} (v)", None),
    "default": Change("ALTER TABLE {t} ALTER v SET DEFAULT 'd'", None),
    "renamed_table": Change("ALTER TABLE {t} RENAME TO {name}_new", "moved"),
    "other_schema": Change("ALTER TABLE {t} SET SCHEMA attic", "moved"),
    "dropped_table": Change("DROP TABLE {t}", "dropped"),
    "recreated": Change("DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY)", "created"),
    "label_added": Change("ALTER TYPE mood_{name} ADD VALUE 'bad'", None),
    "label_renamed": Change("ALTER TYPE mood_{name} RENAME VALUE 'ok' TO 'fine'", "altered", True),
    "identity": Change("ALTER TABLE {t} REPLICA IDENTITY FULL", None),
    "emptied": Change("TRUNCATE {t}", "emptied"),
    "unlogged": Change("ALTER TABLE {t} SET UNLOGGED", "parked"),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(
    server: PostgreSqlServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What the log says of each table, by its name. All changes are made while one receiver runs."""
    receiving = Receiving(server, tmp_path_factory.mktemp("receiving"), "changes")
    with connected(server) as connection:
        for statement in ("CREATE SCHEMA ddl", "CREATE SCHEMA attic",
                          "CREATE PUBLICATION penstock_changes FOR ALL TABLES"):  # fmt: skip
            connection.execute(statement.encode())
        names = [f"{name}_{state}" for name in CHANGES for state in ("idle", "busy")]
        for name in names:
            connection.execute(f"CREATE TYPE mood_{name} AS ENUM ('ok', 'so so')".encode())
            connection.execute(
                f"CREATE TABLE ddl.{name} (id int PRIMARY KEY, v text, n int, c varchar(20), "
                f"mood mood_{name})".encode()
            )
            connection.execute(f"INSERT INTO ddl.{name} VALUES (1, 'a', 1, 'c', 'ok')".encode())
        with receiving.started():
            receiving.wait_until_streaming()
            for name, change in CHANGES.items():
                for state in ("idle", "busy"):
                    table = f"ddl.{name}_{state}"
                    if state == "busy" and name not in ("renamed_column", "unlogged"):
                        connection.execute(f"INSERT INTO {table} (id) VALUES (2)".encode())
                    for statement in change.sql.format(t=table, name=f"{name}_{state}").split("; "):
                        connection.execute(statement.encode())
                    moved = {"renamed_table": f"{table}_new", "other_schema": f"attic.{name}_{state}"}
                    if state == "busy" and name not in ("dropped_table", "unlogged"):
                        connection.execute(f"INSERT INTO {moved.get(name, table)} (id) VALUES (3)".encode())
            receiving.wait_until_received(connection)
            connection.execute("CREATE TABLE ddl.last (id int PRIMARY KEY)")

            def all_looked_at() -> bool:
                return any(said["table"] == "last" for _, said in receiving.statements())

            receiving.wait(all_looked_at, "a look at the catalog")
            receiving.wait_until_received(connection)
            statements = receiving.statements()
    said: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for schema, one in statements:
        if one["table"] in said and schema == "ddl":
            said[one["table"]].append(one)
    return said


@pytest.mark.parametrize("state", ["idle", "busy"])
@pytest.mark.parametrize("name", CHANGES)
def test_the_log_says_what_happened_to_a_table(
    found: dict[str, list[dict[str, Any]]], name: str, state: str
) -> None:
    change, said = CHANGES[name], found[f"{name}_{state}"]
    if change.said is None:
        assert said == []
        return
    last = said[-1]
    assert change.said in last, said
    assert bool(last.get("reread")) is change.reread, said
    assert {key: last.get(key) for key in change.more} == change.more
    # Said once: a change that is said twice would read a table again without need. Two changes may be seen
    # one by one.
    assert len(said) in {"recreated": (2,), "added_rewritten": (1, 2)}.get(name, (1,)), said


def test_tables_exchange_their_names(server: PostgreSqlServer, tmp_path: Path) -> None:
    """As at the end of an online schema change, and in a circle; with a busy table and an idle one."""
    receiving = Receiving(server, tmp_path, "names")
    published = "TABLES IN SCHEMA names" if server.version > 14 else "ALL TABLES"
    with connected(server) as connection:
        for statement in ("CREATE SCHEMA names", f"CREATE PUBLICATION penstock_names FOR {published}"):
            connection.execute(statement.encode())
        for name in ("t_new", "t", "a", "b", "c", "idle_new", "idle"):  # the new ones have smaller numbers
            connection.execute(f"CREATE TABLE names.{name} (id int PRIMARY KEY)".encode())
        with receiving.started():
            receiving.wait_until_streaming()
            for old, new in (("t", "t_old"), ("t_new", "t"), ("a", "x"), ("b", "a"), ("c", "b"), ("x", "c"),
                             ("idle", "idle_old"), ("idle_new", "idle")):  # fmt: skip
                connection.execute(f"ALTER TABLE names.{old} RENAME TO {new}".encode())
            connection.execute("INSERT INTO names.t VALUES (1)")
            connection.execute("CREATE TABLE names.last (id int)")
            receiving.wait(
                lambda: any(said["table"] == "last" for _, said in receiving.statements()), "a look"
            )
            said = [(one["table"], one) for schema, one in receiving.statements() if schema == "names"]
    names = {name: name for name in ("t_new", "t", "a", "b", "c", "idle_new", "idle")}
    for table, one in said:
        if "moved" in one:
            to = one["moved"][1]
            assert to not in names, f"{table} gets the name {to}, which another table has"
            names[to] = names.pop(table)
        elif "dropped" in one:
            del names[table]
        elif "created" in one and table != "last":
            assert table not in names and one["filled"]
            names[table] = "begun again"
    assert {name: names[name] for name in ("t", "t_old", "idle", "idle_old")} == {
        "t": "t_new", "t_old": "t", "idle": "idle_new", "idle_old": "idle",
    }  # fmt: skip
    circle = {"a": ("b", "begun again"), "b": ("c", "begun again"), "c": ("a", "begun again")}
    assert all(names[name] in allowed for name, allowed in circle.items()), names


@pytest.mark.parametrize(
    "changes",
    [
        ("DROP TABLE public.out", "ADD TABLE public.out"),
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
    ],
)
def test_a_table_that_left_the_publication_for_a_while_is_read_again(
    server: PostgreSqlServer, tmp_path: Path, changes: tuple[str, str]
) -> None:
    receiving = Receiving(server, tmp_path, "out")
    with connected(server) as connection:
        connection.execute("CREATE TABLE public.out (id int PRIMARY KEY, v int)")
        connection.execute("CREATE PUBLICATION penstock_out FOR TABLE public.out")
        try:
            connection.execute("INSERT INTO public.out VALUES (1)")
            with receiving.started():
                receiving.wait_until_streaming()
                receiving.wait_until_received(connection)
                connection.execute(f"ALTER PUBLICATION penstock_out {changes[0]}".encode())
                connection.execute("UPDATE public.out SET v = 2")
                connection.execute(f"ALTER PUBLICATION penstock_out {changes[1]}".encode())
                receiving.wait(receiving.statements, "a look at the catalog")
                [(_, said)] = receiving.statements()
            assert (said["table"], said["reread"]) == ("out", "the publication was changed")
        finally:
            connection.execute("DROP PUBLICATION penstock_out")
            connection.execute("DROP TABLE public.out")
            _drop_slot(connection, "penstock_out")


def _drop_slot(connection: psycopg.Connection[Any], name: str) -> None:
    """As soon as the server has noticed that its receiver is gone."""
    wait_for(
        lambda: connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE NOT active AND slot_name = %s",
            (name,),
        ).fetchall(),
        "the end of the slot",
    )
