"""One column definition: place, constant default, and what existing rows get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from penstock.model.effect import AddedColumn, After, DefaultLiteral, First
from penstock.sources.mysql.tokens import Cursor, NotUnderstood, Token, keywords, top_level

_PARENTHESES_MAX = 8
"""A constant in more parentheses than these is taken for an expression."""

_NOT_A_DEFAULT_CLAUSE = keywords("SET COLUMN_FORMAT STORAGE SERIAL COLLATE")
_CHARACTER_SET = re.compile(r"n|_\w+", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w$])")


def added_column(cursor: Cursor) -> tuple[AddedColumn, bool]:
    """`name definition [FIRST | AFTER other]`, up to the end of the tokens; and whether it is UNIQUE."""
    name = cursor.identifier()
    tokens: list[Token] = []
    while not cursor.at_end:
        tokens.append(cursor.next())
    position: First | After | None = None
    if len(tokens) > 1 and tokens[-1].keyword == "FIRST":
        position, tokens = First(), tokens[:-1]
    elif len(tokens) > 2 and tokens[-2].keyword == "AFTER":
        position, tokens = After(_name(tokens[-1])), tokens[:-2]
    if not tokens:
        raise NotUnderstood("a column definition")
    default, expression = _default(cursor.sql, tokens)
    column = AddedColumn(
        name=name,
        definition=cursor.sql[tokens[0].start : tokens[-1].end],
        position=position,
        default=default,
        nullable=_nullable(tokens, default),
        needs_rows="has an expression as its default" if expression else _needs_rows(tokens),
        cascades=cascades(tokens),
    )
    return column, any(token.keyword == "UNIQUE" for token in top_level(tokens))


def _name(token: Token) -> str:
    if token.kind not in ("word", "name", "double"):
        raise NotUnderstood("a name")
    return token.text


def _nullable(tokens: list[Token], default: DefaultLiteral | None) -> bool | None:
    words = [token.keyword for token in top_level(tokens)]
    for before, word in zip(["", *words], words, strict=False):
        if word == "NULL" and before == "NOT":
            return False
        if word == "NULL" and before not in ("DEFAULT", "SET"):
            return True
    # explicit_defaults_for_timestamp decides, unless a DEFAULT NULL does.
    if words[0] == "TIMESTAMP" and not (default and default.kind == "null"):
        return None
    return True


def _needs_rows(tokens: list[Token]) -> str | None:
    """Why existing rows get other values than the constant default."""
    words = [token.keyword for token in top_level(tokens)]
    if "AUTO_INCREMENT" in words or "SERIAL" in words:
        return "numbers the rows"
    if "GENERATED" in words or "AS" in words:
        return "is generated"
    for index, word in enumerate(words):
        if word == "PRIMARY" or (word == "KEY" and words[index - 1] not in ("UNIQUE", "PRIMARY")):
            return "becomes the primary key"
    return None


def _default(sql: str, tokens: list[Token]) -> tuple[DefaultLiteral | None, bool]:
    """(the constant behind DEFAULT, there is a DEFAULT that is no constant)."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        before = tokens[index - 1].keyword if index else ""
        if depth == 0 and token.keyword == "DEFAULT" and before not in _NOT_A_DEFAULT_CLAUSE:
            literal = _literal(sql, tokens[index + 1 :])
            return literal, literal is None
    return None, False


def _literal(sql: str, tokens: list[Token]) -> DefaultLiteral | None:
    """A constant at the start of the tokens, also one that stands alone in parentheses."""
    enclosed = 0
    while tokens and tokens[0].kind == "sign" and tokens[0].text == "(" and enclosed < _PARENTHESES_MAX:
        tokens = _in_parentheses(tokens)
        enclosed += 1
    if not tokens:
        raise NotUnderstood("a default")
    literal = _plain_literal(sql, tokens)
    return literal if not enclosed or _length(sql, tokens) == len(tokens) else None


def _plain_literal(sql: str, tokens: list[Token]) -> DefaultLiteral | None:
    first = tokens[0]
    if first.keyword in ("TRUE", "FALSE"):
        return DefaultLiteral("number", "1" if first.keyword == "TRUE" else "0")
    if first.keyword == "NULL":
        return DefaultLiteral("null")
    if first.kind in ("string", "double"):
        return DefaultLiteral("string", "".join(token.value for token in _strings(tokens)))
    if number := _NUMBER.match(sql, first.start):
        return DefaultLiteral("number", re.sub(r"\s", "", number[0]))
    if first.keyword.startswith("0X") and re.fullmatch(r"0[xX][0-9a-fA-F]+", first.text):
        return DefaultLiteral("hex", first.text[2:])
    if first.keyword.startswith("0B") and re.fullmatch(r"0[bB][01]+", first.text):
        return DefaultLiteral("bits", first.text[2:])
    if len(tokens) > 1 and tokens[1].kind in ("string", "double"):
        return _prefixed(sql, first, tokens)
    return None


def _prefixed(sql: str, first: Token, tokens: list[Token]) -> DefaultLiteral | None:
    following = tokens[1]
    if first.keyword in ("X", "B") and following.start == first.end:
        return DefaultLiteral("hex" if first.keyword == "X" else "bits", following.text)
    if first.keyword in ("DATE", "TIME", "TIMESTAMP"):
        return DefaultLiteral("string", following.value)
    if first.keyword == "_BINARY":
        return None  # the bytes depend on the session's character set
    if _CHARACTER_SET.fullmatch(first.text):
        if not following.text.isascii() and first.keyword != "N":
            return None  # the text is not in the statement's character set
        return DefaultLiteral("string", following.value)
    return None


def _strings(tokens: list[Token]) -> Iterator[Token]:
    """Strings side by side are one."""
    for token in tokens:
        if token.kind not in ("string", "double"):
            return
        yield token


def _length(sql: str, tokens: list[Token]) -> int:
    """How many tokens the literal at their start takes."""
    if tokens[0].kind in ("string", "double"):
        return sum(1 for _ in _strings(tokens))
    if len(tokens) > 1 and tokens[1].kind in ("string", "double"):
        return 2
    if number := _NUMBER.match(sql, tokens[0].start):
        return sum(1 for token in tokens if token.end <= number.end())
    return 1


def _in_parentheses(tokens: list[Token]) -> list[Token]:
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return tokens[1:index]
    raise NotUnderstood("a parenthesis that is not closed")


def cascades(tokens: Sequence[Token]) -> bool:
    """A foreign key in it changes rows of this table by itself."""
    words = [token.keyword for token in tokens]
    for index, word in enumerate(words):
        if word in ("DELETE", "UPDATE") and index and words[index - 1] == "ON":
            following = words[index + 1 : index + 3]
            if following[:1] == ["CASCADE"] or following in (["SET", "NULL"], ["SET", "DEFAULT"]):
                return True
    return False
