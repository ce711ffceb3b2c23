"""Writes `tables.rs` from a real MySQL 8.0.

It holds what each byte means in the single-byte character sets, and which character set each collation id
belongs to. With `--dump FILE` the script also writes what the server makes of every two- and three-byte
code of the East Asian character sets, one `charset code scalar` a line: `examples/charset_differences.rs`
compares that with encoding_rs and prints `differences.rs`.

    PYTHONPATH=src .venv/bin/python core/src/charset/generate.py core/src/charset/tables.rs
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from penstock.testing import servers

EAST_ASIAN = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")
UNDEFINED = 0xFFFF


def scalars(
    server: servers.MySqlServer, charset: str, codes: list[bytes]
) -> Iterator[tuple[bytes, int | None]]:
    """What the server makes of each code; None: nothing (it prints `?` or refuses)."""
    server.execute("CREATE TABLE charsets.codes (number INT PRIMARY KEY, code VARBINARY(4))")
    for first in range(0, len(codes), 5000):
        part = codes[first : first + 5000]
        values = ",".join(f"({first + index},x'{code.hex()}')" for index, code in enumerate(part))
        server.execute(f"INSERT INTO charsets.codes VALUES {values}")
    rows = server.query(
        f"SELECT code, HEX(CONVERT(CONVERT(code USING {charset}) USING utf32)) "
        "FROM charsets.codes ORDER BY number"
    )
    server.execute("DROP TABLE charsets.codes")
    for code, text in rows:
        known = text is not None and len(text) == 8 and (text != "0000003F" or code == b"?")
        yield code, int(text, 16) if known else None


def single_byte(server: servers.MySqlServer) -> str:
    names = server.query(
        "SELECT character_set_name FROM information_schema.character_sets "
        "WHERE maxlen = 1 AND character_set_name <> 'binary' ORDER BY 1"
    )
    lines = [
        "/// By name: the Unicode scalar of each byte, 0xFFFF where the server knows none.",
        "#[rustfmt::skip]",
        f"pub static SINGLE_BYTE: [(&str, [u16; 256]); {len(names)}] = [",
    ]
    for (name,) in names:
        table = [UNDEFINED if value is None else value
                 for _, value in scalars(server, name, [bytes([byte]) for byte in range(256)])]  # fmt: skip
        lines.append(f'    ("{name}", [')
        lines += [
            f"        {', '.join(f'{value:#x}' for value in table[at : at + 16])},"
            for at in range(0, 256, 16)
        ]
        lines.append("    ]),")
    return "\n".join([*lines, "];"])


def collations(server: servers.MySqlServer) -> str:
    rows = server.query("SELECT id, character_set_name FROM information_schema.collations ORDER BY id")
    lines = [
        "/// Collation id and its character set, by id.",
        "#[rustfmt::skip]",
        f"pub static COLLATIONS: [(u16, &str); {len(rows)}] = [",
        *(f'    ({number}, "{name}"),' for number, name in rows),
    ]
    return "\n".join([*lines, "];"])


def dump(server: servers.MySqlServer) -> Iterator[str]:
    two = [bytes([lead, trail]) for lead in range(0x80, 0x100) for trail in range(0x40, 0x100)]
    three = [bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
    for charset in EAST_ASIAN:
        codes = [bytes([byte]) for byte in range(256)] + two
        for code, value in scalars(server, charset, codes + three * (charset in ("ujis", "eucjpms"))):
            yield f"{charset} {code.hex()} {'-' if value is None else f'{value:x}'}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--dump", type=Path)
    options = parser.parse_args()
    with servers.MySqlServer() as server:
        server.execute("CREATE DATABASE charsets")
        head = "//! Written by `generate.py`, which asks a real server. Do not edit."
        options.tables.write_text("\n\n".join([head, single_byte(server), collations(server)]) + "\n")
        if options.dump:
            options.dump.write_text("".join(dump(server)))


if __name__ == "__main__":
    main()
