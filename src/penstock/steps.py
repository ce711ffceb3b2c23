"""What a command is doing now, for people who wait for it.

Code that may take seconds says what it begins: `step("starting Spark")`. The command line shows the newest
step, and for how long it has taken (`commands/working.py`). In other programs it is a log line of the level
INFO.
"""

from __future__ import annotations

import logging

STEPS = logging.getLogger("penstock.steps")


def step(what: str, *arguments: object) -> None:
    """Says what is done from now on. `what` has the form of a log message: `"comparing %s"`."""
    STEPS.info(what, *arguments)
