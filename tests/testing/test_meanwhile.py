from __future__ import annotations

from threading import Barrier, Event

import pytest

from penstock.testing.meanwhile import meanwhile


def test_works_go_on_side_by_side_until_the_block_ends() -> None:
    met, ended = Barrier(3, timeout=60), list[int]()

    def work(ending: Event) -> None:
        met.wait()
        assert ending.wait(60)
        ended.append(1)

    with meanwhile(work, work):
        met.wait()
        assert not ended
    assert len(ended) == 2


def test_what_a_work_raises_is_raised_after_the_block() -> None:
    reached = []

    def dies(ending: Event) -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"), meanwhile(dies):
        reached.append("the end of the block")
    assert reached


def test_a_block_that_fails_ends_its_works_and_its_error_has_theirs_as_its_cause() -> None:
    ended = Event()

    def dies(ending: Event) -> None:
        assert ending.wait(60)
        ended.set()
        raise ValueError("of the work")

    with pytest.raises(KeyError, match="of the block") as caught, meanwhile(dies):
        raise KeyError("of the block")
    assert ended.is_set() and str(caught.value.__cause__) == "of the work"
