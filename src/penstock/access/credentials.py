"""Checks of secrets, and how often one address may fail at them."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict

ADDRESSES_MAX = 10_000
"""Addresses whose attempts are counted, so that many of them do not fill the memory."""
MINUTE_S = 60.0  # what the options' names say
_IPV6_NETWORK_BITS = 64
"""Whoever has one address of IPv6 has all of its network, so they count as one."""


class Denied(Exception):
    """Somebody has no right. The text is for the client. `retry_s`: it is refused unchecked for so long;
    0: its secret was missing or wrong."""

    def __init__(self, message: str, retry_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Attempts:
    """Failed attempts of the last minute, by address, so that secrets cannot be guessed. Whoever checks
    a secret calls `check` before it, and `failed` when the secret is wrong. Any thread may use it."""

    def __init__(self, per_minute_max: int) -> None:
        self._max = per_minute_max
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._guard = threading.Lock()

    def check(self, address: str) -> None:
        """Raises `Denied` for an address with too many failed attempts in the last minute."""
        began, count = self._failed.get(_network(address), (0.0, 0))
        left = began + MINUTE_S - time.monotonic()
        if count >= self._max and left > 0:
            raise Denied(f"too many failed logins from this address; try again in {left:.0f} s", left)

    def failed(self, address: str) -> None:
        key, now = _network(address), time.monotonic()
        with self._guard:
            began, count = self._failed.pop(key, (0.0, 0))
            self._failed[key] = (began, count + 1) if now < began + MINUTE_S else (now, 1)
            while len(self._failed) > ADDRESSES_MAX:
                self._failed.popitem(last=False)


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(found), _IPV6_NETWORK_BITS), strict=False))
