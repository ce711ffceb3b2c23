"""What errors of servers mean: who has to act. Pure.

Each server has one table of its codes, with the page of its documentation that lists them, and nothing else
decides. An outage passes, or somebody mends the server: it is waited for. A poison row, or a table that
somebody has changed, parks its table. A configuration that cannot work is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field


class Verdict(enum.Enum):
    OUTAGE = "outage"
    POISON = "poison"
    CONFIGURATION = "configuration"


@dataclass(frozen=True)
class Codes:
    """A server's table. `source`: where its codes are listed. `other`: what all other codes mean."""

    source: str
    outage: frozenset[Hashable]
    configuration: frozenset[Hashable] = field(default_factory=frozenset)
    poison: frozenset[Hashable] = field(default_factory=frozenset)
    other: Verdict = Verdict.POISON

    def verdict(self, *codes: Hashable) -> Verdict:
        """The meaning of an error. `codes`: its code, and then the classes that it belongs to, the narrowest
        first: the first one that the table has decides."""
        for code in codes:
            for found in (Verdict.OUTAGE, Verdict.CONFIGURATION, Verdict.POISON):
                if code in getattr(self, found.value):
                    return found
        return self.other
