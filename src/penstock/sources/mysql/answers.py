"""Limits of the answers that are held in memory: a server may be broken or hostile.

Every question is for facts (variables, definitions, bounds, sums), so its answer is small and comes in one
piece. The log and the rows of tables are streams, which have limits of their own: the core cuts them into
events and batches.
"""

from __future__ import annotations

import math
import time

import pymysql
from pymysql.constants import CR

MEMORY_MAX = 512 * 1024**2
"""Bytes of memory for one answer, by a high guess. The names of all tables fit."""
LOGIN_MEMORY_MAX = 4 * 1024**2
"""The same for everything that a server says until it has let us in."""
PACKET_MAX = 0xFFFFFF
"""Bytes. A packet of this length continues in the next one. Nothing that is asked for is so large."""
ROWS_MAX = 500_000
"""More than any list that is asked for: those of tables, columns, files, sessions."""
COLUMNS_MAX = 4096
"""MySQL's limit of columns in a table."""
ERROR_TEXT_MAX = 512
"""Characters of an error's text: MYSQL_ERRMSG_SIZE of the servers."""
GRACE_S = 10.0
"""Seconds for an answer that has begun, besides two times of silence (`source.read_timeout`)."""
BYTES_PER_SECOND_MIN = 64 * 1024
"""An answer that has begun comes at least so fast, after a grace time."""

# How much memory PyMySQL and Python take, at most, for what arrives.
_PER_BYTE = 4
_PER_PACKET = 64
_PER_VALUE = 56
_PER_DEFINITION = 2048


class AnswerLimits:
    """What the answers of one connection may take. `grace_s`: seconds for an answer from its first byte on,
    before its speed matters. It has no limit until we are let in, because connecting has one as a whole."""

    def __init__(self) -> None:
        self.grace_s = math.inf
        self._begin(LOGIN_MEMORY_MAX)

    def asked(self) -> None:
        """A question was sent. The time until its answer begins is not limited here."""
        self._begin(MEMORY_MAX)

    def _begin(self, memory: int) -> None:
        self._left = memory
        self._bytes = self._columns = self._packets = 0
        self._began: float | None = None

    def packet(self, *, is_definition: bool) -> None:
        """A packet begins. Raises if that is one too many."""
        if not is_definition:
            self._packets += 1
            if self._packets > ROWS_MAX:
                raise malformed(f"its answer has more than {ROWS_MAX:,} rows")
            self._spend(_PER_PACKET + self._columns * _PER_VALUE)
            return
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            raise malformed(f"its answer has more than {COLUMNS_MAX:,} columns")
        self._spend(_PER_DEFINITION)

    def expect(self, size: int) -> None:
        """This many bytes of the answer are read next. Raises if they are too many."""
        if size >= PACKET_MAX:
            raise malformed("its answer has a packet of 16 MiB, where a short one should come")
        self._spend(_PER_BYTE * size)

    def arrived(self, size: int) -> None:
        self._began = self._began or time.monotonic()
        self._bytes += size

    def check_time(self) -> None:
        """Raises `TimeoutError` if an answer has begun and its rest is late."""
        if self._began is None:
            return
        seconds = time.monotonic() - self._began
        if seconds > self.grace_s + self._bytes / BYTES_PER_SECOND_MIN:
            raise TimeoutError(f"its answer began {seconds:.0f} s ago and has not ended")

    def _spend(self, memory: int) -> None:
        self._left -= memory
        if self._left < 0:
            raise malformed("its answer is far longer than any answer to what was asked")


def malformed(what: str) -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, what)
