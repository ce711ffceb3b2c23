"""What happens to the pipeline, and when. All of it is known beforehand, from the seed.

Processes are killed in the first part of the time only, so that there is a driver, a JVM and a receiver that
live through all the rest: what they take may be judged (`judge.py`). Everything else goes on to the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Happening = Literal["kill driver", "kill receiver", "definition", "read part", "pause", "add table"]

KILLS_FROM, KILLS_UNTIL = 0.05, 0.4
"""Of the time."""
KILL_SECONDS = 120.0
"""About so often; each of the two is killed at least once, however short the time is."""
SECONDS: dict[Happening, float] = {"definition": 45, "read part": 30, "pause": 60, "add table": 90}
"""How often the others happen."""


@dataclass(frozen=True)
class Event:
    at: float
    """Seconds from the beginning."""
    what: Happening


def schedule(seconds: float, seed: int) -> list[Event]:
    """In the order in which they are due."""
    chosen = random.Random(seed)
    events = _kills(seconds, chosen)
    for what, every in SECONDS.items():
        at = chosen.uniform(0.2, 1) * every
        while at < seconds:
            events.append(Event(at, what))
            at += chosen.uniform(0.5, 1.5) * every
    return sorted(events, key=lambda event: event.at)


def _kills(seconds: float, chosen: random.Random) -> list[Event]:
    """One in each part of their time, and not at its end: what was killed starts again."""
    begin, end = KILLS_FROM * seconds, KILLS_UNTIL * seconds
    count = max(2, round((end - begin) / KILL_SECONDS))
    victims: list[Happening] = ["kill driver", "kill receiver"]
    chosen.shuffle(victims)
    victims += [chosen.choice(victims) for _ in range(count - 2)]
    part = (end - begin) / count
    return [
        Event(begin + (number + chosen.uniform(0, 0.8)) * part, what) for number, what in enumerate(victims)
    ]


def quiet_from(events: list[Event]) -> float:
    """When the last process has been killed."""
    return max((event.at for event in events if event.what.startswith("kill")), default=0.0)
