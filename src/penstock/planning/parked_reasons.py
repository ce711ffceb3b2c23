"""Checks again why tables are parked, so that nobody mends a cause twice.

No parked table comes back because its cause is gone: the operator decides when, by `penstock unpark`. But its
hint says so. A reason can be checked if Penstock finds it again by looking: at the table's definition (key,
names, foreign keys, versioning, the target's name) or at its target. A reason that was found again once, and
is not found any more, is mended. Other reasons (a row that fails, a statement, a policy, a signal) can only
be tried, by `penstock unpark`; nothing is said about them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock.config import PipelineConfig, TablesConfig
from penstock.errors import PenstockError
from penstock.model.pattern import exactly
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import Parked, TableState
from penstock.planning.parking import at_start
from penstock.printable import argument
from penstock.sources.catalog import Catalog, Reason
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

log = logging.getLogger(__name__)

CHECK_SECONDS = 30.0
"""Time between two checks. Each reads the definitions of the parked tables from the source."""
NEW_SECONDS = 2.0
"""The same while a reason is new: it is found while it is still there, so that its end is noticed."""
NAMED_MAX = 50
"""Parked tables whose definitions are asked for by name. If there are more, those of all tables are."""
FOUND = "reason found again in definition "
"""Key of the state store, before a table's name: the reason that was found again."""
FOUND_AT_TARGET = "reason found again at target "


def mended_hint(table: TableId) -> str:
    return f"Mended: the cause is gone. Run `penstock unpark FILE {argument(table)}`."


def is_parked(table: TableState) -> bool:
    return isinstance(table.phase, Parked)


def present_reasons(
    known: Mapping[TableId, TableState],
    schemas: Mapping[TableId, TableSchema],
    unfollowable: Mapping[TableId, Reason],
    config: PipelineConfig,
    catalog: Catalog,
) -> dict[TableId, Reason | None]:
    """Why each parked table would be parked if it were new, by its present definition; None: it would not be.
    Tables that `schemas` does not have are left out."""
    parked = {name for name, one in known.items() if is_parked(one) and name in schemas}
    tables = at_start(
        {name: one for name, one in known.items() if name not in parked},
        {name: schemas[name] for name in parked},
        unfollowable, config, catalog.cascade_reason,
        logs_cascades=catalog.logs_cascades, add_key=catalog.add_key,
    )  # fmt: skip
    found = {name: tables[name].parked for name in parked}
    return {name: None if why is None else (why.reason, why.hint) for name, why in found.items()}


def checked(table: TableState, present: Reason | None, found_before: str | None) -> TableState:
    """The parked table with what it says now. `found_before`: the reason that was found again at an earlier
    check."""
    assert isinstance(table.phase, Parked)
    if present is not None and table.phase.reason in (present[0], found_before):
        return replace(table, phase=replace(table.phase, reason=present[0], hint=present[1]))
    if present is None and table.phase.reason == found_before:
        return replace(table, phase=replace(table.phase, hint=mended_hint(table.table)))
    return table


class ParkedReasons:
    """Called between two epochs, like the planner. `target_reason`: why a table's target cannot be written.
    It is asked once for each reason, and again if it answered with that reason."""

    def __init__(
        self,
        state: StateStore,
        catalog: Catalog,
        captured: TableFilter,
        config: PipelineConfig,
        target_reason: Callable[[TableState], Reason | None],
    ) -> None:
        self._state = state
        self._catalog = catalog
        self._captured = captured
        self._config = config
        self._target_reason = target_reason
        self._seen: set[tuple[TableId, str]] = set()
        self._next = 0.0

    def work(self) -> None:
        """Writes what parked tables say now. Raises `TransientError` if the source does not answer."""
        parked = {one.table: one for one in self._state.tables_that(is_parked)}
        now = time.monotonic()
        new = [one for one in parked.values() if self._key(one) not in self._seen]
        if not parked or now < (self._next - CHECK_SECONDS + NEW_SECONDS if new else self._next):
            return
        self._next = now + CHECK_SECONDS
        present: dict[TableId, Reason | None] = dict.fromkeys(parked)
        if self._catalog.reads_tables:
            schemas = self._catalog.read_tables(self._filter(parked))
            asked = parked.keys() & schemas.keys()
            cascades, reads = self._config.cascades == "park", self._config.snapshot.mode != "never"
            unfollowable = self._catalog.unfollowable(asked, cascades=cascades, reads=reads) if asked else {}
            present = present_reasons(
                self._state.tables(), schemas, unfollowable, self._config, self._catalog
            )
        for name, why in present.items():
            self._check(parked[name], why)
        self._seen = {self._key(one) for one in self._state.tables_that(is_parked)}

    def _check(self, table: TableState, why: Reason | None) -> None:
        assert isinstance(table.phase, Parked)
        key, reason = FOUND + str(table.table), table.phase.reason
        if why is None and self._state.meta(key) != reason:
            key = FOUND_AT_TARGET + str(table.table)
            if self._key(table) in self._seen and self._state.meta(key) != reason:
                return
            try:
                why = self._target_reason(table)
            except PenstockError as error:
                log.info("the target of %s cannot be checked: %s", table.table, error)
                return
        before = self._state.meta(key)
        after = checked(table, why, before)
        with self._state.transaction():
            if why is not None and before != why[0] == (after.parked or table.phase).reason:
                self._state.set_meta(key, why[0])
            if after != table and self._state.table(table.table) == table:
                self._state.put_table(after)

    def _filter(self, tables: Iterable[TableId]) -> TableFilter:
        names = [exactly(table) for table in tables]
        if len(names) > NAMED_MAX:
            return self._captured
        return TableFilter(TablesConfig(include=names), fold_case=self._captured.fold_case)

    @staticmethod
    def _key(table: TableState) -> tuple[TableId, str]:
        return table.table, table.parked.reason if table.parked is not None else ""
