"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource

OPEN_MAX = 65_536
"""Enough for the connections of a server. Not more, though the hard limit may be 1,000,000,000: some programs
close, when they start, each file that they could have open, one by one."""


def allow_more() -> None:
    """Raises the soft limit to the hard one, up to `OPEN_MAX`. The soft one is often 1,024, for programs that
    use `select`. Java raises its own, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
