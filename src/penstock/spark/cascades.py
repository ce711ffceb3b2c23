"""`cascades: apply`: computes what foreign keys did in an epoch, and stages it before any table is written.

It must come first. The target's rows are needed to find which rows a cascade reached, and the first commit
changes them. The results are files in the epoch's folder, `cascades/EPOCH/` in the pipeline's staging. They
count once the folder has a manifest, which names them: a task of an earlier attempt may still write others.
A repeated epoch finds them there, whatever it had already written. An epoch without a manifest has not
written anything, so it may compute them again.

Most epochs need one decoding of the parents' row images and no Spark job, because only deletes and changes
of referenced columns matter. The rule is in `spark/consequences.py`. This module does the rest:

**What is staged.** For each key of a table, the last thing that a foreign key did to its row. It is merged
into the target after the log's own events, with the `_sequence` of the change that started the cascade. A
row that continues to exist has only the columns of its foreign keys. The target keeps the others, as with
partial row images.

**Chunks.** A row of a chunk shows what its SELECT saw. Its key has no event after the chunk's window W,
because placement drops all keys that have one. So between W and the end E of the epoch, only foreign keys
changed it. A change in (W, E] that matches the row as it was read was not visible to the SELECT: otherwise
the row would not have the old value. The one exception is a value that comes back. Parent A was deleted or
changed at p, and later another parent became A, together with its child rows. A row with the value A can be
of either kind, so the chunk is read again. The changes of earlier epochs are in their folders, which are
deleted when no snapshot needs them any more.

**A table that refers to itself** (`spark/small_cascades.py`) is read in one piece and catches up in epochs
of its own. The epochs of the other tables store the changes of its parents for it
(`EpochPlan.catch_up_later`).

**What is uncertain** is never ignored: the table is parked until it has been read again (`reread_error`).
These are uncertain: texts beyond ASCII in a collation in which different texts may be equal; unknown
collations; generated columns that depend on a column that a foreign key set; rows whose key a foreign key
changed while the table was being read. Such a row may have moved from a chunk that was not read yet to one
that was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.cascades import reread_reasons
from penstock.cascades.comparison import Comparisons
from penstock.cascades.keys import parents_first, refers_to_itself
from penstock.cascades.parent_changes import Watched, change_schema
from penstock.config import EpochConfig
from penstock.epochs import tasks
from penstock.errors import TableError, TransientError
from penstock.failures.crossing import crossing, returned
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.offset import Offset
from penstock.model.plan import ApplyCascades, ApplyEvents, EpochPlan, PlaceChunks, TablePlan
from penstock.model.schema import CascadingKey, TableId, TableSchema, TypeOptions
from penstock.sinks.base import Sink, readable
from penstock.sinks.files import WRITTEN, FileWriter, written
from penstock.sinks.rows import Incomplete, Rows
from penstock.sinks.spark_sql import quoted, spark_type
from penstock.spark.row_versions import LargeCascades, ParentChanges, Result, places_of
from penstock.spark.scratch import FrameFiles, Scratch, save
from penstock.spark.small_cascades import ROWS_MAX, SmallCascades, TooMany
from penstock.state import StateStore
from penstock.store.base import Store
from penstock.store.errors import ObjectMissing
from penstock.store.folder import StoreFiles, StoreFolder

log = logging.getLogger(__name__)

FORMAT = 2
"""Version of the manifest's format. Format 1 was written by older versions, in directories alone."""
MANIFEST = "manifest.json"
FOLDER = "cascades"
"""The folder of all epochs."""
SCRATCH = "scratch/cascades"

Place = Callable[[EpochPlan, TablePlan, PlaceChunks], Rows]


@dataclass
class Consequences:
    """What foreign keys did in one epoch, as stored before the epoch's tables are written."""

    folder: StoreFolder
    end: Offset = Offset(0)  # noqa: RUF009 (an int)
    """The end of the epoch."""
    changes: dict[TableId, list[ParentChanges]] = field(default_factory=dict)
    """Changes of parent tables that foreign keys pass on."""
    rows: dict[TableId, FrameFiles] = field(default_factory=dict)
    """The rows to merge into each table."""
    chunks: dict[TableId, FrameFiles] = field(default_factory=dict)
    """Corrections of the chunks of each table."""
    unclear: set[TableId] = field(default_factory=set)
    """Tables whose chunks must be read again."""
    failed: dict[TableId, TableError] = field(default_factory=dict)
    """Tables that cannot be followed any more, and why."""

    def check(self, table: TableId) -> None:
        """Raises the error if the table cannot be followed."""
        if table in self.failed:
            raise self.failed[table]

    def write(self) -> None:
        """Writes the manifest. The files count from here on."""
        folder = self.folder
        document = {
            "format": FORMAT,
            "end": self.end,
            "changes": {str(t): [one.to_json(folder) for one in known] for t, known in self.changes.items()},
            "rows": {str(table): files.to_json(folder) for table, files in self.rows.items()},
            "chunks": {str(table): files.to_json(folder) for table, files in self.chunks.items()},
            "unclear": [str(table) for table in self.unclear],
            "failed": {str(t): [e.message, e.hint, e.details] for t, e in self.failed.items()},
        }
        folder.store.put(folder.key(MANIFEST), json.dumps(document).encode())

    @classmethod
    def read(cls, folder: StoreFolder) -> Consequences | None:
        """Returns what an earlier attempt has staged. None: it has not finished staging."""
        try:
            document = json.loads(folder.store.get(folder.key(MANIFEST)).data)
        except ObjectMissing:
            return None
        if document["format"] == 1:
            document = _with_files(document, folder)

        def files(name: str) -> dict[TableId, FrameFiles]:
            found = document[name].items()
            return {TableId.parse(table): FrameFiles.from_json(one, folder) for table, one in found}

        return cls(
            folder,
            Offset(document["end"]),
            {TableId.parse(t): [ParentChanges.from_json(one, folder) for one in known]
             for t, known in document["changes"].items()},
            files("rows"),
            files("chunks"),
            {TableId.parse(table) for table in document["unclear"]},
            {TableId.parse(t): TableError(message, hint=hint, **details)
             for t, (message, hint, details) in document["failed"].items()},
        )  # fmt: skip


def _with_files(document: dict[str, Any], folder: StoreFolder) -> dict[str, Any]:
    """Converts a manifest of format 1, which names folders, to format 2, which names files."""

    def file(name: str) -> list[Any]:
        source = StoreFiles(folder.store).source(folder.key(name))
        return [name, folder.store.stat(folder.key(name)).size, pq.read_metadata(source).num_rows]

    def files(name: str) -> list[list[Any]]:
        start = len(folder.path) + 1
        keys = [found.key for found in (folder / name).objects()]
        return [file(key[start:]) for key in keys if key.endswith(".parquet")]

    changes = {
        table: [{**one, "files": [file(name) for name in one["files"]]} for one in known]
        for table, known in document["changes"].items()
    }
    named = {
        kind: {table: files(name) for table, name in document[kind].items()} for kind in ("rows", "chunks")
    }
    return {**document, **named, "changes": changes}


class Cascades:
    """Computes what foreign keys did, stages it, and removes it when it is not needed any more. `place`
    returns the rows of chunks that are placed."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        store: Store,
        types: TypeOptions,
        comparisons: Comparisons,
        place: Place,
        limits: EpochConfig,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._root = StoreFolder(store, FOLDER)
        self._scratch = StoreFolder(store, SCRATCH)
        self._known: dict[str, Consequences] | None = None
        """Staged consequences, by the names of their folders. To ask the store after each epoch would cost
        requests."""
        self._types = types
        self._comparisons = comparisons
        self._place = place
        self._driver_bytes_max = limits.driver_bytes_max
        self._own_rows_max = limits.cascade_rows_max

    def prepare(self, plan: EpochPlan) -> Consequences:
        """Computes and stages everything for one plan. Must be called before anything of the plan is
        written."""
        name = f"{plan.epoch:012d}"
        folder = self._root / name
        concerned = {table.table: table for table in plan.tables if _is_concerned(table)}
        if not concerned and not plan.catch_up_later:
            return Consequences(folder)
        known = self._staged().pop(name, None)
        if known is not None and known.end == plan.range.end:
            self._staged()[name] = known
            return known
        folder.remove()
        found = Consequences(folder, plan.range.end)
        schemas = {one.table: one for one in plan.catch_up_later} | {
            t: one.schema for t, one in concerned.items()
        }
        self._decode_parents(plan, schemas, found)
        windows = [window for table in concerned.values() if (window := _window(table, plan)) is not None]
        earlier = self._earlier(min(windows), concerned, found) if windows else {}
        if not found.changes and not found.failed and not _matter(earlier, concerned, plan):
            return found
        scratch = Scratch(self._spark, self._scratch)
        try:
            for table in parents_first({table: one.schema for table, one in concerned.items()}):
                try:
                    self._work_out(plan, concerned, schemas, table, earlier, found, scratch)
                except Exception as error:
                    if not isinstance(ours := returned(error), TableError):
                        raise
                    found.failed[table] = ours
        finally:
            scratch.remove()
        found.write()
        self._staged()[name] = found
        return found

    # parents ------------------------------------------------------------------------------------------------

    def _decode_parents(
        self, plan: EpochPlan, schemas: dict[TableId, TableSchema], found: Consequences
    ) -> None:
        """Finds changes of the parents of these tables (`schemas`) in the log."""
        keys = [key for schema in schemas.values() for key in schema.foreign_keys]
        for parent in plan.tables:
            own = [key for key in keys if key.parent == parent.table]
            step = next((one for one in parent.steps if isinstance(one, ApplyEvents)), None)
            if not own or step is None:
                continue
            try:
                known = self._decode(parent, step, Watched.by(parent.schema, own), found.folder / "changes")
            except Exception as error:
                if not isinstance(ours := returned(error), TableError):
                    raise
                self._fail_children(parent.table, schemas, ours, found)
                continue
            if known.files.rows:
                found.changes.setdefault(parent.table, []).append(known)

    def _decode(
        self, parent: TablePlan, step: ApplyEvents, watched: Watched, into: StoreFolder
    ) -> ParentChanges:
        schema = parent.schema
        work = tuple(
            tasks.ChangesTask(schema.to_json(), split, watched, self._types) for split in step.splits
        )
        writer = FileWriter(into.files, change_schema(schema, watched, self._types))
        if step.bytes <= self._driver_bytes_max:
            with crossing(str(schema.table)).guard():
                files = list(writer.files(batch for task in work for batch in tasks.changes(task)))
        else:
            indexes = self._spark.range(0, len(work), 1, len(work))
            body = tasks.run_tasks(tasks.changes, work, str(schema.table), writer)
            files = written(indexes.mapInArrow(body, WRITTEN))
        places = {schema.columns[n].name: n for n in watched.places}
        return ParentChanges(places, FrameFiles.of(into.store, files))

    def _fail_children(
        self, parent: TableId, schemas: dict[TableId, TableSchema], error: TableError, found: Consequences
    ) -> None:
        for table, schema in schemas.items():
            if any(key.parent == parent for key in schema.foreign_keys):
                found.failed[table] = TableError(
                    f"What foreign keys changed in {table} is not known: {error.message}",
                    hint=error.hint,
                    table=str(table),
                    **{"read_again": True} if error.details.get("lacks") != "columns" else {},
                )

    # children -----------------------------------------------------------------------------------------------

    def _work_out(
        self,
        plan: EpochPlan,
        concerned: dict[TableId, TablePlan],
        schemas: dict[TableId, TableSchema],
        name: TableId,
        earlier: dict[TableId, list[ParentChanges]],
        found: Consequences,
        scratch: Scratch,
    ) -> None:
        table = concerned[name]
        if name in found.failed:
            return
        keys = [key for one in schemas.values() for key in one.foreign_keys if key.parent == name]
        before = earlier if _window(table, plan) is not None else {}
        changes = {
            key.parent: [*(before.get(key.parent, ()) if key.parent != name else ()),
                         *found.changes.get(key.parent, ())]
            for key in table.schema.foreign_keys
        }  # fmt: skip
        watched = Watched.by(table.schema, keys)
        reach = plan.range if _is_alone(table) else None
        itself = refers_to_itself(table.schema)
        family: SmallCascades | LargeCascades
        try:
            family = SmallCascades(
                self._spark, self._types, self._comparisons, table, watched, changes, reach,
                limit=self._own_rows_max if itself else ROWS_MAX,
            )  # fmt: skip
            worked = self._result(plan, table, family, found)
        except TooMany:
            if itself:
                raise reread_reasons.too_many(name, self._own_rows_max) from None
            family = LargeCascades(
                self._spark, self._types, self._comparisons, table, watched, changes, scratch
            )
            worked = self._result(plan, table, family, found)
        if worked is None:
            return
        rows, corrections, derived = (
            save(one, found.folder / "rows") for one in (worked.rows, worked.chunks, worked.derived)
        )
        found.rows |= {name: rows} if rows.rows else {}
        found.chunks |= {name: corrections} if corrections.rows else {}
        if derived.rows:
            places = {table.schema.columns[n].name: n for n in family.watched.places}
            found.changes.setdefault(name, []).append(ParentChanges(places, derived))

    def _result(
        self,
        plan: EpochPlan,
        table: TablePlan,
        family: SmallCascades | LargeCascades,
        found: Consequences,
    ) -> Result | None:
        if not family.is_touched:
            return None
        window = _chunk_window(table)
        if window is not None and family.is_unclear():
            found.unclear.add(table.table)
            window = None
        step = next((one for one in table.steps if isinstance(one, ApplyCascades)), None)
        family.refuse_moves(reading=window is not None or (step is not None and step.reading))
        chunks = [
            (self._place(plan, table, one).frame, one.window)
            for one in table.steps
            if isinstance(one, PlaceChunks) and one.window is not None and window is not None
        ]
        target = readable(self._sink).read(table.table) if step is not None and step.rows else None
        return family.work_out(target, step.after if step is not None else Offset(0), chunks)

    # reading the results ------------------------------------------------------------------------------------

    def rows(self, found: Consequences, table: TablePlan) -> Rows | None:
        """Rows to merge after the log's events of the table; None: there are none."""
        if table.table not in found.rows:
            return None
        schema = table.schema
        staged = found.rows[table.table].frame(self._spark)
        arrow = tasks.layout(table.schema, "rows", self._types)
        columns = []
        for place, column in enumerate(schema.columns):
            kind = spark_type(arrow.field(place))
            value = f.col(f"c{place}") if f"c{place}" in staged.columns else f.lit(None)
            columns.append(value.cast(kind).alias(column.name))
        whole = all(f"c{place}" in staged.columns for place in range(len(schema.columns)))
        said = {name for key in schema.foreign_keys for name in key.columns}
        text = "".join("1" if column.name in said else "0" for column in schema.columns)
        present = f.when(f.col(DELETED) | f.lit(whole), f.lit(None)).otherwise(f.lit(text))
        frame = staged.select(*columns, DELETED, SEQUENCE, present.cast("string").alias(PRESENT))
        places = {column.name: place for place, column in enumerate(schema.columns)}
        return Rows(frame, Incomplete(places, target_is_complete=False))

    def corrected(self, found: Consequences, table: TablePlan, rows: Rows) -> Rows:
        """Rows of chunks, with the changes that foreign keys have made since the chunks were read."""
        if table.table not in found.chunks:
            return rows
        schema, places = table.schema, places_of(table.schema)
        fixes = found.chunks[table.table].frame(self._spark)
        fixes = fixes.toDF(*[f"_fix{name}" for name in fixes.columns])
        same = [
            f.col(quoted(name)).eqNullSafe(f.col(f"_fixc{places[name]}")) for name in schema.key
        ]  # fmt: skip
        joined = rows.frame.join(fixes, same, "left").where(f"_fix{DELETED} IS NULL OR NOT _fix{DELETED}")
        said = {name for key in schema.foreign_keys for name in key.columns}
        fixed = f.col(f"_fix{DELETED}").isNotNull()
        columns = [
            f.when(fixed, f.col(f"_fixc{places[name]}")).otherwise(f.col(quoted(name))).alias(name)
            if name in said
            else f.col(quoted(name))
            for name in rows.frame.columns
        ]
        return Rows(joined.select(*columns))

    # earlier epochs -----------------------------------------------------------------------------------------

    def _earlier(
        self, window: Offset, concerned: dict[TableId, TablePlan], found: Consequences
    ) -> dict[TableId, list[ParentChanges]]:
        """Changes of earlier epochs that ended after the window. Adds the errors of these epochs about
        tables that catch up to `found`."""
        changes: dict[TableId, list[ParentChanges]] = {}
        for _, one in sorted(self._staged().items()):
            if one.end <= window:
                continue
            for table, known in one.changes.items():
                changes.setdefault(table, []).extend(known)
            lost = {name for name in one.failed if name in concerned and _is_alone(concerned[name])}
            found.failed |= {name: one.failed[name] for name in lost}
        return changes

    def _staged(self) -> dict[str, Consequences]:
        """The staged consequences of all epochs. The first call also removes what a killed run did not
        finish."""
        if self._known is None:
            names = {found.key.split("/")[1] for found in self._root.objects()}
            self._known = {}
            for name in names:
                one = Consequences.read(self._root / name)
                if one is None:
                    (self._root / name).remove()
                else:
                    self._known[name] = one
        return self._known

    def sweep(self, state: StateStore) -> None:
        """Removes the folders that no snapshot, no table that catches up and no plan needs any more."""
        staged = self._staged()
        if not staged:
            return
        with state.reading():
            waiting = [one for one in state.tables().values() if one.schema.foreign_keys]
            planned = state.oldest_planned()
        starts = [one.start for one in waiting if one.reading]
        starts += [at for one in waiting if (at := one.catches_up_from) is not None]
        # The next plan may be durable already. Its table's state then shows the position after that plan.
        starts += [] if planned is None else [planned]
        for name, one in list(staged.items()):
            if not starts or one.end <= min(starts):
                try:
                    # First: what is left without it does not count, and is removed by the next run.
                    one.folder.store.delete(one.folder.key(MANIFEST))
                    one.folder.remove()
                except TransientError as error:
                    log.warning("what foreign keys did in epoch %s is still staged: %s", name, error)
                del staged[name]


def _is_concerned(table: TablePlan) -> bool:
    return any(
        isinstance(step, ApplyCascades) or (isinstance(step, PlaceChunks) and step.window is not None)
        for step in table.steps
    )


def _is_alone(table: TablePlan) -> bool:
    return any(isinstance(step, ApplyCascades) and step.alone for step in table.steps)


def _window(table: TablePlan, plan: EpochPlan) -> Offset | None:
    """The offset after which changes of earlier epochs matter for this table; None: they do not matter."""
    return plan.range.start if _is_alone(table) else _chunk_window(table)


def _chunk_window(table: TablePlan) -> Offset | None:
    windows = [step.window for step in table.steps if isinstance(step, PlaceChunks)]
    return min((window for window in windows if window is not None), default=None)


def _matter(
    earlier: dict[TableId, list[ParentChanges]], concerned: dict[TableId, TablePlan], plan: EpochPlan
) -> bool:
    keys: list[CascadingKey] = [
        key
        for table in concerned.values()
        if _window(table, plan) is not None
        for key in table.schema.foreign_keys
    ]
    return any(key.parent in earlier for key in keys)
