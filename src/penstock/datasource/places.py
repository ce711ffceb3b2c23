"""The places in a relay log that options name."""

from __future__ import annotations

from datetime import datetime, timezone

from penstock._core import DecodeError
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.first_transaction import first_committed_since
from penstock.relaylog.reader import RelayLog


def offset_of(log: RelayLog, text: str, option: str) -> Offset:
    """The offset between two transactions that an option names: `earliest`, `latest`, a number, or a time,
    which stands before the first transaction with rows that was committed then or later."""
    if text in ("earliest", "latest"):
        return log.start if text == "earliest" else log.end
    if text.isdecimal():
        return _checked(log, Offset(int(text)), option)
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            f"`{option}` of penstock cannot be `{text}`.",
            hint="Give `earliest`, `latest`, an offset of the relay log, or a time such as "
            "2026-11-25T16:00:00Z.",
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return first_committed_since(log, round(time.timestamp() * 1_000_000), statements=False)


def _checked(log: RelayLog, offset: Offset, option: str) -> Offset:
    if not log.start <= offset <= log.end:
        raise ConfigError(
            f"`{option}` of penstock is offset {offset}, and the relay log {log.place} has {log.start} to "
            f"{log.end}."
        )
    try:
        known = log.committed_before(offset)
    except DecodeError:  # in the middle of an event
        known = log.start
    if known != offset:
        raise ConfigError(f"`{option}` of penstock: offset {offset} is not the end of a transaction.")
    return offset
