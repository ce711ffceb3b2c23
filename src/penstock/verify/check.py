"""The verification of one table: rounds of read view, target version, comparison.

Round one compares everything. Keys that differ but were touched between the marks of its read view go into
the next round, which opens a new view and looks only at their buckets, until all are settled or `ROUNDS_MAX`
is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.errors import PenstockError
from penstock.model.chunk import Watermarks
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.verify.plan import (
    Buckets,
    BucketSum,
    KeyDifference,
    Kind,
    choose_buckets,
    different_buckets,
    different_keys,
    key_columns,
    settle,
    split_key,
)
from penstock.verify.report import KEYS_LISTED, DifferentKey, TableReport
from penstock.verify.source import ReadView

ROUNDS_MAX = 5
"""Read views tried for keys that keep changing."""
ROWS_LISTED_MAX = 200_000
"""Rows held in memory, on each side, to name the keys of differing buckets."""
UNCERTAIN_KEYS_MAX = 50_000
"""A read view with more keys than this touched between its marks is given up for another."""


class VersionAt(Protocol):
    """Brings the target to one place of the source's log (`penstock.versions`)."""

    def hold(self) -> None:
        """Called before a read view opens: from now on nothing is applied that lies behind its mark, until
        `version_at` asks for that mark."""

    def version_at(self, table: TableId, position: SourcePosition) -> tuple[Offset, str | None]:
        """An offset at or (by little) after `position`, and the version of the target table that holds the
        log up to it as far as this table goes; None: the present one. Waits for the pipeline if need be."""


class LogWindow(Protocol):
    """What the relay log holds between two marks."""

    def keys_touched(
        self, schema: TableSchema, marks: Watermarks, end: Offset, limit: int
    ) -> Collection[str] | None:
        """Canonical texts of the keys (before and after images) of transactions that end at or before `end`
        and that the low mark does not claim. None: more than `limit`."""


class Target(Protocol):
    """The target's side; `penstock.spark.verify` implements it."""

    def sums(
        self, schema: TableSchema, buckets: Buckets, version: str | None, types: TypeOptions
    ) -> dict[int, BucketSum]:
        """Rows and hash sums per bucket."""

    def rows(
        self,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
        types: TypeOptions,
    ) -> list[tuple[str, int]]:
        """Key text and hash of every row in these buckets; a key that occurs twice comes twice."""


class Verification:
    """Verifies tables of one source against one target."""

    def __init__(
        self,
        views: Callable[[], AbstractContextManager[ReadView]],
        target: Target,
        versions: VersionAt,
        window: LogWindow,
        *,
        types: TypeOptions = DEFAULT_TYPES,
        keys_listed: int = KEYS_LISTED,
    ) -> None:
        self._keys_listed = keys_listed
        self._views = views
        self._target = target
        self._versions = versions
        self._window = window
        self._types = types

    def verify(self, schema: TableSchema) -> TableReport:
        """Never raises for what belongs to one table: such an error is in the report."""
        try:
            return self._verify(schema)
        except PenstockError as error:
            return TableReport(schema.table, 0, 0, None, error=str(error))

    def _verify(self, schema: TableSchema) -> TableReport:
        if not schema.key:
            return TableReport(
                schema.table,
                0,
                0,
                None,
                error="The table has no key, so its rows cannot be matched with the target's.",
            )
        self._versions.hold()
        with self._views() as view, ThreadPoolExecutor(1) as pool:
            buckets = choose_buckets(schema, view.extent(schema))
            # The server and Spark work at the same time; the view's session is the pool's until then.
            sums = pool.submit(view.sums, schema, buckets, self._types)
            offset, version = self._versions.version_at(schema.table, view.marks.high)
            target = self._target.sums(schema, buckets, version, self._types)
            source = sums.result()
            different = different_buckets(source, target)
            listed = _affordable(different, source, target)
            uncertain: Collection[str] | None = ()
            if different:
                uncertain = self._window.keys_touched(schema, view.marks, offset, UNCERTAIN_KEYS_MAX)
            found = self._differences(view, schema, buckets, listed, version) if listed else []
        if uncertain is None:
            real, unsettled = list[KeyDifference](), found
        else:
            real, unsettled = settle(found, uncertain)
        more, unverified = self._settle_in_new_views(schema, buckets, unsettled)
        real += more
        left_out = sum(
            max(source.get(n, _NOTHING).rows, target.get(n, _NOTHING).rows) for n in different[len(listed) :]
        )
        names = {buckets.describe(number) for number in different[len(listed) :]}
        return TableReport(
            table=schema.table,
            rows_source=sum(part.rows for part in source.values()),
            rows_target=sum(part.rows for part in target.values()),
            offset=offset,
            ranges=len(source.keys() | target.keys()),
            ranges_different=sorted(names),
            keys_different=[_named(schema, difference) for difference in real[: self._keys_listed]],
            keys_not_listed=left_out + len(real[self._keys_listed :]),
            unverified=unverified,
        )

    def _settle_in_new_views(
        self, schema: TableSchema, buckets: Buckets, unsettled: list[KeyDifference]
    ) -> tuple[list[KeyDifference], int]:
        """Looks at these keys again until each is equal or really different; the rest is counted."""
        real: list[KeyDifference] = []
        for _ in range(ROUNDS_MAX):
            if not unsettled:
                break
            open_keys = {difference.key for difference in unsettled}
            self._versions.hold()
            with self._views() as view:
                offset, version = self._versions.version_at(schema.table, view.marks.high)
                uncertain = self._window.keys_touched(schema, view.marks, offset, UNCERTAIN_KEYS_MAX)
                if uncertain is None:
                    continue
                numbers = buckets.numbers(open_keys)
                found = self._differences(view, schema, buckets, numbers, version)
            settled, unsettled = settle([d for d in found if d.key in open_keys], uncertain)
            real += settled
        return real, len(unsettled)

    def _differences(
        self,
        view: ReadView,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
    ) -> list[KeyDifference]:
        source = view.rows(schema, buckets, numbers, self._types)
        rows = self._target.rows(schema, buckets, numbers, version, self._types)
        target = dict(rows)
        doubled = _doubled(key for key, _ in rows) if len(target) < len(rows) else []
        return different_keys(source, target) + [KeyDifference(key, Kind.DOUBLED) for key in doubled]


_NOTHING = BucketSum(0, 0)


def _affordable(
    different: list[int], source: dict[int, BucketSum], target: dict[int, BucketSum]
) -> list[int]:
    """The first differing buckets whose rows can be held in memory; at least one."""
    rows = 0
    for count, number in enumerate(different):
        rows += max(source.get(number, _NOTHING).rows, target.get(number, _NOTHING).rows)
        if rows > ROWS_LISTED_MAX and count > 0:
            return different[:count]
    return different


def _doubled(keys: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    again: set[str] = set()
    for key in keys:
        (again if key in seen else seen).add(key)
    return sorted(again)


def _named(schema: TableSchema, difference: KeyDifference) -> DifferentKey:
    values = split_key(key_columns(schema), difference.key)
    return DifferentKey(dict(zip(schema.key, values, strict=True)), difference.kind.value)
