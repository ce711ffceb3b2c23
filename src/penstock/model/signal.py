"""A signal: an operator's command to a pipeline, and what became of it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal

SignalStatus = Literal["accepted", "running", "done", "failed", "refused"]
ENDED = ("done", "failed", "refused")
VERIFY = "verify"
"""Type and channel of the signals of `penstock verify`. They do not count among the signals that are kept."""


@dataclass(frozen=True)
class Signal:
    """status: `accepted` (durable, not looked at yet), `running`, `done`, `failed` (some of it could not be
    done: the answer says what), `refused` (nothing was done). number: the order of arrival. Times: µs since
    1970 UTC."""

    number: int
    id: str
    type: str
    data: dict[str, Any]
    channel: str
    status: SignalStatus
    answer: dict[str, Any]
    received_us: int
    updated_us: int

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": self.type,
            "data": self.data,
            "channel": self.channel,
            "status": self.status,
            "answer": self.answer,
            "received": _iso(self.received_us),
            "updated": _iso(self.updated_us),
        }


def _iso(us: int) -> str:
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.timezone.utc).isoformat(timespec="milliseconds")
