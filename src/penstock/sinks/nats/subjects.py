"""Names of subjects and streams. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

_PLAIN = "!\"#&'()+,/:;<=?@[\\]^`{|}"
"""Characters, besides letters, digits, `-`, `_` and `~`, that a name keeps in a subject."""
_FORBIDDEN_IN_STREAMS = re.compile(r"[^A-Za-z0-9_-]")


def escaped(name: str) -> str:
    """A name as one token of a subject. Dots, blanks, wildcards, `$`, `%`, and all that is not ASCII become
    `%` and two hexadecimal digits for each byte of UTF-8, as in URLs. So every way to decode parts of a URL
    gives the name back."""
    return quote(name, safe=_PLAIN, errors="surrogatepass").replace(".", "%2E")


def check_subject(subject: str, *, wildcards: bool = False) -> str:
    """Raises `ValueError` for a text that is no subject."""
    tokens = subject.split(".")
    if "" in tokens or re.search(r"[\s\x00-\x1f\x7f]", subject):
        raise ValueError(f"{subject!r} is no subject: it has tokens with dots between them, and no blanks")
    if not wildcards and {"*", ">"} & set(tokens):
        raise ValueError(f"{subject!r} has a wildcard")
    return subject


def is_covered(subject: str, patterns: Iterable[str]) -> bool:
    """Whether a stream with these subjects takes messages of a subject."""
    return any(_matches(subject.split("."), pattern.split(".")) for pattern in patterns)


def _matches(tokens: list[str], pattern: list[str]) -> bool:
    if pattern[-1] == ">" and len(tokens) >= len(pattern):
        tokens = [*tokens[: len(pattern) - 1], ">"]
    same = zip(tokens, pattern, strict=False)
    return len(tokens) == len(pattern) and all(part in ("*", token) for token, part in same)


def stream_name(source: str) -> str:
    """The name of a stream for a source. Streams have no dots and blanks in their names."""
    return _FORBIDDEN_IN_STREAMS.sub("_", source)
