"""Figures that stand alone, each with what is promised of it: those of the parts `scale` and `soak`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from bench.goals import Goal

HEADINGS = ("what", "value", "goal", "reached")


@dataclass(frozen=True)
class Line:
    """With a `goal` it is to be that or less."""

    part: str
    what: str
    value: float | None
    """None: it could not be told, and so is neither reached nor missed. `what` says why."""
    unit: str
    goal: float | None = None

    @property
    def reached(self) -> bool | None:
        return None if self.goal is None or self.value is None else self.value <= self.goal

    def to_json(self) -> dict[str, Any]:
        value = None if self.value is None else round(self.value, 4)
        return {**asdict(self), "value": value, "reached": self.reached}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Line:
        return cls(**{name: document[name] for name in ("part", "what", "value", "unit", "goal")})

    @property
    def shown(self) -> str:
        return "not judged" if self.value is None else f"{digits(self.value)} {self.unit}".strip()

    def cells(self) -> tuple[str, ...]:
        goal = "" if self.goal is None else f"≤ {digits(self.goal)} {self.unit}".strip()
        reached = {None: "", True: "yes", False: "**no**"}[self.reached]
        return (self.what, self.shown, goal, reached)


def digits(value: float) -> str:
    """As many as tell something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goals(lines: Iterable[Line]) -> list[Goal]:
    """Those that were reached or missed."""
    return [
        Goal(f"{line.what} {line.cells()[2]}", line.shown, line.reached)
        for line in lines
        if line.reached is not None
    ]
