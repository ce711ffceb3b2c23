"""The section `sink.registry`: the registry of formats whose messages name their schema by a number."""

from __future__ import annotations

from typing import Literal

from penstock.encode.registry_access import RegistryAccess

BINARY_FORMATS = ("avro", "protobuf")
"""Formats that need a registry."""


class RegistryOptions(RegistryAccess):
    """A schema registry with the REST API of Confluent's, for the formats avro and protobuf."""

    register_schemas: bool = True
    """Register schemas that the registry does not have. Without it, their tables are parked."""
    compatibility: bool = True
    """Ask the registry whether a schema is compatible before it is registered."""
    subjects: Literal["topic", "record", "topic-record"] = "topic"
    """How subjects are named: by Confluent's TopicName-, RecordName- or TopicRecordNameStrategy."""
