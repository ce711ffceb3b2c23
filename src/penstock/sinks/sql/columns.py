"""Changes of a target's columns: in one transaction where the product has such, else by one ALTER TABLE.

A column whose values have to be computed (another type, a default) is first made under a temporary name. Then
old columns go, and the others get their names. All of it can be repeated after a kill anywhere in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from penstock.errors import TableError
from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.base import Commit, EvolvedColumn, Narrowing
from penstock.sinks.evolve import Change, changes, key_after
from penstock.sinks.names import TEMPORARY, Reserved, source_columns
from penstock.sinks.spark_sql import constant, holds
from penstock.sinks.sql.control import Record
from penstock.sinks.sql.dialect import Dialect, Place, Session

if TYPE_CHECKING:
    from penstock.sinks.sql.mysql import MySql


@dataclass(frozen=True)
class Evolution:
    """The columns that a target gets. `present`: those that it has, with their types as SQL."""

    place: Place
    present: Mapping[str, str]
    changed: Sequence[Change]
    before: Record
    """The present record of the target. Columns that are not in it belong to others, and stay."""
    record: Record
    """The columns that the target will have."""
    key_changes: bool

    @property
    def computed(self) -> list[Change]:
        return [one for one in self.changed if one.how == "convert" or (one.how == "add" and one.default)]

    @property
    def removed(self) -> list[str]:
        kept = {one.before for one in self.changed if one.how != "convert"}
        own = source_columns(tuple(self.before.columns.names))
        return [name for name in own if name in self.present and name not in kept]

    @property
    def renamed(self) -> list[tuple[str, str]]:
        return [
            (one.before, one.name)
            for one in self.changed
            if one.before is not None and one.how != "convert" and one.before != one.name
        ]


def evolution(
    dialect: Dialect,
    table: TableId,
    place: Place,
    present: Mapping[str, str],
    record: Record,
    columns: Sequence[EvolvedColumn],
    narrowing: Narrowing,
    reserved: Reserved,
) -> Evolution:
    """The changes that the target needs. Raises `TableError` if it cannot have the columns."""
    own = StructType([field for field in record.columns if field.name != SEQUENCE])
    if all(column.refills for column in columns):  # what somebody has removed is added again
        own = StructType([field for field in own if field.name in present])
    changed = changes(table, own, columns, reserved=reserved, stored=lambda kind: kind,
                      widens=_widens(dialect), narrowing=narrowing)  # fmt: skip
    key = key_after(changed, record.key)
    fields = [StructField(one.name, one.kind) for one in changed]
    after = replace(record, columns=StructType([*fields, StructField(SEQUENCE, LongType())]), key=key)
    before = {one.before: one for one in changed if one.before is not None}
    kept = [before[name].name for name in record.key if name in before and before[name].how != "convert"]
    return Evolution(
        place,
        present,
        changed,
        record,
        after,
        key_changes=sorted(kept) != sorted(key) or len(kept) != len(record.key),
    )


def _refuse_taken(dialect: Dialect, work: Evolution) -> None:
    """Raises `TableError` if somebody else has added a column with the name of one that the target gets."""
    own = {dialect.folded(name) for name in work.before.columns.names}
    theirs = {dialect.folded(name) for name in work.present} - own
    taken = next((one.name for one in work.changed if dialect.folded(one.name) in theirs), None)
    if taken is not None:
        table = work.before.source
        raise TableError(
            f"The target of {table}, {work.place}, cannot get the column `{taken}`: somebody else has added "
            "one of this name.",
            hint=f"Rename or drop that one, then run `penstock unpark FILE {argument(table)}`.",
            table=table,
        )


def _widens(dialect: Dialect) -> Any:
    def widens(old: DataType, kind: DataType) -> bool:
        if not dialect.widens_columns:  # a column keeps its type, which must store both in one way
            return holds(kind, old) and dialect.type_of(kind) == dialect.type_of(old)
        return holds(kind, old)

    return widens


def evolve(dialect: Dialect, session: Session, spark: SparkSession, work: Evolution) -> None:
    """Makes the changes inside a transaction."""
    _refuse_taken(dialect, work)
    run, target, quoted = dialect.run, dialect.target(work.place), dialect.quoted
    _compute(dialect, session, spark, work)
    if work.key_changes and dialect.indexes_keys:
        _drop_key(dialect, session, work)
    for name in work.removed:
        run(session, f"ALTER TABLE {target} DROP COLUMN {quoted(name)}")
    moves = [(before, f"{TEMPORARY}{n}_", after) for n, (before, after) in enumerate(work.renamed)]
    moves += [(one.temporary, f"{TEMPORARY}c{n}_", one.name) for n, one in enumerate(work.computed)]
    for before, between, _ in moves:
        run(session, f"ALTER TABLE {target} RENAME COLUMN {quoted(before)} TO {quoted(between)}")
    for _, between, after in moves:
        run(session, f"ALTER TABLE {target} RENAME COLUMN {quoted(between)} TO {quoted(after)}")
    for one in work.changed:
        if one.how == "add" and not one.default:
            run(session, f"ALTER TABLE {target} ADD COLUMN {quoted(one.name)} {dialect.type_of(one.kind)}")
        if one.how == "widen" and dialect.widens_columns:
            kind = dialect.type_of(one.kind)
            run(session, f"ALTER TABLE {target} ALTER COLUMN {quoted(one.name)} TYPE {kind}")
    if work.key_changes and work.record.key:
        types = dict.fromkeys(work.record.key, "")
        dialect.make_key(session, work.place, types, unique=False)


def _drop_key(dialect: Dialect, session: Session, work: Evolution) -> None:
    """Drops the index of the old key. Until all rows are read again, the target may have several rows with
    one old key."""
    target, quoted = dialect.target(work.place), dialect.quoted
    if dialect.name == "sqlite":
        sql = "SELECT name FROM pragma_index_list(%s, 'main') WHERE name = %s"
        name = dialect.key_name(work.place)  # type: ignore[attr-defined]
        if dialect.run(session, sql, [work.place.name, name]):
            dialect.run(session, f"DROP INDEX main.{quoted(name)}")
        return
    rows = dialect.run(
        session,
        "SELECT i.relname, x.indisprimary, (SELECT array_agg(a.attname::text) FROM pg_attribute a "
        "WHERE a.attrelid = t.oid AND a.attnum = ANY(x.indkey)) FROM pg_index x "
        "JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid "
        "JOIN pg_namespace n ON n.oid = t.relnamespace "
        "WHERE n.nspname = %s AND t.relname = %s AND x.indisprimary",
        [work.place.schema, work.place.name],
    )
    for name, _, columns in rows:
        dialect.run(session, f"ALTER TABLE {target} DROP CONSTRAINT {quoted(name)}")
        for column in columns:
            dialect.run(session, f"ALTER TABLE {target} ALTER COLUMN {quoted(column)} DROP NOT NULL")


def _compute(dialect: Dialect, session: Session, spark: SparkSession, work: Evolution) -> None:
    """Adds the temporary columns, with their values."""
    if not work.computed:
        return
    target, quoted, values = dialect.target(work.place), dialect.quoted, []
    parameters: list[Any] = []
    for one in work.computed:
        kind = dialect.type_of(one.kind)
        dialect.run(session, f"ALTER TABLE {target} ADD COLUMN {quoted(one.temporary)} {kind}")
        if one.before is None:
            values.append(f"{quoted(one.temporary).replace('%', '%%')} = %s")
            parameters.append(default_value(spark, one))
        else:
            sql = dialect.converted(quoted(one.before), work.before.columns[one.before].dataType, one.kind)
            values.append(f"{quoted(one.temporary)} = {sql}".replace("%", "%%"))
    text = f"UPDATE {target.replace('%', '%%')} SET {', '.join(values)}"
    dialect.fill(session, text, parameters)


def default_value(spark: SparkSession, change: Change) -> Any:
    """The value of a new column's default, as the driver takes it."""
    value = constant(spark, change.default, change.kind)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(change.kind, (TimestampType, TimestampNTZType)) and isinstance(value, str):
        whole, _, fraction = value.partition(".")
        return f"{whole}.{fraction:0<6}"
    return value


def alter_once(
    dialect: MySql, session: Session, spark: SparkSession, work: Evolution, commit: Commit
) -> None:
    """Changes the target without a transaction. Does nothing if that was done for this commit."""
    mark = f"penstock {commit.epoch}/{commit.step}"
    if dialect.comment(session, work.place) == mark:
        return
    _refuse_taken(dialect, work)
    run, target, quoted = dialect.run, dialect.target(work.place), dialect.quoted
    left = [name for name in work.present if name.startswith(TEMPORARY)]
    if left:
        drops = ", ".join(f"DROP COLUMN {quoted(name)}" for name in left)
        run(session, f"ALTER TABLE {target} {drops}")
    _compute(dialect, session, spark, work)
    parts, keys = [], dialect.keys(session, work.place)
    left_key = work.before.key if work.key_changes else ()
    primary = work.record.key if "PRIMARY" in keys and not work.key_changes else ()
    if work.key_changes:
        parts += ["DROP PRIMARY KEY"] * ("PRIMARY" in keys) + ["DROP INDEX penstock_key"] * (
            "penstock_key" in keys
        )
    parts += [f"DROP COLUMN {quoted(name)}" for name in work.removed]
    for one in work.changed:
        kind = dialect.type_of(one.kind)
        if one in work.computed:
            parts.append(f"CHANGE COLUMN {quoted(one.temporary)} {quoted(one.name)} {kind} NULL")
        elif one.how == "add":
            parts.append(f"ADD COLUMN {quoted(one.name)} {kind} NULL")
        elif one.how == "widen" or one.before != one.name or one.before in left_key:
            assert one.before is not None
            same = work.present.get(one.before, kind) if one.how == "keep" else kind
            null = "NOT NULL" if one.name in primary else "NULL"
            parts.append(f"CHANGE COLUMN {quoted(one.before)} {quoted(one.name)} {same} {null}")
    if work.key_changes and work.record.key:
        types = {one.name: dialect.type_of(one.kind) if one.how != "keep" else work.present[str(one.before)]
                 for one in work.changed if one.name in work.record.key}  # fmt: skip
        parts.append(dialect.index_clause({name: types[name] for name in work.record.key}))
    run(session, f"ALTER TABLE {target} {', '.join([*parts, f'COMMENT = {chr(39)}{mark}{chr(39)}'])}")
