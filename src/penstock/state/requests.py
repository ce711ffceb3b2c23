"""Questions of `penstock verify`, and the answers; signals, and what became of them."""

from __future__ import annotations

import json
from typing import Any

from penstock.model.signal import ENDED, Signal, SignalStatus
from penstock.state.database import Database, now_us

_COLUMNS = "number, id, type, data, channel, status, answer, received_us, updated_us"
SIGNALS_KEPT = 1000
"""Of those that have ended: for so long an id that comes again is known."""


class Requests(Database):
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

    def send(self, signal_id: str, kind: str, data: dict[str, Any], channel: str) -> bool:
        """Accepts a signal. False: the id is known, and nothing was done."""
        with self.transaction():
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

    def signal(self, signal_id: str) -> Signal | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM signals WHERE id = ?", signal_id)
        return _signal(rows[0]) if rows else None

    def set_signal(self, signal_id: str, status: SignalStatus, answer: dict[str, Any]) -> None:
        with self.transaction():
            self._db.execute(
                "UPDATE signals SET status = ?, answer = ?, updated_us = ? WHERE id = ?",
                (status, json.dumps(answer, default=str), now_us(), signal_id),
            )
            self._db.execute(
                f"DELETE FROM signals WHERE status IN ({', '.join('?' * len(ENDED))}) "
                "AND number < (SELECT max(number) FROM signals) - ?",
                (*ENDED, SIGNALS_KEPT),
            )


def _signal(row: tuple[Any, ...]) -> Signal:
    number, name, kind, data, channel, status, answer, received, updated = row
    return Signal(
        number, name, kind, json.loads(data), channel, status, json.loads(answer), received, updated
    )
