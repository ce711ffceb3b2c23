"""Stores requests of `penstock verify` with their answers, and signals with their results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.config import SignalsConfig
from penstock.errors import TransientError
from penstock.model.signal import ENDED, Signal, SignalStatus
from penstock.state.changes import (
    RequestAnswered,
    RequestMade,
    SignalAccepted,
    SignalSet,
    SignalsExpired,
    StateChange,
)
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


class Requests(Database):
    signal_limits = SignalLimits.of(SignalsConfig())

    def limit_signals(self, config: SignalsConfig) -> None:
        self.signal_limits = SignalLimits.of(config)

    def request(self, kind: str, argument: str) -> int:
        with self.transaction():
            number = int(self._rows("SELECT coalesce(max(id), 0) + 1 FROM requests")[0][0])
            self.commit([RequestMade(number, kind, argument)])
            return number

    def open_requests(self) -> list[tuple[int, str, str]]:
        """Returns number, kind and argument of each request without an answer."""
        return [tuple(r) for r in self._rows("SELECT id, kind, argument FROM requests WHERE answer IS NULL")]

    def answer(self, request: int, answer: dict[str, Any]) -> None:
        self.commit([RequestAnswered(request, answer)])

    def answer_to(self, request: int) -> dict[str, Any] | None:
        rows = self._rows("SELECT answer FROM requests WHERE id = ?", request)
        return json.loads(rows[0][0]) if rows and rows[0][0] else None

    # signals ------------------------------------------------------------------------------------------------

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
        expired = [SignalsExpired(now - limits.age_us, limits.kept)] if status in ENDED else []
        self.commit([SignalSet(signal_id, status, answer, now), *expired])

    def _apply(self, change: StateChange) -> None:
        match change:
            case RequestMade(number, kind, argument):
                self._db.execute("INSERT INTO requests VALUES (?, ?, ?, NULL)", (number, kind, argument))
            case RequestAnswered(number, answer):
                self._db.execute("UPDATE requests SET answer = ? WHERE id = ?", (json.dumps(answer), number))
                sql = "DELETE FROM requests WHERE id < ? AND answer IS NOT NULL"
                self._db.execute(sql, (number - 1000,))
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
            case SignalsExpired(before_us, kept):
                self._expire_signals(before_us, kept)
            case _:
                super()._apply(change)

    def _expire_signals(self, before_us: int, kept: int) -> None:
        """Deletes ended signals that exceed the limits of age, number and size, oldest first. Also deletes
        ended partial snapshots whose signals are deleted."""
        self._db.execute(f"DELETE FROM signals WHERE {_ENDED} AND updated_us < ?", (before_us,))
        self._db.execute(
            "DELETE FROM signals WHERE number IN (SELECT number FROM (SELECT number, "
            "row_number() OVER (ORDER BY number DESC) AS place, "
            f"sum({_SIZE}) OVER (ORDER BY number DESC) AS bytes FROM signals WHERE {_ENDED}) "
            "WHERE place > ? OR (bytes > ? AND place > 1))",
            (kept, SIGNALS_BYTES_MAX),
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
