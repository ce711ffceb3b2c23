"""Rows with the columns that a changed definition gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.model.change import SEQUENCE
from penstock.sinks.documents import as_json, evolved, evolved_column, texts
from penstock.sinks.evolve import Change


def evolved_hash(
    rows: Sequence[Mapping[bytes, bytes]], changed: Sequence[Change], present: StructType, spark: SparkSession
) -> list[list[Any]]:
    """For each row the fields and values of its hash."""
    columns: dict[str, list[Any]] = {SEQUENCE: [row[SEQUENCE.encode()] for row in rows]}
    for one in changed:
        before = None if one.before is None else one.before.encode("utf-8", "surrogatepass")
        old = None if before is None else [row.get(before) for row in rows]
        if old is None or one.how == "convert":
            columns[one.name] = texts(evolved_column(one, old, present, spark, len(rows)))
        else:
            columns[one.name] = old
    return [
        [part for name, values in columns.items() if values[row] is not None for part in (name, values[row])]
        for row in range(len(rows))
    ]


def evolved_object(
    rows: Sequence[bytes], changed: Sequence[Change], present: StructType, spark: SparkSession
) -> list[list[Any]]:
    """For each row its JSON object."""
    held = [json.loads(row) for row in rows]
    return [[as_json(one)] for one in evolved(held, changed, present, spark)]
