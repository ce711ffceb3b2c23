"""Verifies tables in rounds: open a read view, get target versions, compare.

Small tables are compared together, with one read view at the source, one offset of the pipeline and one Spark
job. A large table is compared alone.

The first round compares everything. Keys that differ but were changed between the watermarks of the read view
go into the next round. It opens a new view and compares only their buckets. This repeats until all keys are
settled, or for `ROUNDS_MAX` rounds."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from penstock.backoff import Backoff, Schedule
from penstock.errors import PenstockError, SourceUnreachable, TableError, TransientError
from penstock.model.buckets import Buckets, BucketSum
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.sources.read_view import ReadView
from penstock.sources.windows import Window
from penstock.steps import step
from penstock.verify.plan import (
    SMALL_ROWS_MAX,
    KeyDifference,
    Kind,
    batches,
    choose_buckets,
    different_buckets,
    different_keys,
    settle,
    split_key,
)
from penstock.verify.report import KEYS_LISTED, DifferentKey, TableReport
from penstock.verify.subject import NotCompared, Subject, Why

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 4
"""Attempts to compare a group of tables when the source does not answer, or the target moves. With the
pauses of `RETRY` they outlast a short restart of the source."""
RETRY = Schedule(first_s=2.0, max_s=8.0)
"""Pauses between these attempts."""
ROUNDS_MAX = 5
"""Read views in which keys that keep changing are compared. A key that changes in all of them is reported
as unverified."""
ROWS_LISTED_MAX = 200_000
"""Rows that each side may hold in memory while the keys of differing buckets are listed: some hundred MB for
wide keys."""
UNCERTAIN_KEYS_MAX = 50_000
"""If more keys than this were changed between the watermarks of a read view, another view is opened:
comparing so many keys again would take longer."""
KEEPS_CHANGING = "Its definition changed in every round. Verify it again."
KEYLESS = "The table has no key, so its rows cannot be matched with those of the target."

Sums = dict[int, BucketSum]


@dataclass(frozen=True)
class Compared:
    """A table's target in the form in which it is compared."""

    schema: TableSchema
    buckets: Buckets
    version: str | None


@dataclass
class _Measured:
    """A table in the read view. If it has no buckets, `sums` is the error."""

    schema: TableSchema
    rows: int
    buckets: Buckets | None
    sums: Sums | PenstockError = field(default_factory=dict)


@dataclass
class _Comparison:
    """The result of one read view for one table."""

    compared: Compared
    offset: Offset
    source: Sums
    target: Sums
    different: list[int]
    """The differing buckets."""
    listed: list[int] = field(default_factory=list)
    """The differing buckets whose keys were compared."""
    real: list[KeyDifference] = field(default_factory=list)
    unsettled: list[KeyDifference] = field(default_factory=list)


class VersionsAt(Protocol):
    """Brings targets to one place of the source's log (`penstock.verify.target_versions`)."""

    def hold(self, tables: Collection[TableId]) -> Mapping[TableId, TableSchema | NotCompared]:
        """Must be called before a read view opens. From now on the pipeline applies nothing beyond the view's
        high watermark, until `versions_at` is called with it. Returns the current definitions."""

    def versions_at(
        self, tables: Collection[TableId], position: SourcePosition
    ) -> tuple[Offset, Mapping[TableId, Subject]]:
        """An offset at or slightly after `position`, and the versions of the targets that have the log of
        these tables up to it. Waits for the pipeline if necessary."""


class LogWindow(Protocol):
    """The content of the relay log between two watermarks."""

    def keys_touched(
        self, schema: TableSchema, window: Window, end: Offset, limit: int
    ) -> Collection[str] | None:
        """Canonical texts of the keys (before and after images) of transactions that end at or before `end`
        and are not covered by the low watermark. None: more than `limit`."""


class TargetMoved(TransientError):
    """The target may have changed while it was read, so that nothing is proven."""


class Target(Protocol):
    """The target's part of a comparison. `penstock.spark.verify` implements it."""

    def sums(
        self, tables: Sequence[Compared], types: TypeOptions
    ) -> dict[TableId, dict[int, BucketSum] | PenstockError]:
        """Rows and hash sums per bucket of each table, or the error."""

    def rows(
        self,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
        types: TypeOptions,
    ) -> list[tuple[str, int]]:
        """Key text and hash of every row in these buckets. A key with two rows appears twice."""


class Verification:
    """Verifies tables of one source against one target."""

    def __init__(
        self,
        views: Callable[[], AbstractContextManager[ReadView]],
        target: Target,
        versions: VersionsAt,
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

    def verify(self, tables: Sequence[tuple[TableId, int]]) -> Iterator[TableReport]:
        """Compares tables, each given with its estimated number of rows. An error of one table is in its
        report; an error that concerns all of them is raised."""
        waiting = list(batches(tables))
        rounds: Counter[TableId] = Counter()
        while waiting:
            batch = waiting.pop(0)
            left = len(batch) + sum(map(len, waiting))
            others = f" and {len(batch) - 1} more tables" if len(batch) > 1 else ""
            step("comparing %s%s, %d tables left", batch[0], others, left)
            reports, large, changed = self._with_retries(batch)
            yield from reports
            waiting += [(name,) for name in large]
            rounds.update(changed)
            for name in changed:
                if rounds[name] >= ROUNDS_MAX:
                    yield TableReport(name, not_compared=NotCompared(Why.READING, KEEPS_CHANGING))
            if again := tuple(name for name in changed if rounds[name] < ROUNDS_MAX):
                waiting.insert(0, again)

    def _with_retries(
        self, names: Sequence[TableId]
    ) -> tuple[list[TableReport], Collection[TableId], Collection[TableId]]:
        """`_batch`, with retries while the source does not answer or the target moves."""
        backoff = Backoff(RETRY)
        while True:
            try:
                return self._batch(names)
            except (SourceUnreachable, TargetMoved) as error:
                backoff.failed()
                if backoff.failures == ATTEMPTS_MAX:
                    return [TableReport(name, error=str(error)) for name in names], (), ()
                log.warning("attempt %d to compare %d tables failed: %s",
                            backoff.failures, len(names), error.message)  # fmt: skip
                backoff.wait()

    def _batch(
        self, names: Sequence[TableId]
    ) -> tuple[list[TableReport], Collection[TableId], Collection[TableId]]:
        """Compares tables in one read view and one Spark job. Returns the reports, the tables that are too
        large for that, and the tables whose definition changed in the meantime."""
        reports, schemas = _split(self._versions.hold(names))
        if not schemas:
            return reports, (), ()
        with self._views() as view, ThreadPoolExecutor(1) as pool:
            work = self._measured(view, schemas)
            large = [name for name, one in work.items() if len(names) > 1 and one.rows > SMALL_ROWS_MAX]
            work = {name: one for name, one in work.items() if name not in large}
            # The server and Spark work in parallel. Until `result()` only the pool uses the view's session.
            computed = pool.submit(self._source_sums, view, work)
            offset, versions = self._versions.versions_at(work, view.window.end)
            changed: list[TableId] = []
            targets: list[Compared] = []
            for name, one in work.items():
                known = versions[name]
                if isinstance(known, NotCompared):
                    reports.append(TableReport(name, not_compared=known))
                elif known.schema_version != one.schema.version:
                    changed.append(name)
                elif one.buckets is not None:
                    targets.append(Compared(one.schema, one.buckets, known.version))
                else:
                    reports.append(TableReport(name, error=str(one.sums)))
            target_sums = self._target.sums(targets, self._types) if targets else {}
            computed.result()
            compared = [
                self._compare(view, one, offset, work[one.schema.table].sums, target_sums[one.schema.table])
                for one in targets
            ]
        reports += [self._settled(one) if isinstance(one, _Comparison) else one for one in compared]
        return reports, large, changed

    def _measured(self, view: ReadView, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, _Measured]:
        found = {}
        for name, schema in schemas.items():
            try:
                extent = view.extent(schema)
                found[name] = _Measured(schema, extent.rows, choose_buckets(schema, extent))
            except TableError as error:
                found[name] = _Measured(schema, 0, None, error)
        return found

    def _source_sums(self, view: ReadView, work: Mapping[TableId, _Measured]) -> None:
        for one in work.values():
            if one.buckets is not None:
                try:
                    one.sums = view.sums(one.schema, one.buckets, self._types)
                except TableError as error:
                    one.sums = error

    def _compare(
        self,
        view: ReadView,
        one: Compared,
        offset: Offset,
        source: Sums | PenstockError,
        target: Sums | PenstockError,
    ) -> _Comparison | TableReport:
        """The differences that this read view shows."""
        if isinstance(source, PenstockError):
            return TableReport(one.schema.table, error=str(source))
        if isinstance(target, PenstockError):
            return TableReport(one.schema.table, error=str(target))
        different = different_buckets(source, target)
        found = _Comparison(one, offset, source, target, different)
        if not different:
            return found
        found.listed = _affordable(different, source, target)
        try:
            uncertain = self._window.keys_touched(one.schema, view.window, offset, UNCERTAIN_KEYS_MAX)
            keys = self._differences(view, one.schema, one.buckets, found.listed, one.version)
        except TableError as error:
            return TableReport(one.schema.table, error=str(error))
        found.real, found.unsettled = ([], keys) if uncertain is None else settle(keys, uncertain)
        return found

    def _settled(self, one: _Comparison) -> TableReport:
        """The report, after uncertain keys were compared again."""
        schema, buckets = one.compared.schema, one.compared.buckets
        try:
            more, unverified = self._settle_in_new_views(schema, buckets, one.unsettled)
        except TableError as error:
            return TableReport(schema.table, error=str(error))
        real = one.real + more
        beyond = one.different[len(one.listed) :]
        left_out = sum(max(_rows(one.source, number), _rows(one.target, number)) for number in beyond)
        return TableReport(
            table=schema.table,
            rows_source=sum(part.rows for part in one.source.values()),
            rows_target=sum(part.rows for part in one.target.values()),
            offset=one.offset,
            ranges=len(one.source.keys() | one.target.keys()),
            ranges_different=sorted({buckets.describe(number) for number in beyond}),
            keys_different=[_named(schema, difference) for difference in real[: self._keys_listed]],
            keys_not_listed=left_out + len(real[self._keys_listed :]),
            unverified=unverified,
        )

    def _settle_in_new_views(
        self, schema: TableSchema, buckets: Buckets, unsettled: list[KeyDifference]
    ) -> tuple[list[KeyDifference], int]:
        """Compares uncertain keys in new views until each is equal or really different. Returns the
        differences and the number of keys that remain uncertain."""
        real: list[KeyDifference] = []
        for _ in range(ROUNDS_MAX):
            if not unsettled:
                break
            open_keys = {difference.key for difference in unsettled}
            now = self._versions.hold([schema.table])[schema.table]
            if isinstance(now, NotCompared) or now.version != schema.version:
                break
            with self._views() as view:
                offset, versions = self._versions.versions_at([schema.table], view.window.end)
                known = versions[schema.table]
                if isinstance(known, NotCompared) or known.schema_version != schema.version:
                    break
                version = known.version
                uncertain = self._window.keys_touched(schema, view.window, offset, UNCERTAIN_KEYS_MAX)
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
        duplicates = _duplicates(key for key, _ in rows) if len(target) < len(rows) else []
        return different_keys(source, target) + [KeyDifference(key, Kind.DUPLICATE) for key in duplicates]


_NOTHING = BucketSum(0, 0)


def _rows(sums: Sums, number: int) -> int:
    return sums.get(number, _NOTHING).rows


def _split(
    found: Mapping[TableId, TableSchema | NotCompared],
) -> tuple[list[TableReport], dict[TableId, TableSchema]]:
    """Reports for the tables that cannot be compared, and the definitions of the others."""
    reports, schemas = list[TableReport](), dict[TableId, TableSchema]()
    for name, one in found.items():
        if isinstance(one, NotCompared):
            reports.append(TableReport(name, not_compared=one))
        elif not one.key:
            reports.append(TableReport(name, error=KEYLESS))
        else:
            schemas[name] = one
    return reports, schemas


def _affordable(different: list[int], source: Sums, target: Sums) -> list[int]:
    """The first differing buckets whose rows fit into memory; at least one."""
    rows = 0
    for count, number in enumerate(different):
        rows += max(_rows(source, number), _rows(target, number))
        if rows > ROWS_LISTED_MAX and count > 0:
            return different[:count]
    return different


def _duplicates(keys: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    duplicates: set[str] = set()
    for key in keys:
        (duplicates if key in seen else seen).add(key)
    return sorted(duplicates)


def _named(schema: TableSchema, difference: KeyDifference) -> DifferentKey:
    values = split_key(schema.key_columns, difference.key)
    return DifferentKey(dict(zip(schema.key, values, strict=True)), difference.kind.value)
