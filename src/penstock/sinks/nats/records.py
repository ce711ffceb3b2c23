"""What a pipeline has written, as a value in a key-value bucket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from penstock.errors import ConfigError
from penstock.sinks.base import Commit


@dataclass(frozen=True)
class Written:
    """The newest commit and its note, and what the stream has up to `sequence`: of the epoch and step in
    `begun`, which is not committed, `counts` messages of each table. `run`: a number for each run of a
    driver. `generation`: see `runtime.driver_lease`."""

    epoch: int = 0
    step: int = 0
    note: str = ""
    generation: int = 0
    run: str = ""
    sequence: int = 0
    begun: tuple[int, int] = (0, 0)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int, int]:
        return (self.epoch, self.step)

    def commit(self, pipeline: str) -> Commit | None:
        return Commit(pipeline, self.epoch, self.step) if self.epoch else None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, value: bytes, where: str) -> Written:
        try:
            fields = json.loads(value)
            return cls(**{**fields, "begun": tuple(fields["begun"])})
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"The key {where} has a value that this version of Penstock does not understand.",
                hint="Use the version that wrote it, or a newer one. Nobody else may write to it.",
            ) from None


@dataclass(frozen=True)
class Mark:
    """The id of a message (`Nats-Msg-Id`): who wrote it, in which epoch and step, and its number among the
    epoch's messages about the same. `about`: a digest, so that it is short whatever the table is called."""

    run: str
    epoch: int
    step: int
    about: str
    number: int

    def __str__(self) -> str:
        return f"{self.run}/{self.epoch}/{self.step}/{self.about}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        try:
            run, epoch, step, about, number = text.split("/")
            return cls(run, int(epoch), int(step), about, int(number))
        except ValueError:
            return None
