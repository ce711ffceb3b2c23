"""What can be seen of a pipeline from outside, and waiting for it: the moments of a schedule."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.008


class Watch:
    """Looks into the files of a pipeline. One that is not there, or is just being replaced, says nothing."""

    def __init__(self, state: Path, relay: Path, lake: Path) -> None:
        self.state, self.relay, self.lake = state, relay, lake

    def until(
        self, condition: Callable[[], Any], seconds: float, *, look_seconds: float = LOOK_SECONDS
    ) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(look_seconds)
        return True

    def ask(self, sql: str) -> list[Any]:
        """A row of the state, without taking part: empty if there is none."""
        if not (self.state / "state.sqlite").exists():
            return []
        with contextlib.suppress(sqlite3.Error):
            path = f"file:{self.state / 'state.sqlite'}?mode=ro"
            with contextlib.closing(sqlite3.connect(path, uri=True, timeout=0.2)) as database:
                return list(database.execute(sql).fetchone() or ())
        return []

    def number(self, sql: str) -> int:
        found = self.ask(sql)
        return int(found[0]) if found and found[0] is not None else 0

    def applied(self) -> int:
        return self.number("SELECT count(*) FROM epochs WHERE applied_us IS NOT NULL")

    def planned(self) -> int:
        return self.number("SELECT count(*) FROM epochs")

    def pending(self) -> int:
        """The epoch that is planned and not applied; 0: none."""
        return self.number("SELECT min(epoch) FROM epochs WHERE applied_us IS NULL")

    def chunks_staged(self) -> int:
        return self.number("SELECT count(*) FROM chunks WHERE manifest IS NOT NULL")

    def reads_parts(self) -> bool:
        """Whether a part of a table is still to be read again, as a signal asked."""
        return bool(self.number("SELECT count(*) FROM snapshots WHERE status IN ('splitting', 'reading')"))

    def index_entries(self) -> int:
        with contextlib.suppress(OSError):
            return sum(path.read_bytes().count(b"\n") for path in self.relay.glob("*.index"))
        return 0

    def commits(self) -> int:
        """Of the targets, by their own files."""
        patterns = ("*/*/metadata/v*.metadata.json", "*/*/_delta_log/*.json", "*/*/penstock_commit=*")
        return sum(1 for pattern in patterns for _ in self.lake.glob(pattern))

    # moments

    def reach(self, moment: str, count: int, seconds: float) -> bool:
        """Whether it came within this time."""
        match moment:
            case "chunk":
                goal = self.chunks_staged() + count
                return self.until(lambda: self.chunks_staged() >= goal, seconds)
            case "planned":
                goal = self.planned() + count
                return self.until(lambda: self.planned() >= goal and self.pending(), seconds)
            case "committed":
                return self._reach_committed(seconds)
            case "applied":
                goal = self.applied() + count
                return self.until(lambda: self.applied() >= goal, seconds)
            case "index":
                goal = self.index_entries() + count
                return self.until(lambda: self.index_entries() >= goal, seconds)
        return True

    def _reach_committed(self, seconds: float) -> bool:
        epoch, commits = -1, 0

        def reached() -> bool:
            nonlocal epoch, commits
            pending = self.pending()
            if not pending:
                return False
            now = self.commits()
            if pending != epoch:
                epoch, commits = pending, now
            return now > commits

        return self.until(reached, seconds)
