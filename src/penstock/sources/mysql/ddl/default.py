"""Reads what follows DEFAULT: a constant, the current time, or an expression."""

from __future__ import annotations

import re
from dataclasses import replace

from penstock.sources.mysql.ddl.charsets import WIDE
from penstock.sources.mysql.ddl.definition import Default, DefaultExpression, DefaultLiteral
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, Token, keywords

_PARENTHESES_MAX = 8
"""A constant in more parentheses than this counts as an expression."""

_NOW = keywords("CURRENT_TIMESTAMP NOW LOCALTIME LOCALTIMESTAMP")
_NUMBER = re.compile(r"[-+]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w$])")
_BINARY = re.compile(r"0[xX][0-9a-fA-F]+|0[bB][01]+")
_QUOTED = ("string", "double")
_DAY, _CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d"
_TEMPORAL = {
    "DATE": re.compile(_DAY), "TIME": re.compile(f"-?{_CLOCK}"), "TIMESTAMP": re.compile(f"{_DAY} {_CLOCK}"),
}  # fmt: skip
_BRACES = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}
_CODECS = {
    "ascii": "ascii", "binary": "ascii", "latin1": "latin-1", "utf8": "utf-8", "utf8mb3": "utf-8",
    "utf8mb4": "utf-8", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}  # fmt: skip
"""Python's names of character sets that a text may have before it."""
_OPERATORS = frozenset("+-*/%|&^<>=!")


def read_default(cursor: Cursor) -> Default:
    """Reads what follows DEFAULT."""
    start = cursor.peek()
    if start.kind == "sign" and start.text == "(":
        return _enclosed_default(cursor)
    if start.keyword in _NOW:
        cursor.next()
        return DefaultExpression("CURRENT_TIMESTAMP", _digits(cursor))
    literal = _literal(cursor)
    if literal is not None:
        if not _continues(cursor):
            return literal
    elif start.kind == "end":
        raise NotUnderstood("a default")
    _expression(cursor, operand=literal is None)
    return DefaultExpression(cursor.sql[start.start : cursor.last_end])


def _digits(cursor: Cursor) -> int:
    """Reads `(3)`, `()` or nothing after CURRENT_TIMESTAMP."""
    if not cursor.take_sign("("):
        return 0
    digits = 0 if cursor.at_sign(")") else cursor.number()
    if not cursor.take_sign(")"):
        raise NotUnderstood(")")
    return digits


def _literal(cursor: Cursor) -> DefaultLiteral | None:
    """Reads a constant, with what may stand before it. None: another thing follows."""
    first, second = cursor.peek(), cursor.peek(1)
    start = first.start
    if first.kind == "sign" and first.text == "{" and cursor.peek(2).kind in _QUOTED:  # {ts '…'}
        cursor.next()
        prefix = _BRACES.get(cursor.next().keyword, "")
        text = cursor.string()
        if not cursor.take_sign("}"):
            raise NotUnderstood("}")
        return _temporal(prefix, text, cursor.sql[start : cursor.last_end])
    if first.keyword in _TEMPORAL and second.kind in _QUOTED:  # DATE '…'
        cursor.next()
        text = cursor.string()
        return _temporal(first.keyword, text, cursor.sql[start : cursor.last_end])
    charset = "utf8" if first.keyword == "N" else first.text[1:].lower() if first.text[:1] == "_" else ""
    if first.kind != "word" or not charset or not _is_text(second, cursor.peek(2)):
        return _constant(cursor)
    cursor.next()
    constant = _constant(cursor)
    assert constant is not None
    return _introduced(charset, constant, cursor.sql[start : cursor.last_end])


def _is_text(token: Token, following: Token) -> bool:
    """Whether a constant follows that may have a character set before it."""
    if token.kind == "word":
        return bool(_BINARY.fullmatch(token.text)) or _has_digits(token, following)
    return token.kind in _QUOTED


def _has_digits(token: Token, following: Token) -> bool:
    """Whether it is `x'…'` or `b'…'`."""
    return token.keyword in ("X", "B") and following.kind in _QUOTED and following.start == token.end


def _constant(cursor: Cursor) -> DefaultLiteral | None:
    first = cursor.peek()
    if first.kind in _QUOTED:
        return DefaultLiteral("string", cursor.string())
    if number := _NUMBER.match(cursor.sql, first.start):
        while cursor.peek().kind != "end" and cursor.peek().end <= number.end():
            cursor.next()
        return DefaultLiteral("number", re.sub(r"\s", "", number[0]))
    if _has_digits(first, cursor.peek(1)):
        cursor.next()
        return DefaultLiteral("hex" if first.keyword == "X" else "bits", cursor.next().text)
    if first.keyword in ("TRUE", "FALSE", "NULL"):
        cursor.next()
        if first.keyword == "NULL":
            return DefaultLiteral("null")
        return DefaultLiteral("number", "1" if first.keyword == "TRUE" else "0")
    if first.kind == "word" and _BINARY.fullmatch(first.text):
        cursor.next()
        return DefaultLiteral("bits" if first.text[1] in "bB" else "hex", first.text[2:])
    return None


def _temporal(prefix: str, text: str, written: str) -> DefaultLiteral:
    """A date or time as the server prints it. Another spelling of one is left to the server."""
    form = _TEMPORAL.get(prefix)
    if form is not None and form.fullmatch(text):
        return DefaultLiteral("string", text)
    return DefaultLiteral("unknown", written)


def _introduced(charset: str, constant: DefaultLiteral, written: str) -> DefaultLiteral:
    """A text whose bytes are in a character set. Those of a string depend on the session's, unless it is
    ASCII."""
    try:
        if constant.kind == "string" and charset.startswith(WIDE):
            raise ValueError("each string of several has its own bytes")
        if constant.kind == "string":
            data = constant.text.encode("ascii")
        else:
            base, digits = (16, 2) if constant.kind == "hex" else (2, 8)
            size = (len(constant.text) + digits - 1) // digits
            data = int(constant.text or "0", base).to_bytes(size, "big")
        if charset == "latin1" and any(0x80 <= byte < 0xA0 for byte in data):
            raise ValueError("a character for which servers and Python differ")
        text = data.decode(_CODECS[charset])
    except (ValueError, KeyError):
        return DefaultLiteral("unknown", written)
    return DefaultLiteral("string", text, charset=charset)


def _continues(cursor: Cursor) -> bool:
    token = cursor.peek()
    return token.kind == "sign" and token.text in _OPERATORS


def _expression(cursor: Cursor, *, operand: bool) -> None:
    """Skips an expression without parentheses (MariaDB): operands between operators."""
    while True:
        if operand:
            while cursor.peek().kind == "sign" and cursor.peek().text in "+-!~@":
                cursor.next()
            if cursor.at_sign("("):
                cursor.parenthesised()
            elif cursor.take("NEXT", "VALUE", "FOR"):
                cursor.table()
            elif cursor.take("CASE"):
                _step_over_case(cursor)
            else:
                token = cursor.next()
                if token.kind in ("end", "sign"):
                    raise NotUnderstood("an expression")
                while cursor.take_sign("."):
                    cursor.next()
                if token.text.startswith("_") and cursor.peek().kind in ("string", "double"):
                    cursor.next()  # a character set before its text
                if cursor.at_sign("("):
                    cursor.parenthesised()
        if not _continues(cursor):
            return
        while _continues(cursor):
            cursor.next()
        operand = True


def _step_over_case(cursor: Cursor) -> None:
    depth = 1
    while depth:
        token = cursor.next()
        if token.kind == "end":
            raise NotUnderstood("END")
        depth += (token.keyword == "CASE") - (token.keyword == "END")


def _enclosed_default(cursor: Cursor) -> Default:
    start = end = cursor.peek().start
    tokens: list[Token] = []
    depth = 0
    while True:
        token = cursor.next()
        if token.kind == "end":
            raise NotUnderstood("a parenthesis that is not closed")
        tokens.append(token)
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            break
    for _ in range(_PARENTHESES_MAX):
        start, end = tokens[0].end, tokens[-1].start
        tokens = tokens[1:-1]
        if not tokens:
            raise NotUnderstood("a default")
        if not (tokens[0].text == "(" and tokens[0].kind == "sign" and _closes_at(tokens) == len(tokens) - 1):
            break
    text = cursor.sql[start:end].strip()
    inner = cursor.within(tokens)
    literal = _literal(inner)
    if literal is not None and inner.peek().kind == "end":
        return replace(literal, expression=True)
    return DefaultExpression(text)


def _closes_at(tokens: list[Token]) -> int:
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return index
    return -1
