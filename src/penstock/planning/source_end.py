"""The end of the source's log, as a goal that the relay log reaches later."""

from __future__ import annotations

from typing import Protocol

from penstock.model.offset import SourcePosition
from penstock.relaylog.reader import RelayLog


class HasEnd(Protocol):
    """A source (`sources.base.Source`)."""

    def end_position(self) -> SourcePosition: ...


class SourceEnd:
    """The end that the source's log had when this was made.

    If another server is followed later, a position of the earlier one means nothing in its log. Then the end
    of the new server's log takes its place. It has all that is left of what the earlier one had."""

    def __init__(self, source: HasEnd, log: RelayLog) -> None:
        """Raises `TransientError` if the source does not answer."""
        self._source = source
        self._log = log
        self._server, self._position = log.source_uuid, source.end_position()

    def position(self) -> SourcePosition:
        """The end of the log of the server that is followed now. Raises `TransientError` if that does not
        answer."""
        server = self._log.source_uuid
        if server != self._server:
            self._position = self._source.end_position()
            self._server = server
        return self._position
