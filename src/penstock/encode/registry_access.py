"""How a schema registry is reached: what the sections `sink.registry` and `source.registry` share."""

from __future__ import annotations

from penstock.model.section import Section
from penstock.secret import Secret


class RegistryAccess(Section):
    """A schema registry with the REST API of Confluent's."""

    url: str
    """Address of the registry, without user and password."""
    user: str = ""
    """Name of the account; empty: none."""
    password: Secret = Secret()
    """Password of the account."""
    ca_file: str = ""
    """File with the certificates that sign the registry's, as PEM. Empty: those of the system."""
    certificate_file: str = ""
    """File with the certificate of this client."""
    key_file: str = ""
    """File with the key of that certificate."""
