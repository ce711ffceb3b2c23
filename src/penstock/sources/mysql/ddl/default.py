"""Reads what follows DEFAULT: a constant, the current time, or an expression."""

from __future__ import annotations

import re
from dataclasses import replace

from penstock.sources.mysql.ddl.definition import Default, DefaultExpression, DefaultLiteral
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, Token, keywords

_PARENTHESES_MAX = 8
"""A constant in more parentheses than this counts as an expression."""

_NOW = keywords("CURRENT_TIMESTAMP NOW LOCALTIME LOCALTIMESTAMP")
_NUMBER = re.compile(r"[-+]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w$])")
_OPERATORS = frozenset("+-*/%|&^<>=!")


def read_default(cursor: Cursor) -> Default:
    """Reads what follows DEFAULT."""
    start = cursor.peek()
    if start.kind == "sign" and start.text == "(":
        return _enclosed_default(cursor)
    if start.keyword in _NOW:
        cursor.next()
        return DefaultExpression("CURRENT_TIMESTAMP", _digits(cursor))
    ahead = [cursor.peek(distance) for distance in range(4)]
    literal = plain_literal(cursor.sql, ahead)
    if literal is not None:
        literal = _step_over(cursor, literal)
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


def _step_over(cursor: Cursor, literal: DefaultLiteral) -> DefaultLiteral:
    """Returns the literal and skips its tokens."""
    first = cursor.peek()
    if literal.kind == "string":
        if first.kind == "word":  # DATE'…', _utf8'…', N'…'
            cursor.next()
        return replace(literal, text=cursor.string())
    if number := _NUMBER.match(cursor.sql, first.start):
        while cursor.peek().kind != "end" and cursor.peek().end <= number.end():
            cursor.next()
        return literal
    cursor.next()
    if first.keyword in ("X", "B"):
        cursor.next()
    return literal


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
    literal = plain_literal(cursor.sql, tokens)
    if literal is not None:
        inner = cursor.within(tokens)
        literal = _step_over(inner, literal)
        if inner.peek().kind == "end":
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


def plain_literal(sql: str, tokens: list[Token]) -> DefaultLiteral | None:
    """Returns the constant at the beginning of the tokens. None: there is none, or its value is not
    certain."""
    first = tokens[0]
    following = tokens[1] if len(tokens) > 1 else Token("end", "", 0, 0)
    if first.keyword in ("TRUE", "FALSE"):
        return DefaultLiteral("number", "1" if first.keyword == "TRUE" else "0")
    if first.keyword == "NULL":
        return DefaultLiteral("null")
    if first.kind in ("string", "double"):
        return DefaultLiteral("string", first.value)
    if number := _NUMBER.match(sql, first.start):
        return DefaultLiteral("number", re.sub(r"\s", "", number[0]))
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", first.text):
        return DefaultLiteral("hex", first.text[2:])
    if re.fullmatch(r"0[bB][01]+", first.text):
        return DefaultLiteral("bits", first.text[2:])
    if following.kind in ("string", "double") and first.kind == "word":
        return _prefixed(first, following)
    return None


def _prefixed(first: Token, following: Token) -> DefaultLiteral | None:
    if first.keyword in ("X", "B") and following.start == first.end:
        return DefaultLiteral("hex" if first.keyword == "X" else "bits", following.text)
    if first.keyword in ("DATE", "TIME", "TIMESTAMP", "N"):
        return DefaultLiteral("string", following.value)
    # The bytes of other texts depend on the session's character set.
    if first.text.startswith("_") and following.text.isascii():
        return DefaultLiteral("string", following.value)
    return None
