"""Tokens: who sends one may do what its role permits."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, model_validator

from penstock.access.credentials import Attempts, Denied
from penstock.access.rates import Limits, RequestLimit
from penstock.errors import TransientError
from penstock.model.section import Section
from penstock.secret import Secret

log = logging.getLogger(__name__)

Role = Literal["reader", "operator"]
"""A reader only reads. An operator may also do everything else."""

_TOKEN = re.compile(r"[!-~]{16,}")


@dataclass(frozen=True)
class Rights:
    """What somebody may do. `destinations`: those of a subscription server that he may read. `*`: all."""

    destinations: frozenset[str] = frozenset("*")
    role: Role = "reader"
    limit: RequestLimit | None = field(default=None, compare=False)

    def __contains__(self, destination: str) -> bool:
        return not self.destinations.isdisjoint((destination, "*"))

    def take(self) -> None:
        """Counts a request. Raises `TooMany`."""
        if self.limit is not None:
            self.limit.take()

    def of(self, destinations: Iterable[str]) -> list[str]:
        return [one for one in destinations if one in self]


class TokenSection(Section):
    """A token for HTTP, in one of two forms."""

    token: Secret | None = None
    """The token: at least 16 characters, of printable ASCII without spaces. Use `${NAME}` to take it from the
    environment."""
    token_sha256: str | None = Field(None, pattern="^[0-9a-fA-F]{64}$")
    """SHA-256 of the token in hexadecimal digits."""
    role: Role = "reader"
    """`reader`: sees everything and changes nothing. `operator`: may also send commands."""
    requests_per_second_max: int | None = Field(None, ge=0)
    """The limit of this token. None: that of all."""

    @model_validator(mode="after")
    def _one_form(self) -> TokenSection:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("give `token` or `token_sha256`")
        token = self.token
        if token is not None and not token.is_kept and not _TOKEN.fullmatch(token.reveal()):
            raise ValueError("a token has at least 16 characters, of printable ASCII without spaces")
        return self

    def rights(self, name: str, limits: Limits) -> Rights:
        """The rights of whoever has the token, which has this name."""
        return Rights(role=self.role, limit=limits.of(f"the token {name}", self.requests_per_second_max))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the token. Empty while its file has none, and then nobody can log in with it."""
        if self.token_sha256 is not None:
            return bytes.fromhex(self.token_sha256)
        assert self.token is not None
        try:
            token = self.token.reveal()
        except TransientError as error:
            log.warning("%s", error)
            return b""
        return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else b""


class Tokens:
    """The tokens of a file, by their names."""

    def __init__(self, tokens: Mapping[str, TokenSection], limits: Limits, attempts: Attempts) -> None:
        self._attempts = attempts
        self._known = [(one, one.rights(name, limits)) for name, one in tokens.items()]

    def __len__(self) -> int:
        return len(self._known)

    def check(self, address: str) -> None:
        """Raises `Denied` for an address that has sent too many wrong tokens."""
        self._attempts.check(address)

    def rights(self, token: str, *, address: str) -> Rights:
        """The rights of whoever sends a token from an address. Raises `Denied`."""
        self._attempts.check(address)
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for one, rights in self._known:
            if hmac.compare_digest(one.digest, given):
                return rights
        self._attempts.failed(address)
        raise Denied("This token is none of `tokens` in the server's file.")
