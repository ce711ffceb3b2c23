"""Blocks are fetched before they are needed, and each of them once."""

from __future__ import annotations

import threading

import pytest

from penstock.errors import TransientError
from penstock.relaylog.read_ahead import BLOCKS_AHEAD, ReadAhead

BLOCK = 100
END = 1050


class Slow:
    """Answers when it is told to, and counts who waits."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.fails: set[int] = set()

    def __call__(self, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        self.waiting.release()
        assert self.go.wait(10)
        if start in self.fails:
            self.fails.discard(start)
            raise TransientError("away")
        return bytes([start % 251]) * (end - start)


def read(ahead: ReadAhead, start: int) -> bytes:
    end = min(start + BLOCK, END)
    data = bytes(ahead(start, end))
    assert data == bytes([start % 251]) * (end - start)
    return data


def test_the_next_blocks_are_under_way_while_one_is_waited_for() -> None:
    slow = Slow()
    ahead = ReadAhead(slow, end=END, block_bytes=BLOCK)
    slow.go.set()
    read(ahead, 0)
    slow.go.clear()
    reader = threading.Thread(target=read, args=(ahead, 100))
    reader.start()
    for _ in range(1 + 1 + BLOCKS_AHEAD):  # the first one, this one, and those after it
        assert slow.waiting.acquire(timeout=10)
    assert sorted(slow.asked) == [(at, at + BLOCK) for at in range(0, 500, BLOCK)]
    slow.go.set()
    reader.join(10)
    for start in range(200, END, BLOCK):
        read(ahead, start)
    assert sorted(slow.asked) == [(at, min(at + BLOCK, END)) for at in range(0, END, BLOCK)]


def test_a_reader_that_jumps_gets_what_it_asks_for() -> None:
    slow = Slow()
    slow.go.set()
    ahead = ReadAhead(slow, end=END, block_bytes=BLOCK)
    for start in (0, 100, 200, 800, 700, 600, 0, 100, 1000, 900, 1000):
        read(ahead, start)


def test_an_error_of_a_block_that_was_fetched_beforehand_comes_when_it_is_read() -> None:
    slow = Slow()
    slow.go.set()
    slow.fails.add(300)
    ahead = ReadAhead(slow, end=END, block_bytes=BLOCK)
    for start in (0, 100, 200):
        read(ahead, start)
    with pytest.raises(TransientError):
        read(ahead, 300)
    for start in (300, 400):
        read(ahead, start)
