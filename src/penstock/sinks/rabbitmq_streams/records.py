"""What a pipeline has written, as messages in a stream of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import ConfigError
from penstock.sinks.base import Commit
from penstock.sinks.rabbitmq_streams import wire

_NUMBER_BITS = 26
"""Room for 67 million messages of one epoch in one stream. An id has 63 bits."""


@dataclass(frozen=True)
class Written:
    """The newest commit and its note. `number`: of this record; the next one has the next number.
    `committed`: of the record with the newest commit. `layout`: of the record since which the messages of an
    epoch have their present order: the newest commit, or the last one that left a table out. `run`: a number
    for each run of a driver. `generation`: see `runtime.driver_lease`.

    `left_out`: the errors of tables that were left out of the epoch that is not committed, in order.
    `counts`, `bases`: how many messages of each table, and in each stream, were written before the last one
    was left out.
    """

    epoch: int = 0
    step: int = 0
    note: str = ""
    generation: int = 0
    run: str = ""
    number: int = 0
    committed: int = 0
    layout: int = 0
    left_out: tuple[dict[str, Any], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    bases: Mapping[str, int] = field(default_factory=dict)

    def commit(self, pipeline: str) -> Commit | None:
        return Commit(pipeline, self.epoch, self.step) if self.epoch else None

    def to_message(self) -> bytes:
        return wire.message(json.dumps(asdict(self)).encode(), None)

    @classmethod
    def parse(cls, message: bytes, stream: str) -> Written:
        try:
            fields = json.loads(wire.value_of(message))
            return cls(**{**fields, "left_out": tuple(fields["left_out"])})
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"The stream {stream} has a message that this version of Penstock does not understand.",
                hint="Use the version that wrote it, or a newer one. Nobody else may write into this stream.",
            ) from None


def id_of(layout: int, count: int) -> int:
    """The id of a message: `Written.layout`, and how many messages of its epoch are in its stream then."""
    return layout << _NUMBER_BITS | count


def count_of(id: int, committed: int) -> int:
    """How many messages of the epoch that is not committed a stream has, by the id of its last one."""
    return id & (1 << _NUMBER_BITS) - 1 if id >> _NUMBER_BITS >= committed else 0
