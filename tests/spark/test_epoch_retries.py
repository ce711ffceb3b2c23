"""How often a step of an epoch is tried again, and what the driver does itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import Accumulator
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

from penstock.config import EpochConfig, RetriesConfig
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.errors import ConfigError, DriverReplaced, GrantMissing, TargetRefused, TransientError
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.plan import (
    ApplyEvents,
    CreateTarget,
    DropTarget,
    EpochPlan,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.model.table import new_table
from penstock.relaylog.outline import Outlines
from penstock.relaylog.split_sources import SplitSources
from penstock.sinks.base import Commit, Missing
from penstock.spark.epochs import EpochLog, EpochRunner, EpochSettings
from penstock.spark.steps import StepRows
from penstock.state import StateStore
from penstock.store.opening import open_store

SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", "int", nullable=False),), ("id",))
PLAN = EpochPlan(1, LogRange(Offset(4), Offset(100)), (TablePlan(SCHEMA, (CreateTarget(),)),))
NOTHING: Any = None
IMAGES = IncompleteImages(NOTHING, DEFAULT_TYPES, everywhere=False)


class Spark:
    """As much of a session as a runner asks for without a job."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> Spark:
        return self

    def setLocalProperty(self, name: str, value: str) -> None:
        pass

    def accumulator(self, value: Any, param: Any) -> Accumulator[Any]:
        return Accumulator(-1, value, param)


class Sink:
    """Fails to make a target as often as it is told."""

    append_only = False

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def truncate(self, table: TableId, commit: Commit, **_: Any) -> bool:
        return False  # it is recorded

    def create(self, schema: TableSchema, arrow: Any) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore(tmp_path / "state")) as state:
        yield state


def runner(state: StateStore, sink: Sink, **options: Any) -> EpochRunner:
    spark: Any = Spark()
    target: Any = sink
    settings = EpochSettings(
        types=DEFAULT_TYPES,
        epoch=EpochConfig(),
        retries=RetriesConfig.model_validate({"wait_max": 1, **options}),
        narrowing="keep",
        rereads_max=0,
    )
    sources = SplitSources(state.path.parent / "relay")
    store = open_store((state.path.parent / "staging").absolute().as_uri())
    return EpochRunner(spark, target, state, store, EpochLog(IMAGES, NOTHING, sources), settings)


@pytest.mark.parametrize("attempts_max", [1, 3])
def test_a_step_that_fails_for_an_unknown_reason_is_tried_as_often_as_the_option_says(
    state: StateStore, attempts_max: int
) -> None:
    sink = Sink(*[RuntimeError("why?")] * 10)
    with pytest.raises(RuntimeError, match="why"):
        runner(state, sink, attempts_max=attempts_max)._run(PLAN)
    assert sink.calls == attempts_max


def test_a_passing_fault_is_waited_out_however_long_it_takes(state: StateStore) -> None:
    sink = Sink(*[TransientError("the store does not answer")] * 9)
    epochs = runner(state, sink, attempts_max=2)
    assert epochs._run(PLAN)[0].parked is None and sink.calls == 10
    assert epochs.retries.to_json("epoch") == [], "nothing is tried any more"


class RecordedViews:
    is_due = False

    def __init__(self) -> None:
        self.refreshed = 0
        self.is_behind = False

    def refresh(self) -> None:
        self.refreshed += 1


def test_views_are_refreshed_at_the_start_and_never_between_the_targets_of_an_epoch(
    state: StateStore,
) -> None:
    epochs, views = runner(state, Sink(ConfigError("the disk is full"))), RecordedViews()
    epochs._views = views
    assert not epochs.views_follow
    epochs.begin(lambda *_: None)
    epochs._run_pending()
    assert epochs.views_follow and views.refreshed == 1, "without an epoch"
    views.is_behind = True
    assert not epochs.views_follow
    views.is_behind = False
    state.put_table(new_table(SCHEMA, Offset(0), reads=False, append_only=False))
    state.plan(PLAN)
    with pytest.raises(ConfigError):
        epochs._run_pending()
    assert not epochs.views_follow and views.refreshed == 1
    epochs._run_pending()
    assert epochs.views_follow and views.refreshed == 2


def test_an_error_that_says_who_must_act_is_not_tried_again(state: StateStore) -> None:
    sink = Sink(ConfigError("the disk is full"))
    with pytest.raises(ConfigError):
        runner(state, sink)._run(PLAN)
    assert sink.calls == 1


def test_an_epoch_of_this_run_that_a_target_has_already_was_written_by_another_driver(
    state: StateStore,
) -> None:
    plan = EpochPlan(1, LogRange(Offset(4), Offset(100)), (TablePlan(SCHEMA, (TruncateTarget(None),)),))
    epochs = runner(state, Sink())
    parked = epochs._run(plan)[0].parked
    assert parked is not None and "another driver" in parked.message and parked.details["read_again"]
    assert epochs._run(plan)[0].parked is None, "repeated: now it may be this run's own commit"


def test_an_epoch_of_an_earlier_run_may_be_recorded(state: StateStore) -> None:
    plan = EpochPlan(1, LogRange(Offset(4), Offset(100)), (TablePlan(SCHEMA, (TruncateTarget(None),)),))
    state.put_table(new_table(SCHEMA, Offset(0), reads=False, append_only=False))
    state.plan(plan)
    assert runner(state, Sink())._run(plan)[0].parked is None


def test_nothing_is_written_once_another_driver_has_taken_over(state: StateStore) -> None:
    def refuse() -> None:
        raise DriverReplaced("another driver has taken over")

    sink = Sink()
    epochs = runner(state, sink)
    epochs._may_write = refuse
    with pytest.raises(DriverReplaced):
        epochs._run(PLAN)
    assert sink.calls == 0


def test_epochs_wait_while_it_is_unknown_whether_another_driver_has_taken_over(state: StateStore) -> None:
    answers: list[Exception] = [TransientError("no answer"), TransientError("no answer")]

    def unknown() -> None:
        if answers:
            raise answers.pop()

    sink = Sink()
    epochs = runner(state, sink)
    epochs._may_write = unknown
    assert epochs._run(PLAN)[0].parked is None and sink.calls == 1 and not answers


@pytest.mark.parametrize(
    ("bytes_max", "driver_side"), [(0, False), (999, False), (1000, True), ("16MiB", True)]
)
def test_the_driver_itself_decodes_as_much_of_a_table_as_the_option_says(
    state: StateStore, bytes_max: int | str, driver_side: bool
) -> None:
    epoch = EpochConfig.model_validate({"driver_bytes_max": bytes_max})
    spark: Any = Spark()
    rows = StepRows(
        spark,
        state,
        IMAGES,
        NOTHING,
        types=DEFAULT_TYPES,
        before_images=True,
        driver_bytes_max=epoch.driver_bytes_max,
    )  # fmt: skip
    split = Split("segment", Offset(0), Offset(4), Offset(100))
    found = rows.events(SCHEMA, ApplyEvents((split,), "merge", 1000, newer=True), Outlines({}))
    assert (found.driver_side is not None) == driver_side


OTHER = TableSchema(TableId("shop", "other"), SCHEMA.columns, ("id",))
BOTH = EpochPlan(1, PLAN.range, tuple(TablePlan(one, (CreateTarget(),)) for one in (SCHEMA, OTHER)))


class SinkOfTwo(Sink):
    """Fails with the target of one table."""

    def create(self, schema: TableSchema, arrow: Any) -> None:
        if schema == SCHEMA:
            super().create(schema, arrow)


@pytest.mark.parametrize(
    "error",
    [
        AnalysisException("[NULLABLE_ROW_ID_ATTRIBUTES] Row ID attributes: secret"),
        IllegalArgumentException("Provided metadata schema is incompatible: secret"),
        AssertionError("secret"),
        ConfigError("The target of shop.orders is taken.", table="shop.orders"),
    ],
)
def test_an_error_of_one_table_parks_it_after_some_attempts_and_holds_no_other(
    state: StateStore, error: Exception
) -> None:
    sink = SinkOfTwo(*[error] * 10)
    first, second = runner(state, sink, attempts_max=2)._run(BOTH)
    assert first.parked is not None and second.parked is None
    assert sink.calls == (1 if isinstance(error, ConfigError) else 2)
    assert "secret" not in f"{first.parked} {first.parked.to_json()}"


DROPS = EpochPlan(1, PLAN.range, (TablePlan(SCHEMA, (DropTarget(),)),))


def test_an_outage_is_waited_out_also_when_a_target_is_opened_before_its_first_step(
    state: StateStore,
) -> None:
    class Opened(Sink):
        def open(self, table: TableId) -> Missing:
            super().create(SCHEMA, None)
            return Missing()

    sink = Opened(*[TransientError("the server is away")] * 4)
    assert runner(state, sink, attempts_max=2)._run(DROPS)[0].dropped and sink.calls == 5


REFUSED = TargetRefused("The server refuses the account.")
LACKING = GrantMissing("The account may not write.", hint="GRANT it.", table="shop.orders")


@pytest.mark.parametrize("error", [REFUSED, LACKING], ids=["login", "grant"])
def test_a_refused_account_ends_a_run_that_has_applied_nothing(state: StateStore, error: Exception) -> None:
    with pytest.raises(TargetRefused):
        runner(state, SinkOfTwo(*[error] * 10), attempts_max=1)._run(BOTH)


def test_a_refused_account_is_waited_for_in_a_run_that_has_applied_an_epoch(state: StateStore) -> None:
    sink = SinkOfTwo()
    epochs = runner(state, sink, attempts_max=1)
    epochs._run(BOTH)
    sink.errors = [REFUSED] * 4
    assert [one.parked for one in epochs._run(BOTH)] == [None, None] and sink.calls == 6


def test_a_grant_that_only_one_table_lacks_parks_it_in_a_run_that_has_applied_an_epoch(
    state: StateStore,
) -> None:
    sink = SinkOfTwo()
    epochs = runner(state, sink, attempts_max=2)
    epochs._run(BOTH)
    sink.errors = [LACKING] * 9
    first, second = epochs._run(BOTH)
    assert first.parked is not None and "GRANT it. Then run `penstock unpark" in first.parked.hint
    assert second.parked is None


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), DriverReplaced("by another one", table="shop.orders"),
              MemoryError(), PySparkException("Job aborted due to stage failure: ExecutorLostFailure")],
)  # fmt: skip
def test_an_error_that_may_concern_every_table_parks_none(state: StateStore, error: Exception) -> None:
    with pytest.raises(type(error)):
        runner(state, SinkOfTwo(*[error] * 10), attempts_max=1)._run(BOTH)
