"""A `ChangeSink` whose targets are calls: of a function, or of a web server.

Nothing remembers what was called but the pipeline's state, which records an epoch when all its calls have
returned. So after a kill, the calls of the last epoch are made again, with the same keys: at least once.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import Commit
from penstock.sinks.collected import batches_of
from penstock.sinks.rows import Rows
from penstock.sinks.unrecorded import Unrecorded


@dataclass(frozen=True)
class Changes:
    """The changes of one table in one step of an epoch, in the order of the log.

    table: its name, `database.table`. key: the same whenever the step is repeated, and for no other one.
    batches: Arrow batches with the table's columns, `_change_type` (insert, update_preimage,
    update_postimage, delete, read, truncate), `_sequence` and `_commit_timestamp`.
    """

    table: str
    key: str
    batches: Iterator[pa.RecordBatch]


Function = Callable[[Changes], Any]


class CallSink(Unrecorded):
    """Calls a function with each batch of changes. `load` returns the function, and raises `ConfigError` if
    there is none."""

    def __init__(self, load: Callable[[], Function], before_images: bool, pipeline: str) -> None:
        super().__init__(pipeline)
        self.before_images = before_images
        self._load = load
        self._function: Function | None = None

    def check(self) -> None:
        self._function = self._load()

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        if self._done(table, commit):
            return False
        self._call(table, commit, batches_of(rows))
        return True

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        if self._done(table, commit):
            return False
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(["truncate"]),
                pa.array([sequence], pa.int64()),
                pa.array([timestamp_us], pa.int64()).cast(pa.timestamp("us", "UTC")),
            ],
            [CHANGE_TYPE, SEQUENCE, COMMIT_TIMESTAMP],
        )
        self._call(table, commit, iter([batch]))
        return True

    def _call(self, table: TableId, commit: Commit, batches: Iterator[pa.RecordBatch]) -> None:
        function = self._function or self._load()
        made = _Source(batches)
        try:
            function(Changes(str(table), f"{commit}/{table}", made))
        except Exception as error:
            if made.failure is not None:  # the rows could not be made
                raise made.failure from None
            raise _explained(error, table) from None  # its text may have values of rows
        if made.failure is not None:  # and the function has caught the error
            raise made.failure
        self._last[table] = commit


class _Source:
    """The batches. An error while they are made is kept apart from errors of the function."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            self.failure = error
            raise


def _explained(error: Exception, table: TableId) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"Changes of {table} were refused: {type(error).__name__} in {place.name}, line {place.lineno}"
    if isinstance(error, (ConnectionError, TimeoutError, OSError)):
        return TransientError(f"{what}.", hint="It is tried again.")
    return TableError(
        f"{what}.",
        hint="Mend the function, or raise `penstock.errors.TransientError` for what passes. Restart the "
        f"pipeline, then run `penstock unpark FILE {argument(table)}`: the table continues from here.",
        table=str(table),
    )


def imported(name: str) -> Function:
    """The function `module:name`. Raises `ConfigError` if there is none."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigError(
            f"The function {name} of the sink python cannot be imported: {type(error).__name__}: {error}.",
            hint="Install its package where the pipeline runs, or put its folder on PYTHONPATH.",
        ) from error
    if not callable(found):
        raise ConfigError(f"{name} of the sink python is not a function.")
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(found) for is_kind in kinds):
        raise ConfigError(
            f"{name} of the sink python is `async` or has `yield`: a call of it would do nothing.",
            hint="Let a plain function do the work, for example with `asyncio.run`.",
        )
    function: Function = found
    return function
