"""Transforms: what a pipeline does to rows on their way from a source table to its target."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from penstock.model.name import split_name
from penstock.model.pattern import TablePattern, overlap
from penstock.model.schema import TableId
from penstock.model.section import Section

OnError = Literal["park", "dead_letter"]


class MaskPart(Section):
    """Shows a part of a text. The other characters are replaced."""

    keep_first: int = Field(0, ge=0)
    """So many characters at the beginning stay."""
    keep_last: int = Field(0, ge=0)
    """So many characters at the end stay. A text that is not longer than what stays is replaced whole."""
    character: str = Field("*", min_length=1, max_length=1)
    """Replaces each other character."""


Mask = str | int | float | bool | None | MaskPart
HIDDEN = "***"


def _as_names(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_masks(value: Any) -> Any:
    names = _as_names(value)
    return dict.fromkeys(names, HIDDEN) if isinstance(names, list | tuple) else value


_Written = str | tuple[str, ...]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_names, json_schema_input_type=_Written)]
Masks = Annotated[
    dict[str, Mask], BeforeValidator(_as_masks, json_schema_input_type=_Written | dict[str, Mask])
]


class TransformRule(Section):
    """One entry of `transforms`: what is done to the rows of the captured tables that match `tables`. Rules
    that match a table are applied in their order. Within a rule the order is that of the options here."""

    tables: str | tuple[str, ...]
    """Patterns as in `tables`, spelled as the server spells the names."""
    where: str | None = None
    """A condition in Spark SQL over the row's columns. The target has only rows for which it is true: a row
    that does not fulfil it any more is deleted, one that fulfils it now is inserted."""
    columns: dict[str, str] = Field({})
    """New columns, or new values of existing ones: an expression in Spark SQL for each."""
    select: Names | None = None
    """The columns that the target gets, in this order. New columns of the source are then left out. None:
    all."""
    exclude: Names = ()
    """Columns that the target does not get."""
    cast: dict[str, str] = Field({})
    """Another type for a column, written as in Spark SQL: `bigint`, `decimal(12,2)`, `string`, `date`."""
    mask: Masks = Field({})
    """Replaces a column's values: by a constant (null: NULL), or by `{keep_last: 4}`, `{keep_first: 1}`.
    NULL stays NULL. A list of columns means `***` in texts and NULL in other types."""
    hash: Names = ()
    """Columns whose values become their HMAC-SHA256 with `transform_key`, in 64 hexadecimal digits. Equal
    values become equal texts, in all tables."""
    tokenize: Names = ()
    """The same in a short form: `tok_` and 26 letters and digits (128 bits)."""
    rename: dict[str, str] = Field({})
    """New names of columns."""
    python: str | None = Field(None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """A function `module:function`. It gets a `pyarrow.RecordBatch` of rows with the columns so far, and
    returns one with as many rows. Its columns are found by calling it with an empty batch. It must be
    deterministic."""
    to: str | None = None
    """Another name for the target: `{database}` and `{table}` are those of the source."""
    on_error: OnError = "park"
    """What happens if a row cannot be transformed. `park`: the table is parked. `dead_letter`: the row is
    listed in `dead_letters` of the state directory, the target has no row of its key, and the table
    continues."""

    @model_validator(mode="after")
    def _makes_sense(self) -> TransformRule:
        if not self.patterns:
            raise ValueError("`tables` names no table")
        for pattern in self.patterns:
            if not all(part.text for part in split_name(pattern)):
                raise ValueError(f"{pattern!r} in `tables` names no database; write it as database.table")
        once = [*self.mask, *self.hash, *self.tokenize]
        if twice := next((name for name in once if once.count(name) > 1), None):
            raise ValueError(f"`{twice}` is in more than one of `mask`, `hash` and `tokenize`")
        if self.select is not None and self.exclude:
            raise ValueError("give `select` or `exclude`, not both")
        if self.to is not None and not all(part.text for part in split_name(self.to)):
            raise ValueError(
                f"`to` is {self.to!r}; write it as database.table, with {{database}} or {{table}}"
            )
        return self

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.tables,) if isinstance(self.tables, str) else self.tables

    @cached_property
    def _compiled(self) -> list[TablePattern]:
        return [TablePattern.of(pattern) for pattern in self.patterns]

    def __contains__(self, table: TableId) -> bool:
        return any(pattern.matches(table) for pattern in self._compiled)

    @property
    def uses_sql(self) -> bool:
        """Whether Spark has to evaluate something."""
        return self.where is not None or bool(self.columns or self.cast)

    @property
    def keyed(self) -> bool:
        """Whether it needs `transform_key`."""
        return bool(self.hash or self.tokenize)

    @property
    def hides(self) -> bool:
        """Whether the target lacks values of the source, or may lack them."""
        changes = self.columns or self.cast or self.mask or self.hash or self.tokenize or self.exclude
        return bool(changes) or any(one is not None for one in (self.where, self.select, self.python))

    @property
    def needs_whole_rows(self) -> bool:
        """Whether its results depend on more than one column."""
        return self.uses_sql or self.python is not None


class Transforms:
    """The rules of a pipeline, by table."""

    def __init__(self, rules: Iterable[TransformRule] = ()) -> None:
        self.rules = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of(self, table: TableId) -> tuple[TransformRule, ...]:
        """The rules that match the table, in order."""
        return tuple(rule for rule in self.rules if table in rule)

    def target(self, table: TableId) -> TableId:
        """The name for the table's target: that of the last rule that gives one."""
        named = [rule.to for rule in self.of(table) if rule.to is not None]
        if not named:
            return table
        database, name = split_name(named[-1])

        def filled(text: str) -> str:
            # Not `format`: names may have braces. Not two replacements: a name may be `{table}`.
            parts = text.split("{database}")
            return table.database.join(part.replace("{table}", table.table) for part in parts)

        return TableId(filled(database.text), filled(name.text))

    def columns(self, table: TableId, names: Sequence[str]) -> list[str] | None:
        """The columns of the table's target, if `names` are the table's. None: a function decides that."""
        found = list(names)
        for rule in self.of(table):
            if rule.python is not None:
                return None
            found += [name for name in rule.columns if named(found, name) is None]
            if rule.select is not None:
                found = [one for name in rule.select if (one := named(found, name)) is not None]
            left_out = {named(found, name) for name in rule.exclude}
            found = [renamed(rule.rename, name) for name in found if name not in left_out]
        return found

    def digest(self, table: TableId) -> str:
        """Identifies what is done to a table's rows. Empty: nothing. `on_error` does not count."""
        rules = [rule.model_dump_json(exclude={"tables", "on_error"}) for rule in self.of(table)]
        return hashlib.sha256("\n".join(rules).encode()).hexdigest()[:32] if rules else ""


def contradiction(rules: Sequence[TransformRule], include: Sequence[str], *, has_key: bool) -> str | None:
    """Why the rules cannot be followed, for tables that match the patterns `include`. None: they can."""
    for rule in rules:
        for pattern in rule.patterns:
            if not any(overlap(pattern, captured) for captured in include):
                return f"no table that `tables` captures can match `{pattern}`"
        if rule.keyed and not has_key:
            return (
                "`hash` and `tokenize` need `transform_key`, a secret of at least 16 characters, for example "
                "transform_key: ${TRANSFORM_KEY}"
            )
    return None


def named(names: Iterable[str], wanted: str) -> str | None:
    """The name that a rule means: the same, or the only one that differs in letter case. None: there is
    none."""
    known = list(names)
    if wanted in known:
        return wanted
    alike = [name for name in known if name.lower() == wanted.lower()]
    return alike[0] if len(alike) == 1 else None


def renamed(rename: Mapping[str, str], name: str) -> str:
    """A column's name after `rename`."""
    return next((new for old, new in rename.items() if old.lower() == name.lower()), name)
