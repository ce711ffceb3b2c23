from __future__ import annotations

from penstock.errors import TransientError
from penstock.model.schema import TableId
from penstock.snapshot.retries import Retries

TABLE = TableId("shop", "orders")


def test_what_is_tried_again_is_told_since_its_first_failure_until_it_succeeds() -> None:
    retries = Retries()
    assert retries.to_json("snapshot") == []
    retries.ended(TABLE)
    retries.failed(TABLE, TransientError("It does not answer.\nMore.", hint="Wait."))
    [first] = retries.to_json("snapshot")
    retries.failed(TABLE, TimeoutError("timed out"))
    retries.failed(None, TransientError("Nothing."))
    told, planning = retries.to_json("snapshot")
    assert first["reason"] == "It does not answer." and first["attempts"] == 1
    assert told == {**first, "reason": "timed out", "attempts": 2}
    assert planning["table"] is None
    retries.ended(TABLE)
    assert [one["table"] for one in retries.to_json("snapshot")] == [None]
    retries.ended(None)
    assert retries.to_json("snapshot") == []


def test_what_is_no_longer_worked_on_is_told_no_more() -> None:
    retries = Retries()
    other = TableId("shop", "other")
    for table in (TABLE, other, None):
        retries.failed(table, TransientError("It does not answer."))
    retries.keep_only({TABLE})
    assert [one["table"] for one in retries.to_json("snapshot")] == [str(TABLE), None]
    retries.clear()
    assert retries.to_json("snapshot") == []


def test_a_reason_may_be_given() -> None:
    retries = Retries()
    retries.failed(TABLE, RuntimeError("rows: 1, 2, 3"), "A disk is full.")
    assert retries.to_json("epoch")[0]["reason"] == "A disk is full."
