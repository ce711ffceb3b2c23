"""WebSocket (RFC 6455): the handshake, and frames. Pure. Only what a server needs that sends texts and reads
nothing but pings and the end; everything else from a client is refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_KEY_OF_SERVERS = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PAYLOAD_BYTES_MAX = 125
"""Bytes of a ping or an end, by the RFC. Clients have nothing else to send."""
NORMAL, GOING, WRONG = 1000, 1001, 1002
"""Codes of an end."""
TOKEN_PREFIX = "token."
"""Browsers cannot set headers of a WebSocket. They give a token as a protocol with this prefix."""
PROTOCOL = "penstock"


class BadFrame(ValueError):
    """A frame that no client of this server may send."""


def wanted(headers: Mapping[str, str]) -> bool:
    return headers.get("upgrade", "").lower() == "websocket"


def protocols(headers: Mapping[str, str]) -> list[str]:
    return [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]


def token(headers: Mapping[str, str]) -> str | None:
    found = [one for one in protocols(headers) if one.startswith(TOKEN_PREFIX)]
    return found[0].removeprefix(TOKEN_PREFIX) if found else None


def handshake(headers: Mapping[str, str]) -> bytes:
    """The answer that begins a connection. Raises `ValueError` with what is wrong."""
    key = headers.get("sec-websocket-key", "")
    try:
        valid = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        valid = False
    if not valid or headers.get("sec-websocket-version") != "13":
        raise ValueError("This is not the handshake of a WebSocket of version 13.")
    accept = base64.b64encode(hashlib.sha1(key.encode() + _KEY_OF_SERVERS, usedforsecurity=False).digest())
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept.decode()}",
    ]
    if PROTOCOL in protocols(headers):
        lines.append(f"Sec-WebSocket-Protocol: {PROTOCOL}")
    return "\r\n".join((*lines, "", "")).encode()


def frame(kind: int, payload: bytes) -> bytes:
    """A frame of the server."""
    length = len(payload)
    if length < 126:
        head = bytes((_FINAL | kind, length))
    elif length < 1 << 16:
        head = struct.pack(">BBH", _FINAL | kind, 126, length)
    else:
        head = struct.pack(">BBQ", _FINAL | kind, 127, length)
    return head + payload


def end(code: int, reason: str = "") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason.encode()[: PAYLOAD_BYTES_MAX - 2])


def head(data: bytes) -> tuple[int, int]:
    """Kind and length of a client's frame, from its first two bytes. Behind them are a mask of four bytes and
    the payload. Raises `BadFrame`."""
    first, second = data
    kind, length = first & 0x0F, second & 0x7F
    if not second & _MASKED:
        raise BadFrame("a client's frame must be masked")
    if first & 0x70 or not first & _FINAL or kind not in (CLOSE, PING, PONG) or length > PAYLOAD_BYTES_MAX:
        raise BadFrame("only ping, pong and close are read")
    return kind, length


def unmasked(mask: bytes, payload: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
