"""What parked tables say once their cause is gone: they stay parked, and say how to bring them back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.planning.test_parking import config, name, schema

from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import Parked, Streaming, TableState, plain_add_key
from penstock.planning import parked_reasons
from penstock.planning.parked_reasons import ParkedReasons, mended_hint
from penstock.planning.parking import at_start
from penstock.sources.catalog import Reason
from penstock.sources.mysql.statements import cascade_reason
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

TAKEN = ("The target is taken.", "Drop it.")


class Catalog:
    """Definitions as a source has them now."""

    reads_tables = True
    logs_cascades = False
    cascade_reason = staticmethod(cascade_reason)
    add_key = staticmethod(plain_add_key)

    def __init__(self) -> None:
        self.schemas: dict[TableId, TableSchema] = {}
        self.cascading: set[TableId] = set()

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        return {table: one for table, one in self.schemas.items() if table in captured}

    def unfollowable(self, tables: Any, *, cascades: bool, reads: bool) -> dict[TableId, Reason]:
        return {table: cascade_reason(table) for table in tables if table in self.cascading and cascades}


class Case:
    """A pipeline with parked tables."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr(parked_reasons, "CHECK_SECONDS", 0.0)
        monkeypatch.setattr(parked_reasons, "NEW_SECONDS", 0.0)
        self.catalog = Catalog()
        self.state = StateStore(folder)
        self.config = config(**options)
        self.targets: dict[TableId, Reason] = {}
        self.opened: list[TableId] = []
        catalog: Any = self.catalog
        captured = TableFilter(self.config.tables)
        self.check = ParkedReasons(self.state, catalog, captured, self.config, self.target_reason)

    def target_reason(self, table: TableState) -> Reason | None:
        self.opened.append(table.table)
        return self.targets.get(table.table)

    def begin(self, *schemas: TableSchema) -> None:
        self.catalog.schemas = {one.table: one for one in schemas}
        asked = self.catalog.unfollowable(
            self.catalog.schemas, cascades=self.config.cascades == "park", reads=True
        )
        found = at_start(
            {}, self.catalog.schemas, asked, self.config, cascade_reason,
            logs_cascades=False, add_key=plain_add_key,
        )  # fmt: skip
        for table in found.values():
            self.state.put_table(table)

    def said(self, table: str) -> Parked:
        self.check.work()
        found = self.state.table(name(table))
        assert found is not None and isinstance(found.phase, Parked), "it does not come back by itself"
        return found.phase


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_a_table_that_has_got_a_key_says_that_it_is_mended_and_stays_parked(case: Case) -> None:
    case.begin(schema("t", key=False), schema("other"))
    before = case.said("t")
    assert "no primary key" in before.reason and "ADD" not in before.reason and "resnapshot" in before.hint
    case.catalog.schemas[name("t")] = schema("t")
    assert case.said("t") == replace(before, hint=mended_hint(name("t")))
    case.catalog.schemas[name("t")] = schema("t", key=False)
    assert case.said("t") == before, "and takes it back if the cause is there again"


def test_the_reason_is_the_present_one_if_another_cause_has_come(case: Case) -> None:
    case.catalog.cascading = {name("t")}
    case.begin(schema("t"))
    assert case.said("t").reason == cascade_reason(name("t"))[0]
    case.catalog.cascading = set()
    case.catalog.schemas[name("t")] = schema("t", key=False)
    assert "no primary key" in case.said("t").reason


def test_a_circle_that_was_opened_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, monkeypatch, cascades="apply")
    case.begin(schema("a", "b"), schema("b", "a"))
    assert "circle" in case.said("a").reason and "circle" in case.said("b").reason
    case.catalog.schemas[name("a")] = schema("a")
    assert case.said("a").hint == mended_hint(name("a")) and case.said("b").hint == mended_hint(name("b"))


def test_a_target_that_was_taken_is_looked_at_again(case: Case) -> None:
    case.begin(schema("t"), schema("u"))
    for table in ("t", "u"):
        case.state.park(name(table), offset=Offset(5), reason=TAKEN[0], hint=TAKEN[1])
    case.targets = {name("t"): TAKEN}
    assert case.said("t").hint == TAKEN[1]
    case.targets = {}
    assert case.said("t").hint == mended_hint(name("t"))
    assert case.opened.count(name("t")) > 1
    assert case.said("u").hint == TAKEN[1], "its reason was never found at the target: only a try can tell"
    assert case.opened.count(name("u")) == 1, "so nobody looks there again"


def test_what_only_a_try_can_tell_stays_as_it_is(case: Case) -> None:
    case.begin(schema("t"))
    case.state.park(name("t"), offset=Offset(5), reason="A row fails.", hint="Mend it.")
    assert (case.said("t").reason, case.said("t").hint) == ("A row fails.", "Mend it.")
    del case.catalog.schemas[name("t")]
    assert case.said("t").hint == "Mend it.", "nothing is known of a table that the source does not have"


def test_tables_that_are_not_parked_are_left_alone(case: Case) -> None:
    case.begin(schema("t"))
    case.check.work()
    found = case.state.table(name("t"))
    assert found is not None and isinstance(found.phase, Streaming) and not case.opened
