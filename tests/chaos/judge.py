"""The judges of a seed. None of them is our own code: the server's SELECT, Spark's reading of the targets,
and the files as they lie there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock.runtime.pipeline  # noqa: F401 - all errors are known once all is imported
from penstock.errors import InternalError, PenstockError
from penstock.testing import oracle
from penstock.testing.oracle import OracleColumn
from penstock.testing.servers import MySqlClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACES = ("Traceback (most recent call last)", "\tat ", "Exception in thread", "Py4JJavaError")


def _named(kind: type[PenstockError]) -> Iterator[str]:
    """A kind of error and those below it, but for our own bugs."""
    if kind is not InternalError:
        yield kind.__name__
        for other in kind.__subclasses__():
            yield from _named(other)


ENDED_BY_US = (0, None, -9, -15, 5)
"""As asked; by kill -9; by SIGTERM before it was listened to; by force, after `stop_timeout`, which a machine
that is busy may take."""
ERRORS = set(_named(PenstockError))


def target(spark: SparkSession, sink: str, path: Path) -> DataFrame:
    if sink == "parquet":
        return spark.read.option("mergeSchema", "true").parquet(str(path))
    return spark.read.format(sink).load(str(path))


# rows -------------------------------------------------------------------------------------------------------


def rows_differ(server: MySqlClient, table: str, frame: DataFrame) -> str:
    """Of a target that is the table as it is at the source. Empty: it holds the same rows."""
    columns = oracle.columns_of(server, table)
    if lacking := [column.name for column in columns if column.name not in frame.columns]:
        return f"{table}: the target lacks the columns {lacking}"
    names = [f"`{column.name}`" for column in columns]
    found = oracle.canonical_rows((tuple(row) for row in frame.select(*names).collect()), columns)
    difference = oracle.compare(oracle.rows_of(server, table), found)
    return f"{table}: {difference}" if difference else ""


def log_differs(
    server: MySqlClient, table: str, frame: DataFrame, *, read_to: int | None = None
) -> list[str]:
    """Of a change log: doubles, gaps, and a last state that is not the table. `read_to`: `replayed`."""
    columns = oracle.columns_of(server, table)
    own = ["_sequence", "_change_type", "_commit_timestamp"]
    known = [column for column in columns if column.name in frame.columns]
    if len(known) < len(columns):
        return [f"{table}: the change log lacks columns"]
    collected = frame.select(*own, *[f"`{c.name}`" for c in known]).collect()
    rows = [(row[0], _kind(row[1], row[2]), *row[3:]) for row in collected]
    state, found = replayed(rows, known, read_to=read_to)
    actual = oracle.canonical_rows(state, known)
    difference = oracle.compare(oracle.rows_of(server, table), actual)
    return [f"{table}: {what}" for what in [*found, *([difference] if difference else [])]]


def _kind(change_type: str, committed: Any) -> str:
    """The change type; `absent` for a delete that was read from the table, not from the log."""
    return "absent" if change_type == "delete" and committed is None else change_type


def replayed(
    rows: Sequence[Sequence[Any]], columns: Sequence[OracleColumn], *, read_to: int | None = None
) -> tuple[list[Sequence[Any]], list[str]]:
    """The rows that are there after a change log of `(sequence, change type, *values)`, and what is wrong
    with it: an event twice, a change of a row that was another one, a row that appears where one is.

    A row that is changed while its chunk is being read has no `read`: its first event holds it as it was. So
    the first event of a row may be its change, if the row may have been there when the table was read: if its
    key is not above `read_to`, or after a truncate, with which a table is read again.

    A key that a signal has named and that is not in the table gets a delete without a commit time (`absent`,
    docs/signals.md). Its row may be gone already. If it is alive, the log lacks the row's real delete."""
    places = [number for number, column in enumerate(columns) if column.key_part is not None]
    order = {
        "truncate": 0,
        "read": 1,
        "update_preimage": 2,
        "delete": 3,
        "absent": 3,
        "insert": 4,
        "update_postimage": 5,
    }
    alive: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    known: set[tuple[Any, ...]] = set()
    read_again = False
    wrong: list[str] = []
    twice = [
        item for item, n in Counter((row[0], row[1], *_key(row, places)) for row in rows).items() if n > 1
    ]
    if twice:
        wrong.append(f"{len(twice)} events are there twice, such as {twice[:3]}")
    for row in sorted(rows, key=lambda one: (one[0], order[one[1]])):
        key, kind, values = _key(row, places), row[1], tuple(_plain(value) for value in row[2:])
        before = alive.get(key)
        if kind == "truncate":
            alive.clear()
            known.clear()
            read_again = True
        elif kind == "absent":
            if before is not None:
                wrong.append(
                    f"a row is absent at {row[0]} though nothing has deleted it: a change is missing"
                )
        elif kind in ("update_preimage", "delete"):
            may_be_first = key not in known and (read_again or (read_to is not None and key[0] <= read_to))
            if before is None and not may_be_first:
                wrong.append(f"{kind} at {row[0]} of a row that is not there")
            if before is not None and not _same(before, values):
                wrong.append(
                    f"{kind} at {row[0]} is of a row that was another one before: a change is missing"
                )
            alive.pop(key, None)
        else:
            if before is not None and kind != "read" and not _same(before, values):
                wrong.append(f"{kind} at {row[0]} of a row that is there already: a change is missing")
            alive[key] = values
        known.add(key)
    return list(alive.values()), wrong[:5]


def _key(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(_plain(row[2 + place]) for place in places)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """A column that came in between has no value before."""
    return all(one == other or one is None for one, other in zip(before, now, strict=True))


def ids_of(server: MySqlClient, table: str) -> set[int]:
    return {int(row[0]) for row in server.query(f"SELECT id FROM {table}")}


def ledger_differs(ids: Iterable[int], there: Iterable[int]) -> list[str]:
    """Of the rows `insert` and `read` of a table to which numbers are only appended. `there`: the numbers at
    the source; one that was restored has lost some."""
    found = Counter(ids)
    doubles = [number for number, count in found.items() if count > 1]
    gaps, more = set(there) - set(found), set(found) - set(there)
    return [
        f"ledger: {len(numbers)} {what}, such as {sorted(numbers)[:5]}"
        for what, numbers in (("doubles", doubles), ("gaps", gaps), ("that the source lacks", more))
        if numbers
    ]


# how runs ended ---------------------------------------------------------------------------------------------


def ends_differ(code: int | None, said: str, *, may_end: bool) -> list[str]:
    """Of one run that has ended: what it should not have said or done."""
    found = [f"a run said {trace.strip()!r}: …{said[-1500:]}" for trace in TRACES[:1] if trace in said]
    found = found or [f"a run said {trace.strip()!r}: {said[-700:]}" for trace in TRACES if trace in said][:1]
    if code in ENDED_BY_US:
        return found
    if code not in (1, 3):
        return [*found, f"a run ended with code {code}: {said[-700:]}"]
    last = said.strip().splitlines()[-1] if said.strip() else ""
    try:
        error = json.loads(last)
        name, message = error["error"], error["message"]
    except (ValueError, KeyError, TypeError):
        return [*found, f"a run ended with code {code} and no error of ours: {said[-700:]}"]
    if name not in ERRORS:
        found.append(f"a run ended with {name}: {message}")
    elif not may_end:
        found.append(f"a run ended, though it need not: {name}: {message}")
    return found
