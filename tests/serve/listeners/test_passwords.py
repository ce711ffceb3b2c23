"""Passwords as clients of Canal send them."""

from __future__ import annotations

import hashlib

import pytest

from penstock.secret import Secret
from penstock.serve.listeners.passwords import Account, double_sha1, known

SEED = b"abcdefgh"
# The example of MySQL's manual: SELECT PASSWORD('mypass').
MYPASS = bytes.fromhex("6C8989366EAF75BB670AD8EA7A7FC1176A95CEF4")


def scrambled(password: bytes, seed: bytes) -> bytes:
    """As `SecurityUtil.scramble411` of Canal's client does it."""
    once = hashlib.sha1(password).digest()
    mask = hashlib.sha1(seed + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True)).hex().encode()


ACCOUNTS = {
    "password": Account(password=Secret("mypass")),
    "double": Account(double_sha1=MYPASS),
    "sha256": Account(sha256=hashlib.sha256(b"mypass").digest()),
}


def test_the_hash_is_that_of_mysql() -> None:
    assert double_sha1(b"mypass") == MYPASS


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_password_is_accepted_as_it_is_and_no_other(name: str) -> None:
    assert ACCOUNTS[name].accepts(b"mypass", SEED)
    for wrong in (b"", b"mypass2", MYPASS, MYPASS.hex().encode(), b"\xff"):
        assert not ACCOUNTS[name].accepts(wrong, SEED)


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_scrambled_password_is_accepted_with_its_own_seed(name: str) -> None:
    account = ACCOUNTS[name]
    assert account.accepts(scrambled(b"mypass", SEED), SEED) == account.reads_scrambled
    assert not account.accepts(scrambled(b"mypass", b"12345678"), SEED)
    assert not account.accepts(scrambled(b"wrong", SEED), SEED)


def test_a_password_that_is_the_users_name_is_known_in_any_form() -> None:
    account = known("canal", None, None, hashlib.sha256(b"canal").digest())
    assert account.is_name and account.accepts(b"canal", SEED)
    assert account.accepts(scrambled(b"canal", SEED), SEED)
    assert not account.accepts(scrambled(b"canal", b"12345678"), SEED)
    other = known("canal", None, None, hashlib.sha256(b"another").digest())
    assert not other.is_name and not other.reads_scrambled
