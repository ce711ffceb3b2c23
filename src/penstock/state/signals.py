"""Stores signals with their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.config import SignalsConfig
from penstock.errors import TransientError
from penstock.model.signal import ENDED, VERIFY, Signal, SignalStatus
from penstock.state.changes import SignalAccepted, SignalSet, SignalsExpired, StateChange
from penstock.state.database import Database, now_us

_COLUMNS = "number, id, type, data, channel, status, answer, received_us, updated_us"
_ENDED = f"status IN ({', '.join(repr(status) for status in ENDED)})"
_SIZE = "length(data) + length(answer)"

SIGNALS_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size in bytes of the data and answers of all signals that wait, so that whoever may send signals
cannot fill the disk. The same limit applies to all ended signals that are kept."""
PAGE_BYTES_MAX = 1024 * 1024
"""Maximum size in bytes of the data and answers on one page of signals, which is built in memory. A single
signal may be larger."""


VERIFY_KEPT_SECONDS = 60
"""How long an answer is kept for `penstock verify`, which asks for it all the time."""


@dataclass(frozen=True)
class SignalLimits:
    """Limits from `config.SignalsConfig`. `kept`: number of ended signals that are stored; `age_us`: how long
    they are stored, in µs; `waiting`: number of signals that may wait."""

    kept: int
    age_us: int
    waiting: int

    @classmethod
    def of(cls, config: SignalsConfig) -> SignalLimits:
        return cls(config.keep, config.keep_age * 1000, config.waiting_max)


class SignalsWait(TransientError):
    """Too many signals wait, so no more are accepted for now."""


class Signals(Database):
    signal_limits = SignalLimits.of(SignalsConfig())

    def limit_signals(self, config: SignalsConfig) -> None:
        self.signal_limits = SignalLimits.of(config)

    def send(
        self, signal_id: str, kind: str, data: dict[str, Any], channel: str, *, limited: bool = True
    ) -> bool:
        """Accepts a signal. Returns False, and does nothing, if the id is known. With `limited`, raises
        `SignalsWait` while too many signals wait."""
        with self.transaction():
            if self.signal(signal_id) is not None:
                return False
            if limited and self.signals_full():
                raise SignalsWait(
                    "No more signals are accepted for now: too many are waiting to be processed (at most "
                    f"{self.signal_limits.waiting} signals, or {SIGNALS_BYTES_MAX} bytes).",
                    hint="Send it again later. `penstock signals FILE` lists the signals. The limit is "
                    "`signals.waiting_max`.",
                )
            self.commit([SignalAccepted(signal_id, kind, data, channel, now_us())])
            return True

    def signals(self, *status: SignalStatus) -> list[Signal]:
        """Returns the signals with one of these statuses (default: all), in the order of their arrival."""
        marks = ", ".join("?" * len(status))
        where = f" WHERE status IN ({marks})" if status else ""
        return [_signal(row) for row in
                self._rows(f"SELECT {_COLUMNS} FROM signals{where} ORDER BY number", *status)]  # fmt: skip

    def verifying(self) -> list[Signal]:
        """Returns the signals of `penstock verify` that run."""
        sql = f"SELECT {_COLUMNS} FROM signals WHERE type = ? AND status = 'running' ORDER BY number"
        return [_signal(row) for row in self._rows(sql, VERIFY)]

    def signals_page(self, after: int, limit: int) -> list[Signal]:
        """Returns signals with numbers above `after`, oldest first: at most `limit` signals and about
        `PAGE_BYTES_MAX` bytes."""
        sizes = self._rows(
            f"SELECT number, {_SIZE} FROM signals WHERE number > ? ORDER BY number LIMIT ?", after, limit
        )
        last, total = after, 0
        for number, size in sizes:
            total += size
            if total > PAGE_BYTES_MAX and last != after:
                break
            last = number
        sql = f"SELECT {_COLUMNS} FROM signals WHERE number > ? AND number <= ? ORDER BY number"
        return [_signal(row) for row in self._rows(sql, after, last)]

    def signals_full(self) -> bool:
        """Whether too many signals wait, so that no more are accepted."""
        [(count, size)] = self._rows(
            f"SELECT count(*), coalesce(sum({_SIZE}), 0) FROM signals WHERE NOT {_ENDED}"
        )
        return bool(count >= self.signal_limits.waiting or size >= SIGNALS_BYTES_MAX)

    def signal(self, signal_id: str) -> Signal | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM signals WHERE id = ?", signal_id)
        return _signal(rows[0]) if rows else None

    def set_signal(self, signal_id: str, status: SignalStatus, answer: dict[str, Any]) -> None:
        now, limits = now_us(), self.signal_limits
        verify_before = now - VERIFY_KEPT_SECONDS * 1_000_000
        expired = SignalsExpired(now - limits.age_us, limits.kept, verify_before)
        changed = SignalSet(signal_id, status, answer, now)
        self.commit([changed, expired] if status in ENDED else [changed])

    def renew_signal(self, signal_id: str) -> None:
        """Says that the sender of a signal that runs still waits."""
        with self.transaction():
            if (known := self.signal(signal_id)) is not None and known.status == "running":
                self.commit([SignalSet(signal_id, known.status, known.answer, now_us())])

    def _apply(self, change: StateChange) -> None:
        match change:
            case SignalAccepted(name, kind, data, channel, at_us):
                self._db.execute(
                    "INSERT OR IGNORE INTO signals VALUES (NULL, ?, ?, ?, ?, 'accepted', '{}', ?, ?)",
                    (name, kind, json.dumps(data), channel, at_us, at_us),
                )
            case SignalSet(name, status, answer, at_us):
                self._db.execute(
                    "UPDATE signals SET status = ?, answer = ?, updated_us = ? WHERE id = ?",
                    (status, json.dumps(answer, default=str), at_us, name),
                )
            case SignalsExpired():
                self._expire_signals(change)
            case _:
                super()._apply(change)

    def _expire_signals(self, limits: SignalsExpired) -> None:
        """Deletes ended signals that exceed the limits of age, number and size, oldest first. Also deletes
        ended partial snapshots whose signals are deleted."""
        # The newest signal stays, so that its number is not given again.
        self._db.execute(
            f"DELETE FROM signals WHERE {_ENDED} AND updated_us < CASE channel WHEN ? THEN ? ELSE ? END "
            "AND number < (SELECT max(number) FROM signals)",
            (VERIFY, limits.verify_before_us, limits.before_us),
        )
        self._db.execute(
            "DELETE FROM signals WHERE number IN (SELECT number FROM (SELECT number, "
            "row_number() OVER (ORDER BY number DESC) AS place, "
            f"sum({_SIZE}) OVER (ORDER BY number DESC) AS bytes FROM signals "
            f"WHERE {_ENDED} AND channel <> ?) WHERE place > ? OR (bytes > ? AND place > 1))",
            (VERIFY, limits.kept, SIGNALS_BYTES_MAX),
        )
        self._db.execute(
            "DELETE FROM snapshots WHERE status NOT IN ('splitting', 'reading') "
            "AND signal NOT IN (SELECT id FROM signals)"
        )


def _signal(row: tuple[Any, ...]) -> Signal:
    number, name, kind, data, channel, status, answer, received, updated = row
    return Signal(
        number, name, kind, json.loads(data), channel, status, json.loads(answer), received, updated
    )
