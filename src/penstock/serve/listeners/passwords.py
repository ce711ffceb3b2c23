"""Checks passwords as Canal's clients send them.

Clients from Canal 1.1.3 on send `SHA1(password) XOR SHA1(seed + SHA1(SHA1(password)))` in hexadecimal
digits, with the seed of the handshake: MySQL's method before version 8. A server can check that with the
password, or with SHA1(SHA1(password)), which Canal calls `canal.passwd` and MySQL the `authentication_string`
of its plugin `mysql_native_password`. Older clients, and some for other languages, send the password as it
is. That can be checked with any hash.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from penstock.secret import Secret


@dataclass(frozen=True)
class Account:
    """A user's password, as far as it is known. Hashes are bytes."""

    password: Secret | None = None
    double_sha1: bytes | None = None
    sha256: bytes | None = None
    is_name: bool = False
    """Whether the password is the user's name."""

    @property
    def reads_scrambled(self) -> bool:
        return self.password is not None or self.double_sha1 is not None

    def accepts(self, given: bytes, seed: bytes) -> bool:
        """Whether `given` is the password, as it is or scrambled with the seed."""
        return self._is_plain(given) or self._is_scrambled(given, seed)

    def _is_plain(self, given: bytes) -> bool:
        if self.password is not None:
            return hmac.compare_digest(given, self.password.reveal().encode())
        if self.sha256 is not None:
            return hmac.compare_digest(hashlib.sha256(given).digest(), self.sha256)
        assert self.double_sha1 is not None
        return hmac.compare_digest(double_sha1(given), self.double_sha1)

    def _is_scrambled(self, given: bytes, seed: bytes) -> bool:
        if self.password is not None:
            known = double_sha1(self.password.reveal().encode())
        elif self.double_sha1 is not None:
            known = self.double_sha1
        else:
            return False
        try:
            token = bytes.fromhex(given.decode("ascii"))
        except ValueError:
            return False
        if len(token) != hashlib.sha1().digest_size:
            return False
        mask = _sha1(seed + known)
        once = bytes(one ^ other for one, other in zip(token, mask, strict=True))
        return hmac.compare_digest(_sha1(once), known)


def known(name: str, password: Secret | None, double: bytes | None, sha256: bytes | None) -> Account:
    """The account of a user. A password that is the user's name, as in Canal's own examples, is known in any
    form, to everybody."""
    plain = name.encode()
    if hmac.compare_digest(hashlib.sha256(plain).digest(), sha256 or b""):
        double = double_sha1(plain)
    return Account(password, double, sha256, is_name=_is(plain, password, double, sha256))


def _is(plain: bytes, password: Secret | None, double: bytes | None, sha256: bytes | None) -> bool:
    """Whether this is the password."""
    return Account(password, double, sha256).accepts(plain, b"")


def double_sha1(password: bytes) -> bytes:
    return _sha1(_sha1(password))


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
