"""Character sets and collations as servers name them, and the default collation of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sources.mysql.ddl.server import Server

BYTES_MAX = {
    "big5": 2, "ujis": 3, "sjis": 2, "euckr": 2, "gb2312": 2, "gbk": 2, "utf8": 3, "utf8mb3": 3, "ucs2": 2,
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "cp932": 2, "eucjpms": 3, "gb18030": 4,
}  # fmt: skip
"""Most bytes of a character. Character sets that are not listed have one byte for each."""

_NOT_GENERAL = {
    "big5": "chinese_ci", "dec8": "swedish_ci", "hp8": "english_ci", "latin1": "swedish_ci",
    "swe7": "swedish_ci", "ujis": "japanese_ci", "sjis": "japanese_ci", "tis620": "thai_ci",
    "euckr": "korean_ci", "gb2312": "chinese_ci", "gbk": "chinese_ci", "latin5": "turkish_ci",
    "cp932": "japanese_ci", "eucjpms": "japanese_ci", "gb18030": "chinese_ci",
}  # fmt: skip

_UNICODE = frozenset({"utf8", "utf8mb3", "ucs2", "utf8mb4", "utf16", "utf16le", "utf32"})
_UCA1400 = frozenset({"utf8mb3", "ucs2", "utf8mb4", "utf16", "utf32"})
_EVERYTHING = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_BASIC_PLANE = frozenset({"utf8", "utf8mb3", "ucs2"})
_WHOLE = frozenset({
    "armscii8", "cp850", "cp852", "cp866", "gb18030", "keybcs2", "koi8r", "koi8u", "latin1", "latin2",
    "latin5", "latin7", "macce", "macroman", "tis620", "utf8", "utf8mb3", "utf8mb4", "utf16", "utf16le",
})  # fmt: skip
"""Character sets in which each text that a server stores has a character of Unicode for each of its own.
Others have unassigned codes, which are stored and become `?`."""
WIDE = ("ucs", "utf16", "utf32")
"""How the names of character sets begin whose ASCII has more than one byte."""
_HALVES = frozenset({"ucs2", "utf32"})
"""Character sets with halves of surrogate pairs. In others these are no text, without a warning."""


def canonical(server: Server, charset: str) -> str:
    """The character set's name in the catalog of this server. For example, newer servers print `utf8mb3` for
    `utf8`."""
    charset = charset.lower()
    if charset in ("utf8", "utf8mb3"):
        return "utf8mb3" if server.at_least((8, 0, 28), (10, 6, 1)) else "utf8"
    return charset


def canonical_collation(server: Server, collation: str, charset: str | None = None) -> str:
    collation = collation.lower()
    if collation.startswith("uca1400_") and charset is not None:  # MariaDB: a collation of several charsets
        collation = f"{charset}_{collation}"
    name, underline, rest = collation.partition("_")
    if name in ("utf8", "utf8mb3") and underline:
        name = "utf8mb3" if server.at_least((8, 0, 30), (10, 6, 1)) else "utf8"
    return name + underline + rest


def default_collation(server: Server, charset: str) -> str:
    charset = canonical(server, charset)
    if charset == "binary":
        return "binary"
    if charset == "utf8mb4" and server.at_least((8, 0, 1), None):
        return "utf8mb4_0900_ai_ci"
    if charset in _UCA1400 and server.at_least(None, (11, 5, 1)):
        return f"{charset}_uca1400_ai_ci"
    return canonical_collation(server, f"{charset}_{_NOT_GENERAL.get(charset, 'general_ci')}")


def binary_collation(server: Server, charset: str) -> str:
    """The collation that the BINARY attribute of a column means."""
    return "binary" if charset == "binary" else canonical_collation(server, f"{charset}_bin")


def of_collation(server: Server, collation: str) -> str:
    return canonical(server, collation.lower().partition("_")[0])


def settle(
    server: Server, charset: str | None, collation: str | None, *, inherited: tuple[str, str] | None = None
) -> tuple[str, str]:
    """The character set and collation that result from a statement. What it does not name is inherited."""
    if collation == "default":  # MariaDB: that of the character set
        charset, collation = charset or (inherited or server.default_charset)[0], None
    if charset is None and collation is None:
        return inherited or server.default_charset
    if collation is not None and collation.lower().startswith("uca1400_"):
        base = charset or (inherited or server.default_charset)[0]
        if base not in _UNICODE:
            base = "utf8mb4"
        return canonical(server, base), canonical_collation(server, collation, canonical(server, base))
    if collation is not None:
        return of_collation(server, collation), canonical_collation(server, collation)
    assert charset is not None
    return canonical(server, charset), default_collation(server, charset)


def bytes_max(charset: str) -> int:
    return BYTES_MAX.get(charset, 1)


def covers(wider: str | None, narrower: str | None) -> bool:
    """Whether everything that a column of `narrower` can hold is the same text in `wider`."""
    if wider == narrower:
        return True
    if wider is None or narrower not in _WHOLE or wider == "binary":
        return False
    if wider in _EVERYTHING:
        return True
    if wider in _BASIC_PLANE:
        return narrower not in _EVERYTHING
    return False


def checks(new: str | None, old: str | None) -> bool:
    """Whether a strict server refuses a text that the new character set does not have."""
    return new == old or ("binary" not in (old, new) and old not in _HALVES)
