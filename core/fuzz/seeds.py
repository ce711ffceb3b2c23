"""Writes starting inputs for the fuzz targets into fuzz/corpus, from the real log in core/tests/data."""

import base64
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOG = (HERE.parent / "tests" / "data" / "changes.binlog").read_bytes()
HEADER, CHECKSUM = 19, 4
# A few of its events, packed by zstd.
PACKED = base64.b64decode(
    """
    KLUv/WBFAtUNAFacXUPwkibpjTaEGW79tEiuWoQzLLFb94HungpoHcMlternvx09SfHtmyVqUsptBMAzamnjULMsmErH6u3xxTL+
    NdsIaVumSABUAFMAvRP+X/wF/ZUQAcKKysfPaHQyGh244PF4fNqGsq7/lRMTqIF/APn3MiBhUeCuCzNEMlqk7vnrzyWKFTxEWODo
    2JiRmeVvgb8BW1FbblqWtBwpyKwEWWrF0KxkwXTSYKouNVVryQbvakikkiOHaSwYLSly79VHZ/J1lmaVlwW/2DNxAEOwI4k9uo7r
    uA5I5LPxeOCTkcECdJborWsB229YggXbcDiI+HAS836AiCaYzqoC7BbcQBlxygTpFxU5QvKXFCixiyGiSUc/xig6afw1+dsTy1pq
    wstDXaqqpYFHztpkqIaieuqGLFuyVG3ZoQH/f8g/yV/P35Qn7XjAX+ICZiRkmrO5gxy6qqY8AZx/e0AufOSXlUbwobyD7p9Vzv8H
    MONnGyNmVePfpjoFGgBtE1DaNYIytAsE5QPUZm5B75jgyAiG9gCugCsgYDxL01oJTUPTssh4KRdVmgasBFQZunRgnSAtwA3kBgxb
    gDk=
    """
)


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
        # The numbers are taken from an input's start.
        "ranged": [bytes(25) + b"\1" + LOG, bytes(25) + b"\0" + written(parts)],
        "inspect": [b"\1" + LOG, b"\0" + written(parts)],
        "encode": [b"\1" + LOG, b"\0" + written(parts)],
        # A bool and a byte are taken from an input's end and start; what is between are the events.
        "framer": [b"\1\7" + written(parts)],
        "rows": [bytes([kind % 6]) + body[6:] for kind, body in parts if 23 <= kind <= 32],
        "table_map": [body for kind, body in parts if kind == 19],
        "gtid": [body for kind, body in parts if kind in (33, 34, 35)]
        + [b"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,4e11fa47-71ca-11e1-9e33-c80aa9429562:tag:2"],
        "payload": [b"\2\3\xfc\xff\0\0" + LOG[4:], PACKED],
        "json": [b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a", b"\2\2\0\x0c\0\4\0\0\5\x2a\0\x0c\2hi"],
        "resultset": [b"\1\3" + bytes(64)],
        # A bool is taken from the end. Buckets, directory and checksums are made to fit by the target.
        "key_run": [bytes(12) + bytes([bits]) + bytes(51) + bytes(range(200)) * 5 + b"\1" for bits in (0, 3)],
    }
    for target, inputs in seeds.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / f"seed-{number}").write_bytes(data)


if __name__ == "__main__":
    main()
