"""Heartbeats: events that an idle source sends when it has sent everything else."""

from __future__ import annotations

_HEADER_BYTES = 4
"""The header of a packet: three bytes of length, and a number."""
_KIND_AT = 9
"""Place of the event's type: behind the packet's header, the status and the event's time."""
_KINDS = (27, 41)  # HEARTBEAT_LOG_EVENT, HEARTBEAT_LOG_EVENT_V2


def is_heartbeat(data: bytes) -> bool:
    """Whether these bytes of the stream are one packet with a heartbeat, and nothing else."""
    whole = len(data) == _HEADER_BYTES + int.from_bytes(data[:3], "little")
    return whole and len(data) > _KIND_AT and data[_HEADER_BYTES] == 0 and data[_KIND_AT] in _KINDS
