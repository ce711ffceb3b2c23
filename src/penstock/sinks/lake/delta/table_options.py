"""The section `sink.tables` of the sink `delta`: how new targets are laid out. Pure."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from penstock.sinks.names import OWN_COLUMNS
from penstock.sinks.table_entries import Property, TableEntry, Texts

CLUSTER_COLUMNS_MAX = 4
"""Delta's own limit."""


class DeltaShape(TableEntry):
    """How new targets are laid out whose source tables match. For a table, the first entry that matches
    counts. Targets that exist stay as they are."""

    partition_by: Texts = ()
    """Columns of which each combination of values gets files of its own: whole numbers, dates and booleans.
    Delta has no transforms, and stores an empty text in such a column as NULL."""
    cluster_by: Texts = ()
    """Columns by whose values OPTIMIZE puts rows together (liquid clustering), up to four. Not together with
    `partition_by`."""
    properties: dict[str, Property] = Field(default_factory=dict)
    """Table properties, such as `delta.deletedFileRetentionDuration`. Those that Penstock itself sets cannot
    be set."""

    @field_validator("partition_by", "cluster_by")
    @classmethod
    def _is_columns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name.lower() in OWN_COLUMNS:
                raise ValueError(
                    f"`{name}` is a column that Penstock itself writes; choose one of the source's"
                )
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("a column is named twice")
        return value

    @field_validator("properties")
    @classmethod
    def _are_not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if (
                name.startswith(("penstock.", "delta.columnMapping."))
                or name == "delta.enableDeletionVectors"
            ):
                raise ValueError(f"{name} is set by Penstock itself; leave it out")
            if name == "delta.appendOnly" and value[name].lower() == "true":
                raise ValueError(f"with {name}, the table would refuse updates and deletes; leave it out")
            if name == "delta.setTransactionRetentionDuration":
                raise ValueError(f"with {name}, the table would forget what was committed; leave it out")
        return value

    @model_validator(mode="after")
    def _has_one_layout(self) -> Self:
        if self.partition_by and self.cluster_by:
            raise ValueError("give `partition_by` or `cluster_by`, not both")
        if len(self.cluster_by) > CLUSTER_COLUMNS_MAX:
            raise ValueError(f"`cluster_by` takes at most {CLUSTER_COLUMNS_MAX} columns")
        return self
