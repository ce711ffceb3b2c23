"""What a pipeline parks when it starts is decided in one place, which `penstock doctor` asks, too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.phases import DROPPED, LOG_ONLY, PARKED, READ, READING

from penstock.cascades.waiting import Operator, is_unfinished, waits_for
from penstock.commands.doctor import with_parked
from penstock.config import PipelineConfig
from penstock.config import parse as parse_config
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part, PartialSnapshot
from penstock.model.schema import CascadingKey, Column, TableId, TableSchema
from penstock.model.table import Phase, TableState, plain_add_key
from penstock.planning import parking
from penstock.sources.mysql.statements import cascade_reason
from penstock.sources.preflight import Finding

at_start = partial(parking.at_start, cascade_reason=cascade_reason, add_key=plain_add_key)
ID = Column("id", "int", nullable=False)


def config(**options: Any) -> PipelineConfig:
    sink = {"type": "iceberg", **options.pop("sink", {})}
    document = {"name": "x", "source": {"user": "u"}, "tables": ["*.*"], "state": "/tmp/none", "sink": sink}
    return parse_config(document | options)


def name(text: str) -> TableId:
    return TableId.parse(text if "." in text else f"shop.{text}")


def schema(table: str, *parents: str, key: bool = True, columns: tuple[Column, ...] = ()) -> TableSchema:
    keys = tuple(
        CascadingKey(f"to_{parent}", (f"{parent}_id",), name(parent), ("id",), "CASCADE", "NO ACTION")
        for parent in parents
    )
    own = (ID, *(Column(f"{parent}_id", "int") for parent in parents), *columns)
    return TableSchema(name(table), own, ("id",) if key else (), foreign_keys=keys)


def parked(
    *schemas: TableSchema,
    known: dict[TableId, TableState] | None = None,
    cascading: set[str] | None = None,
    logs_cascades: bool = False,
    **options: Any,
) -> dict[str, str]:
    """Reasons by name."""
    found = at_start(
        known or {}, {one.table: one for one in schemas},
        {name(one): cascade_reason(name(one)) for one in cascading or ()},
        config(**options), logs_cascades=logs_cascades,
    )  # fmt: skip
    return {table.table: one.parked.reason for table, one in found.items() if one.parked}


def test_a_circle_parks_its_own_tables_as_one_and_what_refers_to_them_until_they_are_mended() -> None:
    tables = (
        schema("a", "b"), schema("b", "a"), schema("child", "a"), schema("grandchild", "child"),
        schema("root"), schema("other", "root"),
    )  # fmt: skip
    found = at_start(
        {},
        {one.table: one for one in tables},
        {},
        config(cascades="apply"),
        cascade_reason=cascade_reason,
        logs_cascades=False,
    )
    why = {table.table: one.parked.reason for table, one in found.items() if one.parked}
    assert why.keys() == {"a", "b", "child", "grandchild"}
    assert "circle" in why["a"] and "shop.b" in why["a"] and "child" not in why["a"]
    assert "shop.a" in why["child"] and "circle" not in why["child"]
    assert not any(found[name(one)].resnapshot_pending for one in ("a", "b"))
    for one in ("child", "grandchild"):
        assert found[name(one)].resnapshot_pending and isinstance(waits_for(found)[name(one)], Operator)
    assert not is_unfinished(found), "nothing is on its way without anybody's help"
    assert parked(*tables, cascades="apply", logs_cascades=True) == {}
    assert parked(*tables, cascades="ignore") == {}


def test_a_table_below_one_that_is_parked_waits_for_that_and_not_only_for_its_rows() -> None:
    tables = (schema("middle", "away"), schema("below", "middle"))
    found = at_start(
        {},
        {one.table: one for one in tables},
        {},
        config(cascades="apply"),
        cascade_reason=cascade_reason,
        logs_cascades=False,
    )
    assert {table.table for table, one in found.items() if one.parked} == {"middle", "below"}
    middle = found[name("middle")]
    assert middle.parked and "does not follow" in middle.parked.reason
    assert not is_unfinished(found)
    assert is_unfinished(found | {middle.table: replace(middle, phase=READING)})


def test_tables_without_a_key_with_a_name_of_ours_or_with_cascades_are_parked_each_for_its_reason() -> None:
    tables = (
        schema("keyless", key=False), schema("ours", columns=(Column("_SEQUENCE", "int"),)),
        schema("child"), schema("fine"),
    )  # fmt: skip
    found = parked(*tables, cascading={"child", "keyless"})
    assert found.keys() == {"keyless", "ours", "child"}
    assert "no primary key" in found["keyless"] and "_SEQUENCE" in found["ours"]
    assert "changed by a foreign key" in found["child"]
    assert parked(*tables, sink={"type": "console"}).keys() == set(), "it takes every change as it is"


def test_of_tables_with_one_target_the_first_has_it_and_the_others_say_whose_it_is() -> None:
    tables = (schema("b.t"), schema("a.t"), schema("c.t", key=False), schema("c.u"))
    found = at_start({}, {one.table: one for one in tables}, {}, config(sink={"namespace": "lake"}),
                     logs_cascades=False)  # fmt: skip
    why = {str(table): one.parked.reason for table, one in found.items() if one.parked}
    assert why.keys() == {"b.t", "c.t"}
    assert "is that of a.t already" in why["b.t"] and "no primary key" in why["c.t"]
    assert parked(*tables[:2]) == {}, "by default each database has a namespace of its own"
    shards: dict[str, Any] = {"merge_shards": [{"tables": "*.t", "into": "lake.t"}]}
    assert parked(*tables[:2], sink={"namespace": "lake"}, **shards) == {}
    known = TableState(tables[0], Offset(4), LOG_ONLY, last_epoch=3)
    found = at_start({known.table: known}, {one.table: one for one in tables[:2]}, {},
                     config(sink={"namespace": "lake"}), logs_cascades=False)  # fmt: skip
    assert [str(table) for table, one in found.items() if one.parked] == ["a.t"]


def test_another_rule_for_cascades_concerns_tables_that_are_followed_and_not_those_that_are_gone() -> None:
    child = TableState(schema("child", "root"), Offset(4), LOG_ONLY, last_epoch=3)
    gone = replace(child, schema=replace(child.schema, table=name("gone")), phase=DROPPED)
    known = {one.table: one for one in (child, gone)}
    found = at_start(known, {}, {}, config(), logs_cascades=False)
    assert (found[child.table].status, found[gone.table].status) == ("parked", "dropped")
    bare = replace(child, schema=replace(child.schema, foreign_keys=()))
    root = TableState(schema("root"), Offset(4), LOG_ONLY, last_epoch=3)
    again = at_start({bare.table: bare, root.table: root}, {child.table: child.schema}, {},
                     config(cascades="apply"), logs_cascades=False)  # fmt: skip
    assert "are computed from now on" in again[bare.table].resnapshot_pending


def test_doctor_has_one_finding_for_each_parked_table_with_the_sql_that_mends_it() -> None:
    state = TableState(schema("t"), Offset(0), replace(PARKED, hint="Do."))
    findings = [
        Finding("ok", "tables", "shop.t", "fine"),
        Finding("warning", "cascade", "shop.t", "x", "ALTER 1;"),
        Finding("warning", "cascade", "shop.t", "y", "ALTER 2;"),
        Finding("warning", "cascade", "shop.other", "z", "ALTER 3;"),
    ]
    found = with_parked(findings, {}, {state.table: state})
    [mine] = [one for one in found if one.parks]
    assert (mine.check, mine.subject, mine.sql) == ("cascade", "shop.t", "ALTER 1;\nALTER 2;")
    assert "will be parked" in mine.message and "No. Do." in mine.message
    assert len(found) == 3
    [mine] = [one for one in with_parked([], {state.table: state}, {state.table: state}) if one.parks]
    assert mine.check == "parked" and "is parked" in mine.message


def test_two_tables_cannot_have_one_name_in_messages() -> None:
    """By that name, messages are counted and schemas registered. Without `to`, nothing is shared."""
    sink = {"type": "kafka", "bootstrap": "h:1", "topic": "all"}
    rule = {"tables": "*.*", "to": "clean.{table}"}
    tables = (schema("a.orders"), schema("b.orders"), schema("b.items"))
    assert parked(*tables, sink=sink) == {}
    found = parked(*tables, sink=sink, transforms=[rule])
    assert list(found) == ["orders"] and "clean.orders" in found["orders"]


@pytest.mark.parametrize(("phase", "unfinished"), [(READ, True), (PARKED, False)])
def test_rows_that_are_read_again_by_a_signal_are_waited_for_if_their_table_goes_on(
    phase: Phase, unfinished: bool
) -> None:
    table = TableState(schema("orders"), Offset(4), phase)
    partial = PartialSnapshot(1, "signal", table.table, Offset(4), Part())
    assert is_unfinished({table.table: table}, [partial]) == unfinished
    assert not is_unfinished({}, [partial]), "the table has been removed"


def test_a_table_whose_target_is_that_of_shards_is_parked() -> None:
    """`into` is compared with targets of other tables as these are with each other."""
    rule = {"tables": "*.part_*", "into": "shop.orders", "shard_column": "shard"}
    tables = {
        one.table: TableState(one, Offset(0), READING)
        for one in (schema("orders"), schema("part_1"), schema("part_2"), schema("other"))
    }
    found = parking.parked_when_found(tables, set(tables), {}, config(merge_shards=[rule]))
    assert set(found) == {name("part_1"), name("part_2")}
    assert all("shop.orders, is that of shop.orders already" in why for why, _ in found.values())
    known = {name("part_1"): replace(tables[name("part_1")], last_epoch=1)}
    found = parking.parked_when_found(
        tables | known, set(tables) - set(known), {}, config(merge_shards=[rule])
    )
    assert list(found) == [name("orders")] and "the shards `into: shop.orders`" in found[name("orders")][0]
