"""A rule that recognises one kind of failure by its text."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`message` may contain `{1}`, `{2}`, … for the groups of the pattern, and `{name}` for the name of the
    exception. `lasting`: a retry cannot succeed."""

    pattern: re.Pattern[str]
    message: str
    hint: str
    lasting: bool = True


def rule(pattern: str, message: str, hint: str, *, lasting: bool = True) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), message, hint, lasting)
