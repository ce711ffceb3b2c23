"""Warns if somebody could learn the password on its way to the server. `connection.py` says what each plugin
sends."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sources.mysql.connection import CLEARTEXT_PLUGINS, is_encrypted, is_verified
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.preflight_source import Source
from penstock.sources.preflight import Finding

_LOCAL_HOSTS = ("localhost", "::1")
_CURE = (
    "Set source.tls to verify_ca or verify_identity, and source.tls_ca to the file of the authority that "
    "signed the server's certificate (MySQL's own: ca.pem in its data directory)."
)


def is_local(host: str) -> bool:
    return host in _LOCAL_HOSTS or host.startswith("127.")


def note_secrecy(source: Source) -> Iterator[Finding]:
    config, connection = options_of(source.config), source.connection
    verified, encrypted = is_verified(connection), is_encrypted(connection)
    if is_local(config.host):
        yield Finding("ok", "tls", source.name, "The source is on this machine.")
    elif verified:
        yield Finding("ok", "tls", source.name, "TLS is on, and the server's certificate was verified.")
    elif config.allow_cleartext_password:
        yield Finding(
            "warning", "tls", source.name,
            f"source.allow_cleartext_password is on and the certificate of {source.name} is not verified: "
            f"whoever answers at this address may ask for the password ({CLEARTEXT_PLUGINS[0]}). {_CURE}",
        )  # fmt: skip
    elif encrypted:
        yield Finding(
            "warning", "tls", source.name,
            f"TLS is on, but the certificate of {source.name} is not verified (source.tls: {config.tls}): an "
            "impostor at this address reads every row, and learns the password of an account that uses "
            f"caching_sha2_password or sha256_password. {_CURE}",
        )  # fmt: skip
    else:
        yield Finding(
            "warning", "tls", source.name,
            f"The connection to {source.name} is not encrypted (source.tls: {config.tls}): everybody on the "
            f"way reads the rows. {_CURE}",
        )  # fmt: skip
