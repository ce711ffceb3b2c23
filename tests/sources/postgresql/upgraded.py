"""What `pg_upgrade` does to a server, as far as a reader of its log sees it: another system identifier, the
same numbers of tables, the same files, and slots that begin behind the former server's log. The tests'
servers come without that program."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.sources.postgresql.pg_log import connected

from penstock.testing.servers.postgresql import PostgreSqlServer

_POLYNOMIAL = 0x82F63B78
_IDENTIFIER_AT = 24
"""Where the identifier is in a file of the server's log (`XLogLongPageHeaderData`)."""


def upgrade(server: PostgreSqlServer, slot: str, identifier: int = 7_000_000_000_000_000_001) -> None:
    """The server must be running. It is started again."""
    server.stop()
    data = server.folder / "data"
    _rename_control(data / "global" / "pg_control", identifier)
    for file in (data / "pg_wal").iterdir():
        if file.is_file() and len(file.name) == 24:
            _write(file, _IDENTIFIER_AT, struct.pack("<Q", identifier))
    server.start()
    with connected(server) as connection:
        moved = "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn())"
        connection.execute(f"{moved} FROM pg_replication_slots WHERE slot_name = '{slot}'".encode())
        [(found,)] = connection.execute("SELECT system_identifier FROM pg_control_system()")
    assert found == identifier


def _rename_control(file: Path, identifier: int) -> None:
    """The file ends with a checksum, whose place depends on the version."""
    content = bytearray(file.read_bytes()[:512])
    place = next(
        at for at in range(200, 500, 4) if _crc32c(content[:at]) == struct.unpack_from("<I", content, at)[0]
    )
    struct.pack_into("<Q", content, 0, identifier)
    struct.pack_into("<I", content, place, _crc32c(content[:place]))
    _write(file, 0, bytes(content))


def _write(file: Path, at: int, content: bytes) -> None:
    with open(file, "r+b") as out:
        out.seek(at)
        out.write(content)


def _crc32c(content: bytes | bytearray) -> int:
    crc = 0xFFFF_FFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF
