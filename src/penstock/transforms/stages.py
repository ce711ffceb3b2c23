"""The stages into which a table's rules are compiled, and the columns that come out of them.

A rule is up to two stages. Spark evaluates the SQL of a rule in one SELECT (`SqlStage`): it adds columns with
the results, whose names begin with `RESULT`. An `ArrowStage` then takes over these results, and does
everything else. Both keep the columns that Penstock adds to rows. If a column of the table has the name of
one of these, Penstock's has another one until a rule has renamed that column (`model/change.py`).

**Rows that the target shall not have.** In the layout `latest`, a row that does not fulfil `where` is marked
as deleted, whether or not the target has a row of its key: deleting is idempotent, and the row's
`_sequence` decides as for any change. It keeps only its key. So is a row that was deleted at the source: no
expression sees it. In the layout `changelog`, an update is a pair of rows. If only the row before it fulfils
the condition, a `delete` of that row is left of the pair. If only the row after it does, it is an `insert`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, DELETED, PREFIX, own_columns, own_name, public
from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule, named, renamed
from penstock.printable import argument
from penstock.secret import Secret
from penstock.transforms.columns import hashed, masked, tokenized

RESULT = PREFIX + "result_"
"""Prefix of the columns with results of SQL. Those of targets cannot have it (`sinks/names.py`)."""
MATCHES = RESULT + "where"

OF_THE_KEY = "which is part of the key. Changes find their rows by it"

BEFORE, AFTER = "update_preimage", "update_postimage"


class RowFailed(TableError):
    """A row could not be transformed. Its values are not in the message."""


@dataclass(frozen=True)
class SqlStage:
    """Expressions of Spark SQL over a row, by the name of the column that gets the result."""

    table: TableId
    expressions: dict[str, str]


@dataclass(frozen=True)
class ArrowStage:
    """One rule, without its SQL. `key`: names of the key's columns before it. Pickles."""

    table: TableId
    rule: TransformRule
    key: tuple[str, ...]
    secret: Secret = field(default_factory=Secret)

    @property
    def key_after(self) -> tuple[str, ...]:
        """Names of the key's columns after it."""
        return tuple(renamed(self.rule.rename, name) for name in self.key)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one task, in order."""
        held: pa.RecordBatch | None = None
        derived: dict[pa.Schema, pa.Schema] = {}
        for batch in batches:
            whole = batch if held is None else pa.concat_batches([held, batch])
            held, whole = last_before(whole)
            if whole.schema not in derived:
                derived[whole.schema] = self.columns(whole.schema)
            if whole.num_rows:
                yield self._batch(whole, derived[whole.schema])
        if held is not None:
            yield self._batch(held, derived.get(held.schema) or self.columns(held.schema))

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the result for rows with the columns of `schema`. Raises `TableError` if the rule
        cannot be applied to them."""
        body = self._body(_empty(schema))
        names = [one.name for one in body.schema]
        if len({name.lower() for name in names}) < len(names):
            raise self._unfit(f"makes two columns of one name: {', '.join(names)}")
        own = [one.with_name(_shown(one.name, names)) for one in schema if one.name in _own(schema)]
        taken = {one.name for one in own}
        for name in names:
            if name.lower() in taken or name.lower().startswith(PREFIX):
                raise self._unfit(f"makes a column `{name}`. Only Penstock makes columns with this name")
        for name in self.key_after:
            if name not in names:
                raise self._unfit(f"leaves out `{name}`, {OF_THE_KEY}")
        fields = [one.with_nullable(True) for one in body.schema]
        return pa.schema([*fields, *own])

    def _batch(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        if MATCHES in batch.schema.names and _kind(batch.schema) is not None:
            batch = _matching_changes(batch)
        if DELETED not in batch.schema.names:
            return self._finish(batch, schema)
        gone = batch.column(DELETED)
        if MATCHES in batch.schema.names:
            gone = pc.or_(gone, pc.invert(pc.fill_null(batch.column(MATCHES), False)))
        if not pc.any(gone).as_py():
            return self._finish(batch, schema)
        live = self._finish(batch.filter(pc.invert(gone)), schema)
        return pa.concat_batches([live, self._without_values(batch.filter(gone), schema)])

    def _without_values(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Rows that the target shall not have: their keys, and what Penstock adds."""
        keys = dict(zip(self.key_after, self.key, strict=True))
        sources = keys | _sources(batch.schema, schema)
        arrays = []
        for one in schema:
            if one.name == DELETED:
                arrays.append(pa.repeat(True, batch.num_rows))
            elif one.name in sources:
                arrays.append(batch.column(sources[one.name]).cast(one.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, one.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _finish(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        body = self._body(batch)
        own = _sources(batch.schema, schema)
        arrays = []
        for one in schema:
            column = batch.column(own[one.name]) if one.name in own else body.column(one.name)
            try:
                arrays.append(column if column.type == one.type else column.cast(one.type))
            except pa.ArrowException as error:
                raise self._failed(type(error).__name__) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # one rule over the source's columns -----------------------------------------------------------------

    def _body(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = _with_results(batch)
        columns = self._chosen(columns)
        columns = self._hidden(columns)
        columns = self._renamed(columns)
        found = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        if self.rule.python is None:
            return found
        return self._by_python(found)

    def _chosen(self, columns: dict[str, Any]) -> dict[str, Any]:
        rule = self.rule
        if rule.select is not None:
            return {name: columns[name] for name in (self._name(columns, one) for one in rule.select)}
        left_out = {self._name(columns, one) for one in rule.exclude}
        return {name: array for name, array in columns.items() if name not in left_out}

    def _hidden(self, columns: dict[str, Any]) -> dict[str, Any]:
        rule = self.rule
        found = dict(columns)
        for one in (*rule.mask, *rule.hash, *rule.tokenize):
            name = self._name(columns, one)
            if name in self.key:
                raise self._unfit(f"changes `{name}`, {OF_THE_KEY}")
            try:
                if one in rule.mask:
                    found[name] = masked(columns[name], rule.mask[one])
                else:
                    change = hashed if one in rule.hash else tokenized
                    found[name] = change(columns[name], self.secret.reveal().encode())
            except ValueError as error:
                raise self._unfit(f"cannot change `{name}`: {error}") from error
        return found

    def _renamed(self, columns: dict[str, Any]) -> dict[str, Any]:
        for one in self.rule.rename:
            self._name(columns, one)
        return {renamed(self.rule.rename, name): array for name, array in columns.items()}

    def _by_python(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self.rule.python is not None
        module, _, name = self.rule.python.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise self._unfit(f"names the function {self.rule.python}, which cannot be imported") from error
        try:
            found = function(batch)
        except Exception as error:
            raise self._failed(f"{self.rule.python} raised {type(error).__name__}") from error
        if not isinstance(found, pa.RecordBatch) or found.num_rows != batch.num_rows:
            raise self._unfit(f"names {self.rule.python}, which must return a RecordBatch with as many rows")
        for one in self.key_after:
            if one in found.schema.names and not found.column(one).equals(batch.column(one)):
                raise self._unfit(f"names {self.rule.python}, which must not change `{one}`, part of the key")
        return found

    def _name(self, columns: Iterable[str], wanted: str) -> str:
        found = named(columns, wanted)
        if found is None:
            raise self._unfit(f"names the column `{wanted}`, which the table does not have")
        return found

    def _unfit(self, what: str) -> TableError:
        return unfit(self.table, what)

    def _failed(self, what: str) -> RowFailed:
        return failed(self.table, what)


Stage = SqlStage | ArrowStage


def stages_of(
    table: TableId,
    rules: Sequence[TransformRule],
    key: tuple[str, ...],
    secret: Secret,
    quoted: Callable[[str], str],
) -> tuple[Stage, ...]:
    """The stages of the rules that match a table with this key. `quoted`: quotes a name in Spark SQL."""
    found: list[Stage] = []
    for rule in rules:
        if rule.uses_sql:
            found.append(SqlStage(table, _expressions(table, rule, key, quoted)))
        stage = ArrowStage(table, rule, key, secret if rule.keyed else Secret())
        found.append(stage)
        key = stage.key_after
    return tuple(found)


def _expressions(
    table: TableId, rule: TransformRule, key: tuple[str, ...], quoted: Callable[[str], str]
) -> dict[str, str]:
    computed = {name: f"({text})" for name, text in rule.columns.items()}
    for name, kind in rule.cast.items():
        value = computed.get(name, quoted(name))
        computed[name] = f"CAST({value} AS {kind})"
    for name in computed:
        if name.lower() in [one.lower() for one in key]:
            raise unfit(table, f"changes `{name}`, {OF_THE_KEY}")
    found = {RESULT + "c_" + name: text for name, text in computed.items()}
    return found if rule.where is None else {**found, MATCHES: f"({rule.where})"}


def _own(schema: pa.Schema) -> frozenset[str]:
    """The columns that Penstock adds, without results of SQL."""
    return frozenset(name for name in own_columns(schema.names) if not name.startswith(RESULT))


def _shown(name: str, names: Sequence[str]) -> str:
    """The name of one of Penstock's columns beside the columns `names` of a result."""
    return name if public(name) in [one.lower() for one in names] else public(name)


def _sources(before: pa.Schema, after: pa.Schema) -> dict[str, str]:
    """For each of Penstock's columns in a result, its name in the rows."""
    return {name if name in after.names else public(name): name for name in _own(before)}


def _kind(schema: pa.Schema) -> str | None:
    """The column with kinds of changes. None: the rows have none."""
    name = own_name(CHANGE_TYPE, schema.names)
    return name if name in _own(schema) else None


def _with_results(batch: pa.RecordBatch) -> dict[str, Any]:
    """The source's columns, and those that SQL has computed: in the place of a column of the same name, or
    else at the end."""
    own = own_columns(batch.schema.names)
    columns = {name: batch.column(name) for name in batch.schema.names if name not in own}
    for result in batch.schema.names:
        if result.startswith(RESULT + "c_"):
            name = result.removeprefix(RESULT + "c_")
            columns[named(columns, name) or name] = batch.column(result)
    return columns


def _matching_changes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a change log that fulfil the condition: see the module's docstring."""
    name = own_name(CHANGE_TYPE, batch.schema.names)
    kinds = batch.column(name).to_pylist()
    matches = pc.fill_null(batch.column(MATCHES), False).to_pylist()
    found = list(kinds)
    for place in range(len(kinds) - 1):
        if kinds[place] == BEFORE and kinds[place + 1] == AFTER:
            if not matches[place + 1]:
                found[place] = "delete"
            elif not matches[place]:
                found[place + 1] = "insert"
    changed = batch.set_column(batch.schema.get_field_index(name), name, pa.array(found, pa.string()))
    return changed.filter(pa.array(matches, pa.bool_()))


def last_before(batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
    """Splits off a last row whose pair is in the next batch."""
    last, kind = batch.num_rows - 1, _kind(batch.schema)
    if kind is None or last < 0 or batch.column(kind)[last].as_py() != BEFORE:
        return None, batch
    return batch.slice(last), batch.slice(0, last)


def parts_of(batch: pa.RecordBatch, rows: int) -> list[tuple[int, int]]:
    """Start and length of parts with about so many rows, which separate no update from the row before it."""
    kinds = [] if (name := _kind(batch.schema)) is None else batch.column(name).to_pylist()
    found, start = [], 0
    while start < batch.num_rows:
        end = min(start + rows, batch.num_rows)
        if kinds and kinds[end - 1] == BEFORE:
            end = min(end + 1, batch.num_rows)
        found.append((start, end - start))
        start = end
    return found


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def unfit(table: TableId, what: str) -> TableError:
    """The error for a rule that cannot be applied to a table."""
    return TableError(
        f"A rule of `transforms` for {table} {what}.",
        hint=f"Correct the rule or the table, then run `penstock unpark FILE {argument(table)}`.",
        table=str(table),
    )


def failed(table: TableId, what: str) -> RowFailed:
    """The error for a row that cannot be transformed. `what`: without values."""
    return RowFailed(
        f"A row of {table} could not be transformed: {what}.",
        hint="Correct the rule or the row and run `penstock unpark FILE "
        f"{argument(table)}`, or set `on_error: dead_letter` in the rule.",
        table=str(table),
        row_failed=True,
    )
