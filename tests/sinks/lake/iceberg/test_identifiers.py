"""Identifier fields follow the key. Iceberg's own schema judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place, column
from tests.sinks.lake.iceberg.test_small_commit import few, iceberg, summary, target
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.sinks.base import EvolvedColumn
from penstock.sinks.lake.iceberg.small_commit import SMALL

Make = Callable[..., Place]

ARROW = pa.schema([("id", pa.int64()), ("region", pa.string()), ("n", pa.int32())])


def identifiers(it: Place) -> set[str]:
    return set(iceberg(it)._classes.identifiers(target(it)))


def required(it: Place) -> list[str]:
    return [field.name for field in it.sink.columns(it.table) if not field.nullable]


def key(name: str, kind: pa.DataType, before: str | None) -> EvolvedColumn:
    return replace(column(name, kind, before), key=True)


@pytest.mark.parametrize("entry", [None, {"partition_by": "bucket(2, id)"}])
def test_a_new_target_has_those_of_the_key_and_takes_every_write(place: Make, entry: Any) -> None:
    config = {"tables": [{"match": "*.*", **entry}] if entry else []}
    it = place("iceberg", arrow=ARROW, key=("id", "region"), config=config).create()
    assert identifiers(it) == {"id", "region"} and required(it) == ["id", "region"]
    it.sink.append(it.table, it.latest((1, "a", None, False, 1)), it.commit(1))
    assert it.sink.merge(it.table, few(it, (1, "a", 2, False, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true"
    it.sink.merge(it.table, newer(it, (1, "b", 3, False, 3), (1, "a", None, True, 3)), it.key, it.commit(3))
    assert by_files(it)
    it.sink.merge(it.table, it.latest((2, "c", None, False, 4)), it.key, it.commit(4))
    it.sink.compact(it.table)
    assert it.rows() == [(1, "b", 3, 3), (2, "c", None, 4)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_a_key_that_may_be_null_or_is_inexact_has_none(place: Make, kind: pa.DataType) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int64()), ("at", kind)]), key=("id", "at")).create()
    assert identifiers(it) == set() and required(it) == []


def test_they_follow_renamed_widened_and_other_keys(place: Make) -> None:
    arrow = pa.schema([("id", pa.int32()), ("region", pa.string()), ("n", pa.int32())])
    it = place("iceberg", arrow=arrow).create()
    it.sink.append(it.table, it.latest((1, "a", None, False, 1)), it.commit(1))
    region, n = column("region", pa.string(), "region"), column("n", pa.int32(), "n")
    it.evolve(2, key("number", pa.int64(), "id"), region, n)
    assert identifiers(it) == {"number"} and required(it) == ["number"]
    number = key("number", pa.int64(), "number")
    it.evolve(3, number, key("region", pa.string(), "region"), n)
    assert identifiers(it) == {"number", "region"}, "no row has NULL in region"
    it.evolve(4, key("region", pa.string(), "number"), column("number", pa.string(), "region"), n)
    assert identifiers(it) == set(), "the names are swapped, and the key's values are converted"
    assert required(it) == []
    it.sink.merge(it.table, it.latest((None, None, None, False, 9)), ("number",), it.commit(5))


def test_a_key_with_nulls_in_the_rows_that_are_there_has_none(place: Make) -> None:
    it = place("iceberg", arrow=ARROW).create()
    it.sink.append(it.table, it.latest((1, None, None, False, 1)), it.commit(1))
    it.evolve(2, column("id", pa.int64(), "id"), key("region", pa.string(), "region"))
    assert identifiers(it) == set() and required(it) == []
    assert it.rows() == [(1, None, 1)]


def test_a_dropped_or_converted_key_column_leaves_none(place: Make) -> None:
    it = place("iceberg", arrow=ARROW, key=("id", "region")).create()
    it.sink.append(it.table, it.latest((1, "7", None, False, 1)), it.commit(1))
    it.evolve(2, key("region", pa.int32(), "region"), column("n", pa.int32(), "n"))
    assert identifiers(it) == set() and required(it) == []
    assert it.rows() == [(7, None, 1)]
