"""A Spark query that ends is started again, until its error has come too often or cannot pass."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.backoff import Schedule
from penstock.config import RetriesConfig
from penstock.errors import ConfigError, SparkFailed
from penstock.runtime import query_watch
from penstock.runtime.query_watch import QueryWatch

LOST = SparkFailed("an executor was lost")


class Query:
    """What Spark says of a query."""

    def __init__(self) -> None:
        self.isActive = True
        self.error: BaseException | None = LOST
        self.stopped = False

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


class Case:
    def __init__(self, **retries: Any) -> None:
        self.queries: list[Query] = []
        self.failure: BaseException | None = None
        self.told: list[BaseException] = []
        self.watch = QueryWatch(
            RetriesConfig(**retries), threading.Event(), start=self._start, failure=lambda: self.failure,
            failed=self.told.append,
        )  # fmt: skip
        self.watch.start()

    def _start(self) -> Query:
        self.queries.append(Query())
        return self.queries[-1]

    def end(self, error: BaseException | None = LOST) -> None:
        self.queries[-1].isActive = False
        self.queries[-1].error = error
        self.watch.check()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_watch, "RETRY", Schedule.steady(0.0))
    monkeypatch.setattr(query_watch, "LOOK_SECONDS", 0.0)


def test_a_query_that_lives_is_left_alone() -> None:
    case = Case()
    case.watch.check()
    assert len(case.queries) == 1 and case.told == []


@pytest.mark.parametrize("restarts_max", [0, 1, 4])
def test_it_is_started_again_as_often_as_the_option_says(restarts_max: int) -> None:
    case = Case(restarts_max=restarts_max)
    for _ in range(restarts_max):
        case.end()
    assert len(case.queries) == 1 + restarts_max and case.told == [LOST] * restarts_max
    with pytest.raises(SparkFailed):
        case.end()


def test_restarts_are_counted_from_the_last_applied_epoch_on() -> None:
    case = Case(restarts_max=1)
    for _ in range(5):
        case.end()
        case.watch.epoch_applied()
    assert len(case.queries) == 6


def test_an_error_that_cannot_pass_ends_the_run_at_once() -> None:
    case = Case()
    with pytest.raises(ConfigError):
        case.end(ConfigError("the target is gone"))
    assert len(case.queries) == 1


def test_what_ended_the_batch_is_told_rather_than_what_spark_makes_of_it() -> None:
    case = Case(restarts_max=0)
    case.failure = OSError("no space left")
    with pytest.raises(OSError, match="no space left"):
        case.end(SparkFailed("StreamingQueryException"))


def test_a_query_that_ends_without_a_word_is_started_again_too() -> None:
    case = Case()
    case.end(None)
    assert [type(error) for error in case.told] == [SparkFailed] and len(case.queries) == 2


def test_a_stop_stops_the_query_at_hand() -> None:
    case = Case()
    case.end()
    case.watch.stop()
    assert [query.stopped for query in case.queries] == [False, True]
