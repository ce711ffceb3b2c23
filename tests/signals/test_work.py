"""What signals do to the state, and what becomes of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.phases import DROPPED, LOG_ONLY, PARKED, READ, READING, SPLITTING

from penstock.config import TablesConfig
from penstock.config import parse as parse_config
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.signal import Signal
from penstock.model.table import CatchingUp, Parked, ResnapshotPending, TableState
from penstock.secret import REVEALED
from penstock.signals.settings import (
    apply_patterns,
    is_paused,
    limits_by_signal,
    to_resnapshot,
    with_signals,
)
from penstock.signals.work import Signals
from penstock.sinks.changelog.options import ParquetOptions
from penstock.sources.catalog import Catalog
from penstock.sources.mysql.condition import LEXIS
from penstock.sources.mysql.snapshot.keys import key_literal
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "lines")
CONFIG = parse_config(
    {
        "name": "x",
        "source": {"user": "u"},
        "tables": ["shop.*"],
        "state": "/nowhere",
        "sink": {"type": "iceberg"},
    }
)


def schema(table: TableId) -> TableSchema:
    columns = (Column("id", "int", column_type="int", nullable=False), Column("n", "int", column_type="int"))
    return TableSchema(table, columns, ("id",))


@dataclass
class Pipeline:
    """What the loop of a pipeline gives to signals. `ready`: new tables can be found."""

    folder: Path
    ready: bool = True
    refuses: str = ""
    limits: list[dict[str, int]] = field(default_factory=list)
    renewed: int = 0
    creates: dict[TableId, TableState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()
        for table in (ORDERS, LINES):
            self.state.put_table(TableState(schema(table), Offset(10), READ, last_epoch=1))
        self.state.advance(Offset(100))

    def start(self) -> None:
        self.state = StateStore(self.folder)
        self.captured = TableFilter(CONFIG.tables)
        apply_patterns(self.captured, CONFIG.tables, self.state)
        self.signals = Signals(
            self.state, CONFIG, self.captured, [], discover=self.discover, catalog=cast(Catalog, self),
            unpark=lambda table: {"ok": True, "action": "none"}, limit=self.limits.append,
            advance_log=self.renew,
        )  # fmt: skip

    def discover(self, reads: bool) -> None:
        if not self.ready:
            raise TransientError("the log is behind")
        for table, found in self.creates.items():
            if table in self.captured and self.state.table(table) is None:
                self.state.put_table(replace(found, phase=SPLITTING if reads else LOG_ONLY))

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        LEXIS.check_plain(condition)
        if self.refuses:
            raise ConfigError(self.refuses)

    def key_literal(self, column: Column, value: Any) -> str:
        return key_literal(column, value)

    def renew(self) -> None:
        self.renewed += 1

    def send(self, kind: str, data: dict[str, Any], signal_id: str = "s") -> Signal:
        self.state.send(signal_id, kind, data, "test")
        return self.work(signal_id)

    def work(self, signal_id: str = "s") -> Signal:
        self.signals._next_check = 0.0  # a second has passed
        self.signals.work()
        found = self.state.signal(signal_id)
        assert found is not None
        return found

    def table(self, name: TableId) -> TableState:
        found = self.state.table(name)
        assert found is not None
        return found


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


WHOLE = {"data-collections": ["shop.orders"]}
PART = WHOLE | {"additional-conditions": [{"data-collection": "shop.orders", "filter": "n > 5"}]}


def test_a_resnapshot_is_pending_and_done_once_it_has_been_read(pipeline: Pipeline) -> None:
    assert pipeline.send("execute-snapshot", WHOLE).status == "running"
    assert pipeline.table(ORDERS).phase == ResnapshotPending("signal s")
    assert pipeline.table(LINES).phase == READ and pipeline.renewed
    begun = replace(pipeline.table(ORDERS), start=Offset(120), phase=READING)
    pipeline.state.put_table(begun)
    assert pipeline.work().answer["tables"]["shop.orders"]["status"] == "reading"
    pipeline.state.put_table(replace(begun, phase=READ))
    assert pipeline.work().status == "done"


def test_a_table_that_cannot_be_read_makes_its_signal_fail_and_says_why(pipeline: Pipeline) -> None:
    pipeline.send("execute-snapshot", WHOLE)
    pipeline.state.park(ORDERS, offset=Offset(130), reason="no grant", hint="GRANT it")
    found = pipeline.work()
    assert found.status == "failed" and found.answer["tables"]["shop.orders"]["reason"] == "no grant"


def test_a_part_is_read_beside_the_log_and_the_table_goes_on(pipeline: Pipeline) -> None:
    pipeline.send("execute-snapshot", PART)
    [part] = pipeline.state.partials()
    assert (part.table, part.since, part.part.condition) == (ORDERS, 100, "n > 5")
    assert pipeline.table(ORDERS).streaming
    pipeline.state.end_partial(part.number, "done")
    assert pipeline.work().status == "done"


def test_a_table_that_is_dropped_ends_what_is_read_of_it(pipeline: Pipeline) -> None:
    pipeline.send("execute-snapshot", PART)
    pipeline.state.put_table(replace(pipeline.table(ORDERS), phase=replace(DROPPED, reason="gone")))
    assert pipeline.work().status == "failed" and not pipeline.state.partials()


def test_signals_are_gone_on_with_after_a_restart_and_never_done_twice(pipeline: Pipeline) -> None:
    pipeline.send("execute-snapshot", PART)
    pipeline.state.close()
    pipeline.start()
    assert not pipeline.state.send("s", "execute-snapshot", PART, "test")
    assert pipeline.work().status == "running" and len(pipeline.state.partials()) == 1


@pytest.mark.parametrize(
    ("data", "change", "named"),
    [
        ({"data-collections": ["shop.none"]}, {}, "shop.none"),
        (PART, {"phase": ResnapshotPending("so")}, "full resnapshot is pending"),
        (PART, {"phase": PARKED}, "parked"),
        (PART, {"schema": replace(schema(ORDERS), key=())}, "no key"),
        (WHOLE | {"keys": ["x"]}, {}, "'x'"),
        (WHOLE | {"from": [1, 2]}, {}, "the key of shop.orders"),
        (
            WHOLE | {"additional-conditions": [{"data-collection": "shop.orders", "filter": "1) OR (1"}]},
            {},
            "plain",
        ),
        (
            WHOLE | {"additional-conditions": [{"data-collection": "shop.lines", "filter": "1"}]},
            {},
            "shop.lines",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    data: dict[str, Any], change: dict[str, Any], named: str, pipeline: Pipeline
) -> None:
    before = replace(pipeline.table(ORDERS), **change)
    pipeline.state.put_table(before)
    found = pipeline.send("execute-snapshot", data)
    assert found.status == "refused" and named in found.answer["message"]
    assert pipeline.table(ORDERS) == before and not pipeline.state.partials()


def test_a_condition_that_the_source_refuses_is_refused(pipeline: Pipeline) -> None:
    pipeline.refuses = "Unknown column 'm'"
    assert pipeline.send("execute-snapshot", PART).answer["message"] == "Unknown column 'm'"


def test_a_fault_of_ours_refuses_the_signal_and_does_not_end_the_pipeline(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise KeyError("no such key")

    monkeypatch.setattr(pipeline, "check_condition", fault)
    pipeline.start()
    found = pipeline.send("execute-snapshot", PART)
    assert found.status == "refused" and "KeyError" in found.answer["message"]
    assert not pipeline.state.partials()


def test_a_source_that_is_away_is_waited_for(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise TransientError("away")

    monkeypatch.setattr(pipeline, "check_condition", away)
    pipeline.start()
    assert pipeline.send("execute-snapshot", PART).status == "accepted"
    monkeypatch.undo()
    pipeline.start()
    assert pipeline.work().status == "running"


def test_snapshots_pause_and_resume_and_that_lasts(pipeline: Pipeline) -> None:
    pipeline.send("pause-snapshot", WHOLE, "1")
    assert is_paused(pipeline.state, ORDERS) and not is_paused(pipeline.state, LINES)
    pipeline.send("pause-snapshot", {}, "2")
    pipeline.state.close()
    pipeline.start()
    assert is_paused(pipeline.state, LINES)
    assert pipeline.send("resume-snapshot", WHOLE, "3").status == "refused", "all are paused"
    pipeline.send("resume-snapshot", {}, "4")
    assert not is_paused(pipeline.state, ORDERS)


def test_a_whole_read_that_is_stopped_parks_its_table(pipeline: Pipeline) -> None:
    pipeline.state.put_table(replace(pipeline.table(ORDERS), phase=READING))
    pipeline.send("stop-snapshot", {})
    phase = pipeline.table(ORDERS).phase
    assert isinstance(phase, Parked) and "before all rows were read" in phase.reason
    assert pipeline.table(LINES).status == "live"


def test_tables_that_are_removed_stay_so_until_they_are_added(pipeline: Pipeline) -> None:
    pipeline.send("remove-table", {"tables": ["shop.orders"]}, "1")
    assert pipeline.table(ORDERS).status == "removed"
    pipeline.state.close()
    pipeline.start()
    assert ORDERS not in pipeline.captured and LINES in pipeline.captured
    assert pipeline.send("park", {"tables": ["shop.orders"]}, "2").status == "refused"
    assert pipeline.send("add-table", {"tables": ["shop.orders"]}, "3").status == "running"
    assert ORDERS in pipeline.captured and pipeline.table(ORDERS).phase == ResnapshotPending("signal 3")


def test_a_table_that_the_file_does_not_name_any_more_is_left_until_it_is_named_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**tables: list[str]) -> None:
        pipeline.state.close()
        monkeypatch.setattr(
            sys.modules[__name__], "CONFIG", CONFIG.model_copy(update={"tables": TablesConfig(**tables)})
        )
        pipeline.start()
        pipeline.signals.work()

    start(include=["shop.*"], exclude=["shop.orders"])
    assert pipeline.table(ORDERS).status == "removed" and pipeline.table(LINES).status == "live"
    start(include=["shop.orders"])
    assert pipeline.table(ORDERS).phase == ResnapshotPending("`tables` names it again")
    assert pipeline.table(LINES).status == "removed"
    assert pipeline.send("add-table", {"tables": ["shop.lines"]}, "1").status == "running"
    assert pipeline.table(LINES).phase == ResnapshotPending("signal 1")


def test_a_table_is_added_once_it_can_be_found(pipeline: Pipeline) -> None:
    other = TableId("crm", "people")
    pipeline.creates[other] = TableState(schema(other), Offset(100), LOG_ONLY)
    pipeline.ready = False
    assert pipeline.send("add-table", {"tables": ["crm.*"]}).status == "running"
    pipeline.ready = True
    assert pipeline.work().answer["tables"] == {"crm.people": {"reads": "whole table", "status": "reading"}}
    pipeline.state.put_table(replace(pipeline.table(other), phase=READ))
    assert pipeline.work().status == "done"


def test_a_pattern_that_no_table_fits_yet_is_kept(pipeline: Pipeline) -> None:
    found = pipeline.send("add-table", {"tables": ["crm.*"]})
    assert found.status == "done" and "will be followed" in found.answer["note"]
    assert TableId("crm", "later") in pipeline.captured


def test_a_table_that_is_parked_may_go_on_from_where_it_is(pipeline: Pipeline) -> None:
    pipeline.state.put_table(replace(pipeline.table(LINES), phase=READING))
    pipeline.send("park", {"tables": ["shop.*"], "reason": "a migration"})
    goes_on, stays = (pipeline.table(name).phase for name in (ORDERS, LINES))
    assert isinstance(goes_on, Parked) and goes_on.reason == "a migration"
    assert goes_on.resumes == CatchingUp(Offset(100), READ)
    assert isinstance(stays, Parked) and stays.resumes is None, "rows of it were still to be read"


def test_limits_hold_from_now_on_and_after_a_restart(pipeline: Pipeline) -> None:
    pipeline.send("set-limits", {"parallel": 1}, "1")
    pipeline.send("set-limits", {"rows_per_second": 500}, "2")
    assert pipeline.limits == [{"parallel": 1}, {"parallel": 1, "rows_per_second": 500}]
    assert limits_by_signal(pipeline.state) == pipeline.limits[-1]


def test_a_fresh_target_is_for_whole_tables_that_have_one(pipeline: Pipeline) -> None:
    pipeline.state.put_table(replace(pipeline.table(LINES), last_epoch=0))
    both = {"data-collections": ["shop.*"], "target": "recreate"}
    assert pipeline.send("execute-snapshot", both).status == "running"
    assert [pipeline.table(one).target_reset for one in (ORDERS, LINES)] == ["recreate", "none"]
    assert to_resnapshot(CONFIG, pipeline.state)["renewed"] == {ORDERS}
    refused = pipeline.send("execute-snapshot", PART | {"target": "recreate"}, "part")
    assert refused.status == "refused" and "whole tables" in refused.answer["message"]


def test_what_accepted_signals_want_read_again_is_known_before_they_are_done(pipeline: Pipeline) -> None:
    pipeline.state.send("a", "execute-snapshot", WHOLE | {"target": "recreate"}, "test")
    pipeline.state.send("b", "execute-snapshot", {"data-collections": ["shop.lines"]}, "test")
    pipeline.state.send("c", "execute-snapshot", {"data-collections": ["other.*"]}, "test")
    assert to_resnapshot(CONFIG, pipeline.state) == {"asked": {ORDERS, LINES}, "renewed": {ORDERS}}


def test_the_target_of_a_change_log_is_never_recreated(pipeline: Pipeline) -> None:
    """The signal is refused once the pipeline runs; until then the target is left alone."""
    pipeline.state.send("a", "execute-snapshot", WHOLE | {"target": "recreate"}, "test")
    config = CONFIG.model_copy(update={"sink": ParquetOptions(type="parquet", path=Path("/nowhere"))})
    assert to_resnapshot(config, pipeline.state) == {"asked": {ORDERS}, "renewed": set()}


def test_parts_that_are_asked_for_leave_their_tables_to_be_checked(pipeline: Pipeline) -> None:
    pipeline.state.send("a", "execute-snapshot", PART, "test")
    pipeline.state.send("b", "execute-snapshot", WHOLE | {"keys": [[5]]}, "test")
    assert to_resnapshot(CONFIG, pipeline.state) == {"asked": set(), "renewed": set()}


def test_a_dropped_table_is_read_again_if_it_is_named(pipeline: Pipeline) -> None:
    pipeline.state.put_table(replace(pipeline.table(ORDERS), phase=DROPPED))
    pipeline.send("execute-snapshot", {"data-collections": ["shop.*"]}, "all")
    assert pipeline.table(ORDERS).gone and pipeline.table(LINES).resnapshot_pending
    assert pipeline.send("execute-snapshot", WHOLE).status == "running"
    assert pipeline.table(ORDERS).phase == ResnapshotPending("signal s")


def test_what_is_looked_at_before_a_start_is_what_signals_have_made_of_the_tables(pipeline: Pipeline) -> None:
    pipeline.send("add-table", {"tables": ["other.new_*"]}, "a")
    pipeline.send("remove-table", {"tables": ["shop.lines"]}, "b")
    told = with_signals(CONFIG, pipeline.state)
    assert told.tables.include == ["shop.*", "other.new_*"]
    found = TableFilter(told.tables)
    assert ORDERS in found and TableId("other", "new_1") in found and LINES not in found
    assert CONFIG.tables.include == ["shop.*"]


def test_a_target_of_several_tables_is_not_made_anew(pipeline: Pipeline) -> None:
    rule = {"tables": ["shop.orders", "shop.lines"], "into": "shop.all"}
    told = CONFIG.model_dump(mode="json", by_alias=True, context=REVEALED) | {"merge_shards": [rule]}
    pipeline.signals._config = parse_config(told)
    refused = pipeline.send("execute-snapshot", WHOLE | {"target": "recreate"})
    assert refused.status == "refused" and "other tables" in refused.answer["message"]
    assert pipeline.table(ORDERS).phase == READ and pipeline.table(ORDERS).target_reset == "none"
