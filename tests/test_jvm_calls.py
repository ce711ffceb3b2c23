"""A test that is cut short inside a call of the JVM must not break those behind it."""

from __future__ import annotations

import signal
from types import FrameType

import pytest
from pyspark.sql import SparkSession
from tests import jvm_calls

SLEEP_MS, CUT_AFTER_S = 3000, 0.2


def test_the_answer_to_a_call_that_was_cut_short_is_not_taken_for_the_next(spark: SparkSession) -> None:
    def cut(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail("cut")

    before = signal.signal(signal.SIGALRM, cut)
    timer = signal.setitimer(signal.ITIMER_REAL, CUT_AFTER_S)
    try:
        with pytest.raises(pytest.fail.Exception, match="cut") as kept:
            spark._jvm.java.lang.Thread.sleep(SLEEP_MS)  # type: ignore[union-attr]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # the limit of the test itself
    jvm_calls.forget_connection()
    assert spark.range(3).count() == 3
    assert str(spark.conf.get("spark.app.name")) == "penstock-tests"
    assert kept.tb is not None, "as in a report, its traceback keeps the connection"
