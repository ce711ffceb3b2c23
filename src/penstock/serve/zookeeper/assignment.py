"""Which server should serve which destination. Pure, and the same on every server that sees the same nodes.

Each destination has an order of its own over the servers, which depends only on the names (rendezvous
hashing), so that a server that comes or goes moves few destinations. No server gets more than its share.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

CLAIM_AFTER_S = 1.0
"""Seconds after which a destination that nobody serves is taken by another server than the one it is assigned
to. That one may not be able to serve it."""
CLAIM_UNREADY_AFTER_S = 5.0
"""Seconds after which such a destination is taken even by a server whose log has not reached what its clients
have acknowledged."""
HAND_OVER_AFTER_S = 3.0
"""How long an assignment must stay the same before a destination that is served moves: a server that is just
being started again should not move everything twice."""


def assigned(members: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The server of each destination. `members`: the addresses that can serve it."""
    servers = {address for addresses in members.values() for address in addresses}
    share = -(-len(members) // max(1, len(servers)))
    load: Counter[str] = Counter()
    found = {}
    for name in sorted(members):
        order = sorted(members[name], key=partial(_rank, name))
        if order:
            chosen = next((one for one in order if load[one] < share), order[0])
            load[chosen] += 1
            found[name] = chosen
    return found


def _rank(name: str, address: str) -> bytes:
    return hashlib.sha256(f"{name}\0{address}".encode()).digest()


@dataclass(frozen=True)
class Seen:
    """A destination, as one server sees it. `free_s`: how long nobody has served it; None: somebody does.
    `assigned_s`: how long it has been assigned to where it is assigned now."""

    mine: bool
    assigned_here: bool
    assigned: bool
    ready: bool
    free_s: float | None
    assigned_s: float


def decide(seen: Seen) -> Literal["claim", "hand over", "stay"]:
    if seen.mine:
        moves = seen.assigned and not seen.assigned_here and seen.assigned_s >= HAND_OVER_AFTER_S
        return "hand over" if moves else "stay"
    if seen.free_s is None:
        return "stay"
    if seen.assigned_here and seen.ready:
        return "claim"
    return "claim" if seen.free_s >= (CLAIM_AFTER_S if seen.ready else CLAIM_UNREADY_AFTER_S) else "stay"
