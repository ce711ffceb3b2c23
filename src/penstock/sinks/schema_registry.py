"""The section `sink.registry`: the registry of formats whose messages name their schema by a number."""

from __future__ import annotations

from typing import Literal

from penstock.model.section import Section
from penstock.secret import Secret

BINARY_FORMATS = ("avro", "protobuf")
"""Formats that need a registry."""


class RegistryOptions(Section):
    """A schema registry with the REST API of Confluent's, for the formats avro and protobuf."""

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
    register_schemas: bool = True
    """Register schemas that the registry does not have. Without it, their tables are parked."""
    compatibility: bool = True
    """Ask the registry whether a schema is compatible before it is registered."""
    subjects: Literal["topic", "record", "topic-record"] = "topic"
    """How subjects are named: by Confluent's TopicName-, RecordName- or TopicRecordNameStrategy."""
