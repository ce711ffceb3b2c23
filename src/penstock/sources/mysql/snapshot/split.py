"""Chunk bounds: where a table is cut so that its parts can be read at once.

**Coverage needs no trust in the bounds.** Neighbouring chunks share a bound b; one takes the rows with `key
< b`, the other those with `key >= b`. The server evaluates both against the same literal, and its order of
a NOT NULL key is total, so every row satisfies exactly one of them, whatever collation or rounding is at
work. The first chunk is open below and the last above. So bounds are only a matter of speed: they may come
from estimates, from a replica, from yesterday. What could break this is a literal that means something else
in another session, so bounds are literals of one meaning: digits, or hexadecimal bytes with the column's
character set before them, or plain ISO times.

Two ways to find bounds, both in key order, so that reading can begin while planning goes on:

- **Division** for a single integer key: a range of integers whose estimated number of rows is above the aim
  is divided evenly, neighbours below it are joined. The estimate is the optimizer's (EXPLAIN: two dives into
  the index, no rows read). Skew and gaps resolve themselves, since only ranges that hold rows are divided. It
  takes one or two estimates per chunk, many more only in the worst of skews; a limit ends it, and the
  remaining rows are split by walking.
- **Walk** for every other key: `SELECT key … WHERE key >= bound ORDER BY key LIMIT 1 OFFSET n` gives the
  bound n rows on. Each step begins where the last one ended, so the index is read once in all, never an
  O(n²) OFFSET. The pages it reads are those the chunk's SELECT will read, which then finds them in memory.

A table that the server takes for small, and in which no row follows the first few thousand, is one chunk:
that is one question instead of several where there are many such tables.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from pymysql.connections import Connection

from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import Part
from penstock.model.schema import Column, TableSchema
from penstock.sources.chunk_bounds import Bound, TableSize, join_bounds
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.sources.mysql.snapshot.watermark import text

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_NUMBERS = frozenset({"enum", "set", "bit", "year"})
_TIMES = frozenset({"date", "datetime", "timestamp", "time"})
_BINARY = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "uuid", "inet4", "inet6"}
)
_FEW_ROWS = 10_000
"""A table with at most this many rows is not divided, unless chunks are to be smaller. It is read in less
time than dividing takes."""
_TOLERANCE = 1.5
"""Estimates are rough. A range is divided if it seems to have this many times the intended rows."""
_PARTS_MAX = 64
"""Ranges into which one range is divided at once. Each costs an estimate of the server, and keys are seldom
spread so evenly that many more are of use."""
_ESTIMATES_PER_CHUNK = 16
"""Division stops after this many estimates per chunk found (plus 128): keys with large gaps would need any
number. The rest is walked by its index."""


# Conditions


def range_condition(key: Sequence[str], lower: Bound | None, upper: Bound | None) -> str:
    """An SQL condition for `lower <= key < upper`; empty if both ends are open.

    A composite key is compared column by column, `(a > x) OR (a = x AND b >= y)`. MySQL uses the index for
    this form, but not for `(a, b) >= (x, y)`.
    """
    parts = []
    if lower is not None:
        parts.append(_compare(key, lower, strict=">", last=">="))
    if upper is not None:
        parts.append(_compare(key, upper, strict="<", last="<"))
    return " AND ".join(f"({part})" for part in parts)


def _compare(key: Sequence[str], bound: Bound, *, strict: str, last: str) -> str:
    if len(key) != len(bound):
        raise ValueError(f"a bound of {len(bound)} values for a key of {len(key)} columns")
    name, value = quote(key[0]), bound[0]
    if len(key) == 1:
        return f"{name} {last} {value}"
    rest = _compare(key[1:], bound[1:], strict=strict, last=last)
    return f"{name} {strict} {value} OR ({name} = {value} AND ({rest}))"


def print_expression(column: Column) -> str:
    """An SQL expression that prints a key value as ASCII text, for `literal`."""
    name = quote(column.name)
    if column.type in _NUMBERS:
        return f"CAST({name} + 0 AS CHAR)"
    if column.type in ("float", "double"):
        return f"CAST({name} + 0e0 AS CHAR)"
    if column.type in _INTEGERS or column.type == "decimal" or column.type in _TIMES:
        return f"CAST({name} AS CHAR)"
    return f"HEX({name})"


def literal(column: Column, printed: str) -> str | None:
    """The printed value as a literal that the server compares with the column. None: the value cannot be a
    bound.

    ENUM and SET are compared as numbers, which is the order of their index. Servers compare zero and
    impossible dates differently, so these are no bounds, and the chunk is cut at a later value.
    """
    if column.type in _TIMES:
        return f"'{printed}'" if _is_time(column, printed) else None
    if column.type in _INTEGERS or column.type in _NUMBERS or column.type in ("decimal", "float", "double"):
        return printed
    introducer = "" if column.type in _BINARY or column.charset in (None, "binary") else f"_{column.charset} "
    return f"{introducer}x'{printed}'"


def _is_time(column: Column, printed: str) -> bool:
    if column.type == "time":
        return True
    try:
        datetime.datetime.strptime(printed[:19], "%Y-%m-%d %H:%M:%S" if len(printed) > 10 else "%Y-%m-%d")
    except ValueError:
        return False
    return True


# Pure planning


def divide_integers(
    lowest: int, highest: int, chunk_rows: int, estimate: Callable[[int, int], int], *, estimates_max: int
) -> Iterator[int | None]:
    """Bounds for integers `lowest..highest` so that each part has about `chunk_rows` rows by
    `estimate(from, below)`.

    Yields increasing integers in `(lowest, highest]`. None as the last item says that the estimates ran
    out: what lies above the last bound has not been divided.
    """
    waiting = [(lowest, highest + 1)]
    rows_open, asked, chunks = 0, 0, 1
    while waiting:
        start, below = waiting.pop()
        if asked >= estimates_max + _ESTIMATES_PER_CHUNK * chunks:
            yield None
            return
        rows, asked = estimate(start, below), asked + 1
        if rows > chunk_rows * _TOLERANCE and below - start > 1:
            parts = min(math.ceil(rows / chunk_rows), _PARTS_MAX, below - start)
            edges = [start + (below - start) * part // parts for part in range(parts + 1)]
            waiting += reversed(list(itertools.pairwise(edges)))
            continue
        if rows_open and rows_open + rows > chunk_rows:
            yield start
            rows_open, chunks = 0, chunks + 1
        rows_open += rows


# Asking the server


class MySqlChunkPlanner:
    """Finds the chunks of one table. `connection` is a session from `reader.prepare_session`."""

    def __init__(
        self, connection: Connection[Any], schema: TableSchema, *, chunk_rows: int, part: Part = ALL_ROWS
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._part = part
        self._key = [schema.column(name) for name in schema.key]
        self.size = table_size(connection, schema)
        self.chunk_rows = self.size.chunk_rows(chunk_rows)

    @cached_property
    def _from(self) -> str:
        index = key_index(self._connection, self._schema) if self._key else None
        return quoted(self._schema.table) + (f" FORCE INDEX ({quote(index)})" if index else "")

    def chunks(self, *, after: Chunk | None = None) -> Iterator[Chunk]:
        """The table's chunks in key order, found as they are asked for; at least one.

        `after` goes on behind a chunk of an earlier run (whose later chunks were not made durable).
        A table without a key is one chunk.
        """
        if after is not None and after.upper is None:
            return iter(())
        if after is None and self._part == ALL_ROWS and self._key and self._is_small():
            return iter((Chunk(self._schema.table, 0, None, None),))
        start = self._part.lower if after is None else after.upper
        return join_bounds(self._schema.table, self._bounds(start), after=after, part=self._part)

    def _is_small(self) -> bool:
        """Whether the table is certainly small. The server's estimate may be old, so one query proves that no
        row follows the first few."""
        few = min(_FEW_ROWS, self.chunk_rows)
        if self.size.rows > few:
            return False
        return not self._rows(f"SELECT 1 FROM {quoted(self._schema.table)} LIMIT 1 OFFSET {few}")

    def _bounds(self, start: Bound | None) -> Iterator[Bound]:
        if not self._key:
            return
        if len(self._key) == 1 and self._key[0].type in _INTEGERS:
            last = start
            for bound in self._divide(start):
                if bound is None:
                    yield from self._walk(last)
                    return
                last = (str(bound),)
                yield last
        else:
            yield from self._walk(start)

    def _divide(self, start: Bound | None) -> Iterator[int | None]:
        name = quote(self._schema.key[0])
        where = range_condition(self._schema.key, start, self._part.upper)
        where = f" WHERE {where}" if where else ""
        found = self._rows(f"SELECT MIN({name}), MAX({name}) FROM {self._from}{where}")
        lowest, highest = found[0]
        if lowest is None or highest is None:
            return iter(())
        return divide_integers(int(lowest), int(highest), self.chunk_rows, self._estimate, estimates_max=128)

    def _estimate(self, start: int, below: int) -> int:
        condition = range_condition(self._schema.key, (str(start),), (str(below),))
        # Named, since the default is a tree from MySQL 9 on.
        explain = f"EXPLAIN FORMAT=TRADITIONAL SELECT 1 FROM {self._from} WHERE {condition}"
        columns, rows = self._named(explain)
        value = rows[0][columns.index("rows")]
        return 0 if value is None else int(value)

    def _walk(self, start: Bound | None) -> Iterator[Bound]:
        columns = ", ".join(print_expression(column) for column in self._key)
        order = ", ".join(quote(column.name) for column in self._key)
        last, skip = start, self.chunk_rows
        while True:
            where = range_condition(self._schema.key, last, self._part.upper)
            sql = f"SELECT {columns} FROM {self._from}" + (f" WHERE {where}" if where else "")
            rows = self._rows(f"{sql} ORDER BY {order} LIMIT 1 OFFSET {skip}")
            if not rows:
                return
            bound = self._bound(rows[0])
            if bound is None or bound == last:  # no literal, or one that is too coarse: look further on
                skip *= 2
                continue
            yield bound
            last, skip = bound, self.chunk_rows

    def _bound(self, row: Sequence[str | None]) -> Bound | None:
        values = [
            None if printed is None else literal(column, printed)
            for column, printed in zip(self._key, row, strict=True)
        ]
        return None if any(value is None for value in values) else tuple(str(value) for value in values)

    def _rows(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._named(sql)[1]

    def _named(self, sql: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
        return _query(self._connection, sql)


def table_size(connection: Connection[Any], schema: TableSchema) -> TableSize:
    """The server's estimates from its statistics; zeros if it has none."""
    _, rows = _query(
        connection,
        "SELECT TABLE_ROWS, AVG_ROW_LENGTH FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = {_string(schema.table.database)}"
        f" AND TABLE_NAME = {_string(schema.table.table)}",
    )
    if not rows:
        return TableSize(0, 0)
    return TableSize(*(int(value or 0) for value in rows[0]))


def key_index(connection: Connection[Any], schema: TableSchema) -> str | None:
    """An index that begins with the key's columns in order: the primary key if possible."""
    columns, rows = _query(connection, f"SHOW INDEX FROM {quoted(schema.table)}")
    indexes: dict[str, list[str]] = {}
    name, column, part = (columns.index(title) for title in ("Key_name", "Column_name", "Sub_part"))
    for row in rows:
        indexes.setdefault(str(row[name]), []).append(str(row[column]) if row[part] is None else "")
    fitting = [index for index, names in indexes.items() if tuple(names[: len(schema.key)]) == schema.key]
    return "PRIMARY" if "PRIMARY" in fitting else next(iter(fitting), None)


def _query(connection: Connection[Any], sql: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        names = [str(item[0]) for item in cursor.description or ()]
        rows = [tuple(None if value is None else text(value) for value in row) for row in cursor.fetchall()]
    return names, rows


def _string(value: str) -> str:
    return f"_utf8mb4 x'{value.encode('utf-8').hex()}'"
