"""Writes starting inputs for the fuzz targets into fuzz/corpus, from the real log in core/tests/data."""

import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOG = (HERE.parent / "tests" / "data" / "changes.binlog").read_bytes()
HEADER, CHECKSUM = 19, 4


def events(log: bytes) -> list[tuple[int, bytes]]:
    """Type and body of each event behind the format description."""
    found, position = [], 4
    while position < len(log):
        (size,) = struct.unpack_from("<I", log, position + 9)
        found.append((log[position + 4], log[position + HEADER : position + size - CHECKSUM]))
        position += size
    return found[1:]


def written(parts: list[tuple[int, bytes]]) -> bytes:
    """As fuzz_targets/log.rs reads them."""
    return b"".join(bytes([kind]) + struct.pack("<H", len(body)) + body for kind, body in parts)


def main() -> None:
    parts = events(LOG)
    seeds = {
        "event": [LOG[4:]],
        "range": [b"\1" + LOG, b"\0" + written(parts)],
        "inspect": [b"\1" + LOG, b"\0" + written(parts)],
        # A bool and a byte are taken from an input's end and start; what is between are the events.
        "framer": [b"\1\7" + written(parts)],
        "rows": [bytes([kind % 6]) + body[6:] for kind, body in parts if 23 <= kind <= 32],
        "table_map": [body for kind, body in parts if kind == 19],
        "gtid": [body for kind, body in parts if kind in (33, 34, 35)]
        + [b"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,4e11fa47-71ca-11e1-9e33-c80aa9429562:tag:2"],
        "payload": [b"\2\1\xff\0" + LOG[4:]],
        "json": [b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a", b"\2\2\0\x0c\0\4\0\0\5\x2a\0\x0c\2hi"],
        "resultset": [b"\1\3" + bytes(64)],
    }
    for target, inputs in seeds.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / f"seed-{number}").write_bytes(data)


if __name__ == "__main__":
    main()
