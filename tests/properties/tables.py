"""Tables and rows by chance: every type with its attributes, corner values among random ones.

A `Kind` is a column definition, a generator of SQL literals, and the expression by which the server itself
tells the value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.sources.mysql.identifiers import quote

Literal = Callable[[random.Random], str]

_LETTERS = [
    "a",
    "B",
    " ",
    "0",
    "'",
    "\\",
    "é",
    "ß",
    "€",
    "я",
    "中",
    "한",
    "ん",
    "😀",
    "\t",
    "\n",
    "|",
    "~",
    '"',
]


@dataclass(frozen=True)
class Kind:
    definition: str
    literal: Literal
    select: str = "{}"
    in_key: bool = False


@dataclass(frozen=True)
class Table:
    columns: tuple[tuple[str, Kind], ...]
    key: tuple[str, ...]
    generated: tuple[tuple[str, str, str], ...]
    """Name, definition, how the server tells the value."""

    def create(self, name: str) -> str:
        columns = [f"{quote(column)} {kind.definition}" for column, kind in self.columns]
        columns += [f"{quote(column)} {definition}" for column, definition, _ in self.generated]
        key = ", ".join(quote(column) for column in ("id", *self.key))
        return f"CREATE TABLE {name} (id INT NOT NULL, {', '.join(columns)}, PRIMARY KEY ({key}))"

    @property
    def names(self) -> list[str]:
        return ["id", *(name for name, _ in self.columns), *(name for name, _, _ in self.generated)]

    def select(self, name: str) -> str:
        cells = ["id", *(kind.select.format(quote(column)) for column, kind in self.columns)]
        cells += [select.format(quote(column)) for column, _, select in self.generated]
        return f"SELECT {', '.join(cells)} FROM {name} ORDER BY id"

    def row(self, chance: random.Random, number: int) -> str:
        return "(" + ", ".join([str(number), *(kind.literal(chance) for _, kind in self.columns)]) + ")"

    def insert(self, name: str, rows: Sequence[str]) -> str:
        columns = ", ".join(quote(column) for column in ["id", *(column for column, _ in self.columns)])
        return f"INSERT IGNORE INTO {name} ({columns}) VALUES {', '.join(rows)}"

    def update(self, name: str, chance: random.Random, rows: int) -> str:
        chosen = chance.sample(self.columns, min(len(self.columns), chance.randint(1, 4)))
        changes = ", ".join(f"{quote(column)} = {kind.literal(chance)}" for column, kind in chosen)
        low = chance.randrange(rows)
        return f"UPDATE IGNORE {name} SET {changes} WHERE id BETWEEN {low} AND {low + chance.randint(0, 30)}"


def a_table(chance: random.Random, kinds: Sequence[Kind], *, invisible: bool) -> Table:
    columns = []
    for number in range(chance.randint(4, 24)):
        kind = chance.choice(kinds)
        hidden = invisible and chance.random() < 0.1
        definition = kind.definition + (" INVISIBLE" if hidden else "")
        columns.append(
            (f"c{number}", Kind(definition, kind.literal, kind.select, kind.in_key and not hidden))
        )
    candidates = [name for name, kind in columns if kind.in_key]
    key = tuple(chance.sample(candidates, min(len(candidates), chance.randint(0, 2))))
    columns = [
        (name, Kind(f"{kind.definition} NOT NULL", kind.literal, kind.select) if name in key else kind)
        for name, kind in columns
    ]
    generated = (
        ("g virtual", "BIGINT AS (id * 3 - 7) VIRTUAL", "{}"),
        ("g`stored", "VARCHAR(30) AS (CONCAT('<', id, '>')) STORED", "{}"),
    )
    made = [*chance.sample(generated, chance.randint(0, 2)), *_made_of(chance, columns)]
    return Table(tuple(columns), key, tuple(made))


def _made_of(chance: random.Random, columns: Sequence[tuple[str, Kind]]) -> Iterator[tuple[str, str, str]]:
    """Generated columns that show what others hold. Not of TIMESTAMP, whose text depends on the session,
    nor of CHAR, which MariaDB refuses for the same reason."""
    for name, kind in chance.sample(columns, min(len(columns), chance.randint(0, 4))):
        word = kind.definition.split("(")[0].split()[0]
        if (
            word in ("TIMESTAMP", "CHAR", "JSON", "VECTOR", "GEOMETRY", "POINT")
            or "COMPRESSED" in kind.definition
        ):
            continue
        plain = word.endswith(("INT", "DECIMAL")) or word == "TIME"
        expression = f"CONCAT({quote(name)})" if plain else f"HEX({quote(name)})"
        kept = chance.choice(["STORED", "VIRTUAL"])
        definition = f"LONGTEXT CHARACTER SET utf8mb4 AS ({expression}) {kept}"
        yield f"of {name}", definition, "CONVERT({} USING utf8mb4)"


def kinds(flavor: str, charsets: Sequence[str], chance: random.Random) -> list[Kind]:
    """The kinds of columns that a server has, with lengths and the like by chance."""
    found = [
        *_numbers(chance),
        *_dates(),
        *_texts(charsets, chance),
        *_bytes(chance),
        *_labels(charsets, chance),
    ]
    found += _spatial()
    if flavor.startswith("mysql"):
        found += [Kind("JSON", a_document)] * 4
    if flavor == "mysql97":
        found.append(Kind("VECTOR(5)", lambda chance: f"STRING_TO_VECTOR('{_vector(chance)}')", "HEX({})"))
    if flavor == "mariadb118":
        found.append(Kind("VECTOR(5)", lambda chance: f"VEC_FromText('{_vector(chance)}')", "HEX({})"))
    if flavor.startswith("mariadb"):
        found += _mariadb()
    return found


def nullable(literal: Literal, share: float = 0.1) -> Literal:
    return lambda chance: "NULL" if chance.random() < share else literal(chance)


def one_of(*literals: str) -> Literal:
    return lambda chance: chance.choice(literals)


def _integer(bits: int, unsigned: bool) -> Literal:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    corners = (low, high, 0, 1, high // 2, high // 2 + 1)
    return lambda chance: str(chance.choice(corners) if chance.random() < 0.5 else chance.randint(low, high))


def _decimal(precision: int, scale: int, unsigned: bool) -> Literal:
    def literal(chance: random.Random) -> str:
        digits = chance.choice(
            ["9" * precision, "0" * precision, "".join(chance.choices("0123456789", k=precision))]
        )
        sign = "" if unsigned else chance.choice(["", "-"])
        return f"{sign}{digits[: precision - scale] or '0'}.{digits[precision - scale :] or '0'}"

    return literal


def _numbers(chance: random.Random) -> list[Kind]:
    found = []
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)):
        found.append(Kind(name, nullable(_integer(bits, False)), in_key=True))
        found.append(Kind(f"{name} UNSIGNED", nullable(_integer(bits, True)), in_key=True))
    found.append(Kind("INT(7) ZEROFILL", nullable(_integer(32, True)), "{} + 0"))
    found.append(Kind("TINYINT(1)", nullable(_integer(8, False))))
    for precision, scale in ((65, 30), (38, 10), (39, 0), (1, 1), *(_sizes(chance) for _ in range(4))):
        unsigned = chance.random() < 0.3
        definition = f"DECIMAL({precision},{scale}){' UNSIGNED' if unsigned else ''}"
        found.append(Kind(definition, nullable(_decimal(precision, scale, unsigned)), in_key=True))
    found.append(Kind("DECIMAL(20,4) ZEROFILL", nullable(_decimal(20, 4, True)), "{} + 0"))
    found.append(Kind("FLOAT", nullable(_float(38)), "{} * 1e0"))
    found.append(Kind("DOUBLE", nullable(_float(308)), "{} * 1e0"))
    found.append(Kind("FLOAT(7,3)", nullable(_float(3)), "{} * 1e0"))
    found.append(Kind("DOUBLE(15,4) UNSIGNED", nullable(_float(9)), "{} * 1e0"))
    for bits in (1, 7, 8, 9, 33, 63, 64, chance.randint(1, 64)):
        found.append(Kind(f"BIT({bits})", nullable(_integer(bits, True)), "{} + 0"))
    found.append(
        Kind("YEAR", nullable(one_of("1901", "2155", "0", "1970", "2024", "'69'", "'70'")), "{} + 0")
    )
    return found


def _sizes(chance: random.Random) -> tuple[int, int]:
    precision = chance.randint(1, 65)
    return precision, chance.randint(0, min(30, precision))


def _float(digits: int) -> Literal:
    def literal(chance: random.Random) -> str:
        if chance.random() < 0.3:
            return chance.choice(["0", "-0.0", "1", "-1.5", "0.1", "16777217", "1e-30", "123456789.125"])
        return f"{chance.uniform(-10, 10)!r}e{chance.randint(-digits + 2, digits - 2)}"

    return literal


_DATES = ["1000-01-01", "9999-12-31", "1970-01-01", "2024-02-29", "1969-12-31", "2038-01-19", "1582-10-10"]
_ZEROS = ["0000-00-00", "2024-00-10", "2024-12-00", "0000-01-01"]


def _minutes(chance: random.Random) -> str:
    return f"{chance.randrange(60):02d}:{chance.randrange(59):02d}.{chance.randrange(10**6):06d}"


def _dates() -> list[Kind]:
    def date(chance: random.Random) -> str:
        if chance.random() < 0.1:
            return chance.choice(_ZEROS)
        if chance.random() < 0.4:
            return chance.choice(_DATES)
        return f"{chance.randint(1, 9999):04d}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"

    def clock(chance: random.Random) -> str:
        corner = chance.choice(["00:00:00", "23:59:59.999999", "12:34:56.000001", "00:00:00.5"])
        return chance.choice([corner, f"{chance.randrange(24):02d}:{_minutes(chance)}"])

    def moment(chance: random.Random) -> str:
        day = f"{chance.randint(1971, 2037)}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
        return chance.choice(
            ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:06.4'", "0", f"'{day} {clock(chance)}'"]
        )

    def duration(chance: random.Random) -> str:
        hours = chance.choice([0, 838, 1, 23, 24, chance.randrange(838)])
        rest = "59:59" if hours == 838 else _minutes(chance)
        return f"'{chance.choice(['', '-'])}{hours:02d}:{rest}'"

    text = "CAST({} AS CHAR)"
    found = [Kind("DATE", nullable(lambda chance: f"'{date(chance)}'"), text)]
    for fsp in range(7):
        found.append(
            Kind(f"DATETIME({fsp})", nullable(lambda chance: f"'{date(chance)} {clock(chance)}'"), text)
        )
        found.append(Kind(f"TIMESTAMP({fsp}) NULL", nullable(moment), text))
        found.append(Kind(f"TIME({fsp})", nullable(duration), text))
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _text(limit: int) -> Literal:
    def literal(chance: random.Random) -> str:
        if chance.random() < 0.15:
            return _quoted(chance.choice(["", " ", "abc", "abc  ", "NULL", "x" * limit]))
        return _quoted("".join(chance.choices(_LETTERS, k=chance.randint(0, min(limit, 40)))))

    return literal


def _texts(charsets: Sequence[str], chance: random.Random) -> list[Kind]:
    found = []
    for charset in [*chance.sample(charsets, min(len(charsets), 12)), "utf8mb4", "latin1", "utf8mb4"]:
        declared = f"CHARACTER SET {charset}"
        length = chance.choice([1, 5, 40, 60])
        select = "CONVERT({} USING utf8mb4)"
        found.append(Kind(f"CHAR({length}) {declared}", nullable(_text(length)), select, in_key=length <= 40))
        length = chance.choice([1, 63, 64, 300])
        found.append(
            Kind(f"VARCHAR({length}) {declared}", nullable(_text(length)), select, in_key=length <= 63)
        )
        size = chance.choice(["TINY", "", "MEDIUM", "LONG"])
        found.append(Kind(f"{size}TEXT {declared}", nullable(_text(60)), select))
    return found


def _hex(limit: int) -> Literal:
    def literal(chance: random.Random) -> str:
        length = chance.choice([0, limit, chance.randint(0, limit)])
        data = chance.randbytes(length) if chance.random() < 0.7 else bytes(length)
        return f"x'{data.hex()}'"

    return literal


def _bytes(chance: random.Random) -> list[Kind]:
    found = []
    for length in (1, 16, 255, chance.randint(1, 255)):
        found.append(Kind(f"BINARY({length})", nullable(_hex(length)), "HEX({})", in_key=length <= 16))
        found.append(
            Kind(f"VARBINARY({length + 10})", nullable(_hex(length)), "HEX({})", in_key=length <= 16)
        )
    for size in ("TINY", "", "MEDIUM", "LONG"):
        found.append(Kind(f"{size}BLOB", nullable(_hex(chance.choice([10, 200]))), "HEX({})"))
    return found


def _labels(charsets: Sequence[str], chance: random.Random) -> list[Kind]:
    found = []
    for count in (1, 2, 9, 33, 64):
        labels = [f"m{number}" for number in range(count)]
        if count == 9:
            labels = ["", "a b", "é", "it''s", "back\\\\slash", "x;y", "日", "UPPER", "(paren)"]
        charset = chance.choice(["utf8mb4", "latin1", chance.choice(list(charsets))])
        if count == 9:
            charset = "utf8mb4"
        declared = f"({', '.join(f'{chr(39)}{label}{chr(39)}' for label in labels)}) CHARACTER SET {charset}"
        select = "CONVERT({} USING utf8mb4)"
        numbers = tuple(str(number) for number in range(count + 1))
        found.append(Kind(f"ENUM{declared}", nullable(one_of(*numbers)), select))
        if count != 9:
            found.append(Kind(f"SET{declared}", nullable(_integer(count, True)), select))
    many = ", ".join(f"'label {number}'" for number in range(300))
    found.append(Kind(f"ENUM({many})", nullable(one_of("1", "255", "256", "300", "'no such'"))))
    return found


def _spatial() -> list[Kind]:
    shapes = one_of(
        "POINT(1.5, -2)",
        "ST_GeomFromText('LINESTRING(0 0,1 1,2 0.5)')",
        "ST_GeomFromText('POINT(0 0)', 4326)",
        "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))')",
        "ST_GeomFromText('MULTIPOINT(1 1,2 2)')",
        "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')",
    )
    return [
        Kind("GEOMETRY", nullable(shapes), "HEX({})"),
        Kind("POINT", nullable(one_of("POINT(3, -4)")), "HEX({})"),
    ]


def _vector(chance: random.Random) -> str:
    return "[" + ",".join(repr(round(chance.uniform(-9, 9), 3)) for _ in range(5)) + "]"


def _mariadb() -> list[Kind]:
    def address(chance: random.Random) -> str:
        groups = [chance.choice([0, 0, 0, 1, 0xFFFF, chance.randrange(65536)]) for _ in range(8)]
        head: list[int] = chance.choice([[], [], [0] * 6, [0] * 5 + [0xFFFF]])
        groups[: len(head)] = head
        return "'" + ":".join(f"{group:x}" for group in groups) + "'"

    def uuid(chance: random.Random) -> str:
        digits = list(chance.choice([bytes(16), chance.randbytes(16), chance.randbytes(16)]).hex())
        if chance.random() < 0.7:
            digits[12], digits[16] = chance.choice("0123456789abcdef"), chance.choice("89ab")
        text = "".join(digits)
        return f"'{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}'"

    def inet4(chance: random.Random) -> str:
        return "'" + ".".join(str(chance.choice([0, 255, 1, chance.randrange(256)])) for _ in range(4)) + "'"

    text = "CAST({} AS CHAR)"
    return [
        Kind("INET4", nullable(inet4), text, in_key=True),
        Kind("INET6", nullable(address), text, in_key=True),
        Kind("UUID", nullable(uuid), text, in_key=True),
        Kind("JSON", nullable(one_of("'[1,  2]'", "'{\"b\": 1}'"))),
        Kind("VARCHAR(300) COMPRESSED", nullable(one_of("''", "'short'", "REPEAT('long ', 50)")), "{}"),
        Kind("MEDIUMBLOB COMPRESSED", nullable(one_of("''", "x'00ff'", "REPEAT('long ', 5000)")), "HEX({})"),
    ]


def a_document(chance: random.Random) -> str:
    return "NULL" if chance.random() < 0.1 else _json(chance, 3)


def _json(chance: random.Random, depth: int) -> str:
    """A SQL expression that makes a JSON value; nested by the server's own functions."""
    if depth and chance.random() < 0.5:
        parts = [_json(chance, depth - 1) for _ in range(chance.randint(0, 4))]
        if chance.random() < 0.5:
            return f"JSON_ARRAY({', '.join(parts)})"
        keys = [_quoted("".join(chance.choices(_LETTERS, k=chance.randint(0, 4)))) for _ in parts]
        return f"JSON_OBJECT({', '.join(f'{key}, {part}' for key, part in zip(keys, parts, strict=True))})"
    scalar = [
        "CAST('null' AS JSON)",
        "CAST('true' AS JSON)",
        "CAST('false' AS JSON)",
        _quoted("".join(chance.choices(_LETTERS, k=6))),
        str(chance.randint(-(2**63), 2**63 - 1)),
        str(chance.randint(0, 2**64 - 1)),
        str(chance.randint(-70000, 70000)),
        f"{chance.uniform(-1, 1)!r}e{chance.randint(-300, 300)}",
        "0e0",
        "1e15",
        "123456789.125e0",
        f"CAST('{_decimal(30, 12, False)(chance)}' AS DECIMAL(30,12))",
        "CAST('2024-02-29' AS DATE)",
        "CAST('2024-02-29 23:59:59.123' AS DATETIME(3))",
        "CAST('-838:59:59' AS TIME)",
        "CAST('01:02:03.5' AS TIME(1))",
        "CAST(x'00ff10' AS BINARY)",
        "REPEAT('long text', 9000)",
        "CAST('[1, [2, {}], {\"a\": [null]}]' AS JSON)",
    ]
    text = chance.choice(scalar)
    return text if text.endswith(" AS JSON)") else f"JSON_EXTRACT(JSON_ARRAY({text}), '$[0]')"
