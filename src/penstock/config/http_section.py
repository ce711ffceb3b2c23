"""The section `http`: where a program answers HTTP, and who may ask."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import Field, field_validator

from penstock.access.tokens import TokenSection
from penstock.model.section import Section


def check_address(value: str | None) -> str | None:
    """Raises `ValueError` for what is not host:port."""
    if value is not None:
        host, _, port = value.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError(
                f"{value!r} is not an address; write it as host:port, for example 127.0.0.1:8190"
            )
    return value


class TlsSection(Section):
    """Encrypts connections."""

    cert: Path
    """PEM file with the server's certificate, and those that signed it."""
    key: Path
    """PEM file with its private key, which has no passphrase."""

    def rooted(self, absolute: Callable[[Path], Path | None]) -> TlsSection:
        """With absolute paths."""
        return self.model_copy(update={"cert": absolute(self.cert), "key": absolute(self.key)})


class HttpSection(Section):
    """Where HTTP is answered."""

    listen: str = "127.0.0.1:8190"
    """host:port. Port 0 takes any free port."""
    hosts: list[str] = Field(default_factory=list)
    """More names by which clients reach it, such as that of a proxy or a service of Kubernetes. A request is
    answered if its header `Host` has one of these, or the address that is listened on; with `0.0.0.0` or
    `[::]`, any address."""

    _is_address = field_validator("listen")(check_address)


class PipelineHttpSection(HttpSection):
    """HTTP of the running pipeline: its health and status, and signals."""

    tokens: dict[str, TokenSection] = Field(min_length=1)
    """By a name of your choice: what clients send as `Authorization: Bearer TOKEN`. Only `/health` needs
    none."""
    tls: TlsSection | None = None
    """None: connections are not encrypted. Then use addresses that only trusted machines reach."""
    requests_per_second_max: int = Field(0, ge=0)
    """Requests that one token may send a second. More are refused with an error that says when to try again.
    0: there is no limit."""
    failed_logins_per_minute_max: int = Field(60, ge=1)
    """Requests of one address with a wrong token within a minute. Then it is refused for the rest of that
    minute."""

    def rooted(self, absolute: Callable[[Path], Path | None]) -> PipelineHttpSection:
        return self.model_copy(update={"tls": self.tls and self.tls.rooted(absolute)})
