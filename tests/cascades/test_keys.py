"""When tables with cascading foreign keys can be followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.phases import DROPPED, PARKED, READ, READING, behind

from penstock.cascades.keys import (
    AFTER_PARENTS,
    below,
    hindrances,
    is_read_whole,
    moves_rows,
    parents_first,
    refers_to_itself,
    upstream,
)
from penstock.cascades.waiting import Nobody, Operator, Parents, waits_for
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema
from penstock.model.table import ResnapshotPending, TableState

P, M, G, S = (TableId("shop", name) for name in "pmgs")


def schema(table: TableId, *parents: TableId, **rules: str) -> TableSchema:
    columns = [Column("id", "int", nullable=False), *[Column(f"{one.table}_id", "int") for one in parents]]
    keys = tuple(
        CascadingKey(f"{table.table}_{one.table}", (f"{one.table}_id",), one, ("id",),
                     rules.get("delete", "CASCADE"), rules.get("update", "NO ACTION"))
        for one in parents
    )  # fmt: skip
    return TableSchema(table, tuple(columns), ("id",), foreign_keys=keys)


def live(table: TableId, *parents: TableId, **changes: Any) -> TableState:
    return replace(TableState(schema(table, *parents), Offset(10), READ), **changes)


def tables(*states: TableState) -> dict[TableId, TableState]:
    return {state.table: state for state in states}


def why(*states: TableState) -> dict[TableId, str]:
    return {name: found.reason for name, found in hindrances(tables(*states), DEFAULT_TYPES).items()}


def test_a_schema_keeps_its_keys_when_it_is_stored() -> None:
    one = schema(G, M, P, delete="SET NULL", update="CASCADE")
    assert TableSchema.from_json(one.to_json()) == one


def test_tables_come_after_those_they_refer_to() -> None:
    schemas = {state.table: state.schema for state in (live(G, M), live(S, S), live(M, P), live(P))}
    assert parents_first(schemas) == [M, S, G]
    assert below(schemas, {P}) == {M, G}
    assert below(schemas, {S}) == {S}
    assert refers_to_itself(schemas[S]) and not refers_to_itself(schemas[G])


def test_a_table_is_followed_if_its_parents_are_and_began_no_later() -> None:
    assert why(live(P), live(M, P)) == {}
    assert "does not follow" in why(live(M, P))[M]
    assert "does not follow" in why(live(P, phase=DROPPED), live(M, P))[M]
    assert "read again" in why(live(P, start=Offset(11)), live(M, P))[M]
    assert why(live(P, phase=ResnapshotPending("so")), live(M, P)) == {M: AFTER_PARENTS}


def test_a_parked_table_parks_those_that_refer_to_it_until_it_is_read_again() -> None:
    parked = live(P, phase=PARKED)
    [found] = hindrances(tables(parked, live(M, P)), DEFAULT_TYPES).values()
    assert found.parks and found.resnapshots
    held = live(M, P, phase=ResnapshotPending("x", PARKED))
    lower = live(G, M, phase=ResnapshotPending("x", PARKED))
    assert waits_for(tables(parked, held, lower)) == {M: Operator(P), G: Operator(M)}
    assert waits_for(tables(live(P), held, lower)) == {M: Nobody(), G: Parents((M,))}
    assert waits_for(tables(live(P, phase=DROPPED), held)) == waits_for(tables(held)) == {M: Nobody()}


def test_a_table_that_waits_is_parked_when_a_parent_is_whichever_of_its_keys_comes_first() -> None:
    reading = live(M, P, phase=READING)
    child = live(G, M, S, phase=READING)  # m is still being read, s is parked
    assert list(why(live(P), reading, live(S, phase=PARKED), child)) == [G]
    assert "shop.s (foreign key" in why(live(P), reading, live(S, phase=PARKED), child)[G]
    waiting = replace(child, phase=ResnapshotPending(AFTER_PARENTS))
    assert "shop.s (foreign key" in why(live(P), reading, live(S, phase=PARKED), waiting)[G]
    assert why(live(P), reading, live(S), waiting) == {}, "it waits for m only"
    held = replace(child, phase=ResnapshotPending(AFTER_PARENTS, PARKED))
    assert why(live(P), reading, live(S, phase=PARKED), held) == {}, "it is parked already"


def test_tables_in_a_circle_do_not_wait_for_each_other() -> None:
    pending = {"phase": ResnapshotPending("x")}
    circle = (live(M, G, **pending), live(G, M, P, **pending))
    assert waits_for(tables(live(P), *circle)) == {M: Nobody(), G: Nobody()}
    below = live(S, G, **pending)
    assert waits_for(tables(live(P), *circle, below))[S] == Parents((G,))
    reading = live(P, S, phase=READING)
    assert waits_for(tables(reading, *circle)) == {M: Parents((P,)), G: Parents((P,))}, "they begin together"


def test_a_table_is_read_after_parents_that_change_without_row_events_themselves() -> None:
    reading = {"phase": READING}
    assert why(live(P, **reading), live(M, P, **reading)) == {}, "all changes of p are in the log"
    assert why(live(P), live(M, P, **reading), live(G, M, **reading)) == {G: AFTER_PARENTS}
    pending = live(G, M, phase=ResnapshotPending("x"))
    assert waits_for(tables(live(P), live(M, P, **reading), pending)) == {G: Parents((M,))}
    assert why(live(P), live(M, P), live(G, M, **reading)) == {}


def test_a_table_that_refers_to_itself_is_followed_while_it_is_read_and_waits_for_others_only() -> None:
    reading = live(S, S, P, phase=READING)
    assert not why(live(P), live(S, S, P)) and not why(live(P), reading)
    assert (
        is_read_whole(reading)
        and not is_read_whole(live(S, S, P))
        and not is_read_whole(live(M, P, phase=READING))
    )
    assert why(live(P, M), live(M, phase=READING), live(S, S, P)) == {}
    assert why(live(S, S, phase=READING), live(G, S, phase=READING)) == {G: AFTER_PARENTS}
    assert why(live(S, S, phase=behind(5)), live(G, S)) == {G: AFTER_PARENTS}
    schemas = {state.table: state.schema for state in (live(G, M), live(S, S), live(M, P), live(P))}
    assert upstream(G, schemas) == {G, M, P} and upstream(S, schemas) == {S}


def test_a_circle_of_tables_and_rules_that_are_not_known_are_refused() -> None:
    assert set(why(live(M, G), live(G, M))) == {M, G}
    odd = replace(live(M, P), schema=schema(M, P, delete="SET DEFAULT"))
    assert "SET DEFAULT" in why(live(P), odd)[M]


def test_values_that_arrive_as_other_types_are_refused() -> None:
    parent = replace(
        live(P), schema=TableSchema(P, (Column("id", "tinyint", column_type="tinyint(1)"),), ("id",))
    )
    child = replace(
        live(M, P),
        schema=replace(
            schema(M, P), columns=(Column("id", "int"), Column("p_id", "tinyint", column_type="tinyint(1)"))
        ),
    )
    both = tables(parent, child)
    assert hindrances(both, DEFAULT_TYPES) == {}
    [found] = hindrances(both, replace(DEFAULT_TYPES, tinyint1="boolean")).values()
    assert "different types" in found.reason


def test_a_key_over_the_columns_that_identify_a_row_moves_rows_when_its_parent_is_updated() -> None:
    lines = replace(schema(M, P, update="CASCADE"), key=("p_id", "id"))
    assert moves_rows(lines) and not moves_rows(schema(M, P, update="CASCADE"))
    assert not moves_rows(replace(schema(M, P), key=("p_id", "id")))
