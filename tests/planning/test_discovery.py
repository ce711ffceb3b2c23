"""A table that is read again from its beginning: what becomes of its target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.phases import READ, SPLITTING

from penstock.config import parse as parse_config
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.planning import discovery
from penstock.sinks.base import Ours
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

T = TableId("shop", "t")
SCHEMA = TableSchema(T, (Column("id", "int"),), ("id",))
OLD = TableState(SCHEMA, Offset(10), READ, written=True, last_epoch=3)


def source_with(patch: pytest.MonkeyPatch, at: Offset) -> Any:
    """A source whose definitions hold at `at`. It says that no table can be followed, once it was asked for
    definitions; before that, all can."""
    asked: list[bool] = []

    def at_one_offset(*_: Any, **__: Any) -> Any:
        asked.append(True)
        return {T: SCHEMA}, at, set()

    def unfollowable(tables: Any, *, cascades: bool, reads: bool) -> dict[TableId, tuple[str, str]]:
        return dict.fromkeys(tables, ("late", "")) if asked and late else {}

    late: list[bool] = []
    patch.setattr(discovery, "at_one_offset", at_one_offset)
    catalog = SimpleNamespace(
        reads_tables=True, cascade_reason=lambda table: ("", ""), unfollowable=unfollowable,
        add_key=lambda table: "add a key",
    )  # fmt: skip
    return SimpleNamespace(catalog=catalog, late=late)


def restarted(folder: Path, patch: pytest.MonkeyPatch, old: TableState, sink: Any) -> TableState:
    config = parse_config(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(folder),
         "sink": {"type": "iceberg"}}
    )  # fmt: skip
    state = StateStore(folder)
    state.put_table(old)
    nothing: Any = None
    source = source_with(patch, Offset(90))
    discovery.restart_table(state, nothing, source, T, config, open_target=sink.open, wait=nothing)
    found = state.table(T)
    assert found is not None and found.start == 90 and found.phase == SPLITTING
    return found


def sink_with(target: Any) -> Any:
    return SimpleNamespace(open=lambda table: target)


def test_rows_of_before_stay_until_all_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = restarted(tmp_path, monkeypatch, OLD, sink_with(Ours(None, ("id",), False)))
    assert (found.written, found.replaces, found.target_reset, found.last_epoch) == (True, 90, "none", 3)


def test_rows_of_before_go_at_once_if_the_new_key_tells_them_not_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(SCHEMA, columns=(*SCHEMA.columns, Column("k", "int")), key=(*SCHEMA.key, "k"))
    old = replace(OLD, schema=other)
    found = restarted(tmp_path, monkeypatch, old, sink_with(Ours(None, ("id", "k"), False)))
    assert found.target_reset == "truncate"


def test_columns_that_somebody_has_removed_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Ours(None, (), False, lost_columns=("id",))
    assert restarted(tmp_path, monkeypatch, OLD, sink_with(target)).target_reset == "evolve"


def test_a_fresh_target_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SimpleNamespace(open=None)  # it cannot be opened
    found = restarted(tmp_path, monkeypatch, replace(OLD, target_reset="recreate"), sink)
    assert (found.written, found.replaces, found.target_reset, found.last_epoch) == (False, 0, "recreate", 0)


def test_a_target_that_was_still_to_be_emptied_holds_rows_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = replace(OLD, written=False, target_reset="truncate")
    found = restarted(tmp_path, monkeypatch, old, sink_with(Ours(None, ("id",), False)))
    assert found.written and found.replaces == 90


@pytest.mark.parametrize(
    ("planned", "catalog_at", "start"),
    [
        (900, 950, 950),  # events before 950 may have another definition
        (950, 900, 950),  # a plan to 950 has left the table out, and stays as it is
    ],
)
def test_a_table_that_is_found_starts_where_no_plan_and_no_older_definition_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: int, catalog_at: int, start: int
) -> None:
    found = discovered(tmp_path, monkeypatch, Offset(planned), Offset(catalog_at))
    assert found.start == start and found.phase == SPLITTING


def test_the_first_tables_of_a_pipeline_start_where_its_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert discovered(tmp_path, monkeypatch, None, Offset(950), log_begins="earliest").start == 4
    assert discovered(tmp_path / "latest", monkeypatch, None, Offset(950)).start == 950


def test_what_keeps_a_table_from_being_followed_is_asked_after_its_start_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a foreign key that is made in between is neither found nor in the log behind the start."""
    found = discovered(tmp_path, monkeypatch, None, Offset(950), late=True)
    assert found.parked is not None and found.parked.reason == "late"


def discovered(
    folder: Path,
    patch: pytest.MonkeyPatch,
    planned: Offset | None,
    catalog_at: Offset,
    *,
    late: bool = False,
    log_begins: str = "latest",
) -> TableState:
    """The table of a catalog that was read at an offset, in a pipeline whose plans reach to another one."""
    config = parse_config(
        {"name": "x", "source": {"user": "u", "start": log_begins}, "tables": ["shop.*"],
         "state": str(folder), "sink": {"type": "iceberg"}}
    )  # fmt: skip
    state = StateStore(folder)
    if planned is not None:
        state.advance(planned)
    log: Any = SimpleNamespace(start=Offset(4), end=Offset(1000))
    source = source_with(patch, catalog_at)
    source.late += [True] if late else []
    nothing: Any = None
    discovery.discover(
        state,
        log,
        source,
        TableFilter(config.tables),
        config,
        append_only=False,
        wait=nothing,
    )
    found = state.table(T)
    assert found is not None
    return found


def test_nobody_is_asked_for_tables_if_all_come_from_the_log(tmp_path: Path) -> None:
    config = parse_config(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(tmp_path),
         "sink": {"type": "iceberg"}}
    )  # fmt: skip
    nothing: Any = None
    state, source = StateStore(tmp_path), SimpleNamespace(catalog=SimpleNamespace(reads_tables=False))
    log: Any = SimpleNamespace(start=Offset(119))
    discovery.discover(state, log, source, nothing, config, append_only=False, wait=nothing)
    assert state.position == 119 and state.tables() == {}
