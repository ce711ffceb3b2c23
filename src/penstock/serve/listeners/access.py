"""Who may read which destinations: users with passwords, and tokens."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.access.credentials import Attempts, Denied, same
from penstock.secret import Secret
from penstock.serve.listeners.rates import RequestLimit
from penstock.serve.settings import ServerConfig, TokenSection, UserSection

ADDRESSES_MAX = 10_000
"""Users, tokens and addresses whose requests are counted, so that many of them do not fill the memory."""


@dataclass(frozen=True)
class Rights:
    """The destinations that somebody may read. `*`: all."""

    destinations: frozenset[str]
    limit: RequestLimit | None = field(default=None, compare=False)

    def __contains__(self, destination: str) -> bool:
        return not self.destinations.isdisjoint((destination, "*"))

    def take(self) -> None:
        """Counts a request. Raises `TooMany`."""
        if self.limit is not None:
            self.limit.take()

    def of(self, destinations: Iterable[str]) -> list[str]:
        return [one for one in destinations if one in self]


EVERYTHING = Rights(frozenset("*"))


class Access:
    def __init__(self, config: ServerConfig) -> None:
        self._users: Mapping[str, UserSection] = config.users
        self._limits = Limits(config.requests_per_second_max)
        self._tokens: list[tuple[Secret | None, bytes | None, Rights]] = [
            (one.token, one.digest, self._rights(f"the token {name}", one))
            for name, one in config.tokens.items()
        ]
        if config.http_token is not None:
            everything = Rights(frozenset("*"), self._limits.of("the token `http_token`", None))
            self._tokens.append((config.http_token, None, everything))
        self._admin = config.admin_token
        self._attempts = Attempts(config.failed_logins_per_minute_max)

    @property
    def needs_token(self) -> bool:
        return bool(self._tokens)

    @property
    def needs_login(self) -> bool:
        return bool(self._tokens or self._users)

    def user(self, name: str, password: bytes, *, seed: bytes, address: str) -> Rights:
        """A user with the password, as it is or scrambled. Raises `Denied`."""
        if not self._users:
            return self.anybody(address)
        self._attempts.check(address)
        user = self._users.get(name)
        account = None if user is None else user.account(name)
        if user is None or account is None or not account.accepts(password, seed):
            self._attempts.failed(address)
            said = f"auth failed for user: {name[:64]}"
            if account is not None and not account.reads_scrambled:
                said += "; the server has a SHA-256 hash of the password, which cannot check a scrambled one"
            raise Denied(said)
        return self._rights(f"the user {name}", user)

    def anybody(self, address: str) -> Rights:
        """The rights of clients that need no login."""
        return Rights(frozenset("*"), self._limits.of(f"the address {address}", None))

    def _rights(self, who: str, section: UserSection | TokenSection) -> Rights:
        limit = self._limits.of(who, section.requests_per_second_max)
        return Rights(frozenset(section.destinations), limit)

    def bearer(self, token: str, *, address: str) -> Rights:
        """The rights of a token. Raises `Denied`."""
        self._attempts.check(address)
        digest = hashlib.sha256(token.encode()).digest()
        for secret, known, rights in self._tokens:
            if secret is not None and same(secret.reveal(), token):
                return rights
            if known is not None and hmac.compare_digest(known, digest):
                return rights
        self._attempts.failed(address)
        raise Denied("This token is not one of the server's file.")

    def operator(self, value: str, *, address: str) -> None:
        """Checks a header `Authorization` for `admin_token`. Raises `Denied`."""
        if self._admin is None:
            raise Denied("The server's file has no `admin_token`.")
        self._attempts.check(address)
        scheme, _, token = value.partition(" ")
        if scheme.lower() == "bearer" and same(self._admin.reveal(), token.strip()):
            return
        if value:
            self._attempts.failed(address)
        raise Denied("Send `Authorization: Bearer TOKEN` with `admin_token` of the server's file.")

    def header(self, value: str, *, address: str) -> Rights:
        """The value of a header `Authorization`: `Bearer TOKEN`, or `Basic` with user and password. Raises
        `Denied`."""
        scheme, _, credentials = value.partition(" ")
        if scheme.lower() == "bearer":
            return self.bearer(credentials.strip(), address=address)
        if scheme.lower() == "basic" and self._users:
            try:
                name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise Denied("The header Authorization cannot be read.") from None
            return self.user(name, password.encode(), seed=b"", address=address)
        raise Denied("Send `Authorization: Bearer TOKEN` with a token of the server's file.")


class Limits:
    """The request limits of all users, tokens and addresses."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._known: OrderedDict[str, RequestLimit] = OrderedDict()

    def of(self, who: str, per_second: int | None) -> RequestLimit | None:
        """The limit of one user, token or address, over all its connections. `per_second` None: the server's
        limit."""
        per_second = self._per_second if per_second is None else per_second
        if not per_second:
            return None
        found = self._known.pop(who, None) or RequestLimit(per_second, who)
        self._known[who] = found
        while len(self._known) > ADDRESSES_MAX:
            self._known.popitem(last=False)
        return found
