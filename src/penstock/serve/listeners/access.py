"""Who may read which destinations: users with passwords, and tokens."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from penstock.access.credentials import Attempts, Denied
from penstock.access.rates import Limits
from penstock.access.tokens import Rights, Tokens
from penstock.serve.settings import ServerConfig, UserSection


class Access:
    def __init__(self, config: ServerConfig) -> None:
        self._users: Mapping[str, UserSection] = config.users
        self._limits = Limits(config.requests_per_second_max)
        self._attempts = Attempts(config.failed_logins_per_minute_max)
        self._tokens = Tokens(config.tokens, self._limits, self._attempts)

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
        limit = self._limits.of(f"the user {name}", user.requests_per_second_max)
        return Rights(frozenset(user.destinations), limit=limit)

    def anybody(self, address: str) -> Rights:
        """The rights of clients that need no login."""
        return Rights(limit=self._limits.of(f"the address {address}", None))

    def shown(self, scheme: str, given: str, *, address: str) -> Rights:
        """The rights of whoever shows this in a header `Authorization`: `bearer` and a token, or `basic` with
        user and password. Raises `Denied`."""
        self._attempts.check(address)
        if scheme == "bearer" and given:
            return self._tokens.rights(given, address=address)
        if scheme == "basic" and self._users:
            try:
                name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise Denied("The header Authorization cannot be read.") from None
            return self.user(name, password.encode(), seed=b"", address=address)
        raise Denied("Send `Authorization: Bearer TOKEN` with a token of the server's file.")
