"""Questions of `penstock verify`, and the answers; signals, and what became of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.config import SignalsConfig
from penstock.errors import TransientError
from penstock.model.signal import ENDED, Signal, SignalStatus
from penstock.state.database import Database, now_us

_COLUMNS = "number, id, type, data, channel, status, answer, received_us, updated_us"
_ENDED = f"status IN ({', '.join(repr(status) for status in ENDED)})"
_SIZE = "length(data) + length(answer)"

SIGNALS_BYTES_MAX = 64 * 1024 * 1024
"""Of the data and answers of those that wait, and again of those that have ended and are kept."""
PAGE_BYTES_MAX = 1024 * 1024
"""Of the data and answers on one page of signals; one signal may be longer."""


@dataclass(frozen=True)
class SignalLimits:
    """See `config.SignalsConfig`. `age_us`: how long ended signals are kept."""

    kept: int
    age_us: int
    waiting: int

    @classmethod
    def of(cls, config: SignalsConfig) -> SignalLimits:
        return cls(config.keep, config.keep_age * 1000, config.waiting_max)


class SignalsWait(TransientError):
    """No more signals are taken for now."""


class Requests(Database):
    signal_limits = SignalLimits.of(SignalsConfig())

    def limit_signals(self, config: SignalsConfig) -> None:
        self.signal_limits = SignalLimits.of(config)

    def request(self, kind: str, argument: str) -> int:
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO requests (kind, argument, answer) VALUES (?, ?, NULL)", (kind, argument)
            )
            return int(cursor.lastrowid or 0)

    def open_requests(self) -> list[tuple[int, str, str]]:

        return [tuple(r) for r in self._rows("SELECT id, kind, argument FROM requests WHERE answer IS NULL")]

    def answer(self, request: int, answer: dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute("UPDATE requests SET answer = ? WHERE id = ?", (json.dumps(answer), request))
            self._db.execute("DELETE FROM requests WHERE id < ? AND answer IS NOT NULL", (request - 1000,))

    def answer_to(self, request: int) -> dict[str, Any] | None:
        rows = self._rows("SELECT answer FROM requests WHERE id = ?", request)
        return json.loads(rows[0][0]) if rows and rows[0][0] else None

    # signals ------------------------------------------------------------------------------------------------

    def send(
        self, signal_id: str, kind: str, data: dict[str, Any], channel: str, *, limited: bool = True
    ) -> bool:
        """Accepts a signal. False: the id is known, and nothing was done. Raises `SignalsWait` while too many
        have not ended, if it is `limited`."""
        with self.transaction():
            if self.signal(signal_id) is not None:
                return False
            if limited and self.signals_full():
                raise SignalsWait(
                    f"{self.signal_limits.waiting} signals, or {SIGNALS_BYTES_MAX} bytes of them, wait to be "
                    "done: no more is taken.",
                    hint="Send it again later. `penstock signals FILE` lists them (`signals.waiting_max`).",
                )
            cursor = self._db.execute(
                "INSERT OR IGNORE INTO signals VALUES (NULL, ?, ?, ?, ?, 'accepted', '{}', ?, ?)",
                (signal_id, kind, json.dumps(data), channel, now_us(), now_us()),
            )
            return cursor.rowcount == 1

    def signals(self, *status: SignalStatus) -> list[Signal]:
        """In the order of their arrival; without `status`: all that are kept."""
        marks = ", ".join("?" * len(status))
        where = f" WHERE status IN ({marks})" if status else ""
        return [_signal(row) for row in
                self._rows(f"SELECT {_COLUMNS} FROM signals{where} ORDER BY number", *status)]  # fmt: skip

    def signals_page(self, after: int, limit: int) -> list[Signal]:
        """Signals with numbers above `after`, oldest first: at most `limit`, and PAGE_BYTES_MAX of them."""
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
        """Whether so many signals wait that no more may be taken."""
        [(count, size)] = self._rows(
            f"SELECT count(*), coalesce(sum({_SIZE}), 0) FROM signals WHERE NOT {_ENDED}"
        )
        return bool(count >= self.signal_limits.waiting or size >= SIGNALS_BYTES_MAX)

    def signal(self, signal_id: str) -> Signal | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM signals WHERE id = ?", signal_id)
        return _signal(rows[0]) if rows else None

    def set_signal(self, signal_id: str, status: SignalStatus, answer: dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute(
                "UPDATE signals SET status = ?, answer = ?, updated_us = ? WHERE id = ?",
                (status, json.dumps(answer, default=str), now_us(), signal_id),
            )
            if status in ENDED:
                self._expire_signals()

    def _expire_signals(self) -> None:
        """Of those that have ended the newest are kept: so many, so long, and so many bytes."""
        limits = self.signal_limits
        self._db.execute(
            f"DELETE FROM signals WHERE {_ENDED} AND updated_us < ?", (now_us() - limits.age_us,)
        )
        self._db.execute(
            "DELETE FROM signals WHERE number IN (SELECT number FROM (SELECT number, "
            "row_number() OVER (ORDER BY number DESC) AS place, "
            f"sum({_SIZE}) OVER (ORDER BY number DESC) AS bytes FROM signals WHERE {_ENDED}) "
            "WHERE place > ? OR (bytes > ? AND place > 1))",
            (limits.kept, SIGNALS_BYTES_MAX),
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
