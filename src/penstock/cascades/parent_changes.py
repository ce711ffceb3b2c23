"""Extracts the changes of parent tables: deleted rows, and rows whose referenced columns changed.

A change consists of `o0…` (old values), `n0…` (new values; NULL for a deleted row), `gone` (whether it was
deleted) and `p`, its sequence. There is one `o` and one `n` for each referenced column, numbered by the
column's index in the table.

The server's cascade takes place inside the change of the parent row, before its image is logged. So
everything before the image in the log existed for the cascade, and nothing after it did. The decoder omits
images of sessions with `foreign_key_checks = 0`, because there no cascade took place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.cascades.keys import acts
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.schema import CascadingKey, TableSchema, TypeOptions


@dataclass(frozen=True)
class Watched:
    """The relevant part of a parent: the indexes of its referenced columns, whether deletions cascade, and
    the indexes of columns whose updates cascade. Pickles."""

    places: tuple[int, ...]
    deleted: bool
    updated: tuple[int, ...]

    @classmethod
    def by(cls, schema: TableSchema, keys: Iterable[CascadingKey]) -> Watched:
        """What is watched of a parent table. `keys`: the foreign keys that refer to it."""
        place = {column.name: number for number, column in enumerate(schema.columns)}
        keys = list(keys)
        updated = [key for key in keys if acts(key, deleted=False)]
        return cls(
            tuple(sorted({place[name] for key in keys for name in key.referenced})),
            any(acts(key, deleted=True) for key in keys),
            tuple(sorted({place[name] for key in updated for name in key.referenced})),
        )


def change_schema(schema: TableSchema, watched: Watched, types: TypeOptions) -> pa.Schema:
    rows = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
    fields = [pa.field(f"{side}{place}", rows.field(place).type)
              for side in "on" for place in watched.places]  # fmt: skip
    return pa.schema([*fields, pa.field("gone", pa.bool_()), pa.field("p", pa.int64())])


def changes_of(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], watched: Watched, result: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The changes in batches of layout `changelog` with before images, where the after image of an update
    directly follows its before image. `names`: of the columns at `watched.places`."""
    columns = dict(zip(watched.places, names, strict=True))
    for batch in batches:
        kinds = batch.column(CHANGE_TYPE)
        if watched.deleted:
            gone = pc.indices_nonzero(pc.equal(kinds, "delete"))
            if len(gone):
                yield _made(batch, gone, None, columns, result)
        if watched.updated:
            before = pc.indices_nonzero(pc.equal(kinds, "update_preimage"))
            if not len(before):
                continue
            after = pc.add(before, pa.scalar(1, before.type))
            differs = pa.array([False] * len(before))
            for place in watched.updated:
                column = batch.column(columns[place])
                differs = pc.or_(differs, _differ(column.take(before), column.take(after)))
            if pc.any(differs).as_py():
                yield _made(batch, before.filter(differs), after.filter(differs), columns, result)


def _differ(one: pa.Array, other: pa.Array) -> pa.Array:
    unequal = pc.fill_null(pc.not_equal(one, other), False)
    return pc.or_(unequal, pc.xor(pc.is_null(one), pc.is_null(other)))


def _made(
    batch: pa.RecordBatch,
    before: pa.Array,
    after: pa.Array | None,
    columns: dict[int, str],
    result: pa.Schema,
) -> pa.RecordBatch:
    old = [batch.column(name).take(before) for name in columns.values()]
    if after is None:
        new = [pa.nulls(len(before), array.type) for array in old]
    else:
        new = [batch.column(name).take(after) for name in columns.values()]
    sequence = batch.column(SEQUENCE).take(before if after is None else after)
    gone = pa.repeat(pa.scalar(after is None), len(before))
    return pa.RecordBatch.from_arrays([*old, *new, gone, sequence], schema=result)
