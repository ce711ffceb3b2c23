"""Blocks are fetched before they are needed, and each of them once."""

from __future__ import annotations

import random
import threading

import pytest

from penstock.errors import TransientError
from penstock.relaylog.read_ahead import BLOCKS_AHEAD, ReadAhead

BLOCK = 100
END = 1050
PIECE, LARGE = 64, 4096
"""What the core asks for outside of the main part, and inside of it."""
DATA = random.Random(1).randbytes(100_000)


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
    ahead = ReadAhead(slow, start=0, end=END, block_bytes=BLOCK)
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
    ahead = ReadAhead(slow, start=0, end=END, block_bytes=BLOCK)
    for start in (0, 100, 200, 800, 700, 600, 0, 100, 1000, 900, 1000):
        read(ahead, start)


def test_an_error_of_a_block_that_was_fetched_beforehand_comes_when_it_is_read() -> None:
    slow = Slow()
    slow.go.set()
    slow.fails.add(300)
    ahead = ReadAhead(slow, start=0, end=END, block_bytes=BLOCK)
    for start in (0, 100, 200):
        read(ahead, start)
    with pytest.raises(TransientError):
        read(ahead, 300)
    for start in (300, 400):
        read(ahead, start)


def extent(position: int, start: int, end: int) -> tuple[int, int]:
    """What the core asks for to read this byte (`core/src/segment_file.rs`)."""
    if start <= position < end:
        first = start + (position - start) // LARGE * LARGE
        return first, min(end, first + LARGE)
    first = position // PIECE * PIECE
    last = min(len(DATA), first + PIECE)
    return (first, min(last, start)) if position < start else (max(first, end), last)


@pytest.mark.parametrize(
    ("start", "end"), [(0, len(DATA)), (10_123, 60_007), (PIECE * 3, PIECE * 40), (7, 8)]
)
def test_whatever_is_asked_for_comes_and_nothing_else(start: int, end: int) -> None:
    read = ReadAhead(lambda first, last: DATA[first:last], start=start, end=end, block_bytes=LARGE)
    chance = random.Random(start)
    position = 0
    for _ in range(3000):
        if position >= len(DATA) or chance.random() < 0.02:
            position = chance.randrange(len(DATA))
        first, last = extent(position, start, end)
        assert bytes(read(first, last)) == DATA[first:last]
        position = last


def test_only_blocks_of_the_main_part_are_read_ahead() -> None:
    asked: list[tuple[int, int]] = []
    guard = threading.Lock()

    def fetch(first: int, last: int) -> bytes:
        with guard:
            asked.append((first, last))
        return DATA[first:last]

    start, end = 10 * PIECE, 10 * PIECE + 20 * LARGE
    read = ReadAhead(fetch, start=start, end=end, block_bytes=LARGE)
    for piece in range(10):
        read(piece * PIECE, (piece + 1) * PIECE)
    assert asked == [(piece * PIECE, (piece + 1) * PIECE) for piece in range(10)]
    for block in range(3):
        read(start + block * LARGE, start + (block + 1) * LARGE)
    read(start + 3 * LARGE, start + 4 * LARGE)
    blocks = {(start + block * LARGE, start + (block + 1) * LARGE) for block in range(4 + BLOCKS_AHEAD)}
    assert len(asked) == len(set(asked)) and set(asked[10:]) <= blocks
