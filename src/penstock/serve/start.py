"""Where a subscription begins: the section `start` of a destination, and what clients ask for."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from penstock.config.source_section import OwnSources
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.first_transaction import first_committed_since
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import format_of
from penstock.sources import registry
from penstock.sources.log_start import LogStart, microseconds


def _read(section: Any) -> LogStart:
    """A section, in the form of the source whose places it names."""
    if isinstance(section, LogStart):
        return section
    if isinstance(section, dict) and (own := section.keys() - LogStart.model_fields.keys()):
        for model in _own():
            if own & model.model_fields.keys():
                return model.model_validate(section)
    return LogStart.model_validate(section)


def _own() -> list[type[LogStart]]:
    """The sections of sources whose logs have places of their own."""
    kinds = map(registry.kind, registry.OF_FORMAT.values())
    return [one.start for one in kinds if one.start is not None]


class OwnStarts(OwnSources):
    @property
    def written(self) -> Any:
        return reduce(or_, _own())


Start = Annotated[SerializeAsAny[LogStart], BeforeValidator(_read), OwnStarts()]


def start_of(asked: Any) -> LogStart:
    """The `start` that a client asks for. Raises `ConfigError`."""
    try:
        return _read(asked)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"`start` cannot be {str(asked)[:100]!r}: {reason}.") from None


def offset_of(log: RelayLog, start: LogStart) -> Offset:
    """Where a new subscription begins. Raises `ConfigError` for a place that the log does not have."""
    if start.at is not None:
        return log.end if start.at == "latest" else log.start
    if start.timestamp is not None:
        return first_committed_since(log, microseconds(start.timestamp))
    start.check()
    kind = registry.of_format(format_of(log.facts))
    if kind is None or kind.places is None or type(start) is not kind.start:
        named = " and ".join(f"`{name}`" for name in sorted(start.model_fields_set))
        raise ConfigError(
            f"The log of this source has no places that {named} of `start` could name.",
            hint="Use `latest`, `earliest` or a `timestamp`.",
        )
    found: Offset = kind.places().start(log, start)
    return found
