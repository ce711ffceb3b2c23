"""Whose turn it is: whether Spark has finished what it was given.

Spark asks for a last offset, then for the partitions up to it, and asks again when the batch is done. A
query that goes on first asks for the batch that was not done; Spark 4.1 also asks for the partitions between
equal offsets, at the end of the last batch. So when Spark asks for the last offset, it has everything for
which it has asked in this run. If it asks twice, and not for partitions in between, it has everything up to
that offset, too.
"""

from __future__ import annotations


class Turn:
    def __init__(self) -> None:
        self._given = -1
        self._asked = False

    def given(self, last: int) -> None:
        """Called when Spark asks for the partitions up to an offset."""
        self._given = max(self._given, last)
        self._asked = False

    def is_done(self, last: int) -> bool:
        """Called when Spark asks for the last offset, which is `last`: whether it has everything up to it."""
        done = self._given >= last or self._asked
        self._asked = True
        return done
