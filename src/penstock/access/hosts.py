"""Checks under which name a server of HTTP is asked, and by which page.

A page of a stranger runs in the browser of somebody whose machine reaches our server. By itself it cannot
read our answers. But its owner controls a name, and can let it point to our server's address while the page
is open (DNS rebinding). For the browser, our answers are then the page's own. What tells such a request from
a legitimate one is the name in its header `Host`: the stranger's. So a request is answered only under a name
or an address that this server is known by. An address cannot be turned to another machine. A server that
listens on all addresses does not know by which of them others reach it, so it accepts any.

`Origin` names the page that asks. A page may only ask the server that it came from.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_LOCAL = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+?))\.?(?::[0-9]{1,5})?", re.IGNORECASE)


class Foreign(Exception):
    """A request under a name that is not the server's, or by a page of another server. The text is for the
    client."""


class Hosts:
    """The names of a server. `listening`: the hosts that it listens on. `named`: more names and addresses,
    from its file. `option`: where they are in the file."""

    def __init__(self, listening: Iterable[str], named: Iterable[str], *, option: str) -> None:
        own = [one.strip("[]").lower() for one in listening]
        addresses = [found for one in own if (found := _address(one)) is not None]
        self._named = {one.strip("[]").rstrip(".").lower() for one in named}
        self._known = {*own, *self._named}
        self._any_address = any(one.is_unspecified for one in addresses)
        if any(one.is_loopback or one.is_unspecified for one in addresses):
            self._known |= {*_LOCAL}
        self._option = option

    @classmethod
    def at(cls, addresses: Iterable[str], named: Iterable[str]) -> Hosts:
        """Those of a server with the section `http`. `addresses`: host:port, as written and as bound."""
        return cls([one.rpartition(":")[0] for one in addresses], named, option="http.hosts")

    def check(self, host: str | None, origin: str | None) -> None:
        """`host`, `origin`: the values of the headers; None: there is none, as from some programs that are no
        browsers. Raises `Foreign`."""
        if host is not None and not self._knows(_name(host)):
            raise Foreign(
                f"This server is not known as {host[:100]!r}. Ask it by the address that it listens on, or "
                f"add the name to `{self._option}`."
            )
        if origin is None:
            return
        asking = origin.lower().partition("://")[2]
        if asking != (host and host.lower()) and _name(asking) not in self._named:
            raise Foreign("Pages of other servers may not ask this one (Origin).")

    def _knows(self, name: str) -> bool:
        return name in self._known or (self._any_address and _address(name) is not None)


def _name(host: str) -> str:
    """The name or address of `name:port`, in small letters. Empty: it is none."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found is not None else ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
