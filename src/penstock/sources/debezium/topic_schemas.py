"""The Avro schemas of messages, from a schema registry."""

from __future__ import annotations

from penstock._core import TopicTranslator
from penstock.encode.registry import Registry, RegistrySettings
from penstock.errors import ConfigError
from penstock.sources.debezium.options import SourceRegistry


class TopicSchemas:
    """Asks the registry for each schema once. A number that no schema has is not asked for again: its
    messages cannot be read, and are skipped or end the receiver (`source.on_error`)."""

    def __init__(self, options: SourceRegistry) -> None:
        self._registry = Registry(RegistrySettings.of(options))
        self._url = options.url
        self._missing: set[int] = set()

    def teach(self, translator: TopicTranslator, number: int) -> None:
        """Gives the translator the schema of a number. Raises `TransientError` if the registry does not
        answer, and `ConfigError` for a schema that is not read."""
        if number in self._missing:
            return
        schema = self._registry.schema(number)
        if schema is None:
            self._missing.add(number)
            return
        if schema.type != "AVRO" or schema.references:
            what = "refers to others" if schema.references else f"is of type {schema.type}"
            raise ConfigError(
                f"The schema {number} of the registry {self._url} {what}. That cannot be read.",
                hint="Let Debezium write its topics with AvroConverter, or as JSON.",
            )
        try:
            translator.add_schema(number, schema.text)
        except ValueError as error:
            raise ConfigError(
                f"The schema {number} of the registry {self._url} cannot be read: {error}."
            ) from error
