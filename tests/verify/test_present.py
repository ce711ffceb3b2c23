"""Targets without older versions are compared only while nothing is written to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import TableError
from penstock.model.buckets import RangeBuckets
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.relaylog import segment_format
from penstock.verify.check import Compared, TargetMoved
from penstock.verify.present import PresentTargets
from penstock.verify.subject import ComparedVersion

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", nullable=False), Column("n", "int")), ("id",))
COMPARED = Compared(SCHEMA, RangeBuckets("id", 100), None)
MARK = segment_format.position("binlog.000001", 90)


@dataclass
class Pipeline:
    """What a pipeline is asked. `epoch`: its newest."""

    epoch: int = 7
    asked: list[str] = field(default_factory=list)

    def hold(self, tables: Any) -> dict[TableId, TableSchema]:
        self.asked.append("hold")
        return dict.fromkeys(tables, SCHEMA)

    def cut(self, tables: Any, position: Any, *, stay: bool) -> Any:
        assert stay
        self.asked.append("cut")
        return Offset(90), {TABLE: ComparedVersion(None, 1)}, 7

    def stay(self) -> None:
        self.asked.append("stay")

    def release(self) -> None:
        self.asked.append("release")

    def is_unchanged(self, epoch: int) -> bool:
        return self.epoch == epoch


@dataclass
class Sink:
    """A target with two rows. `moves`: the pipeline that goes on while they are read."""

    isolated: bool = False
    moves: Pipeline | None = None
    refuses: bool = False
    scans: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def scan(self) -> Iterator[Sink]:
        self.scans.append("begun")
        yield self
        self.scans.append("ended")

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self.refuses:
            raise TableError("no", table=str(table))
        yield pa.RecordBatch.from_pydict({"id": [1, 250], "n": [5, None]}, fields)
        if self.moves is not None:
            self.moves.epoch += 1


def targets(sink: Sink, pipeline: Pipeline) -> PresentTargets:
    return PresentTargets(sink, pipeline)  # type: ignore[arg-type]


def test_a_pipeline_waits_until_the_comparison_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.verify.present.STAY_SECONDS", 0.01)
    sink, pipeline = Sink(), Pipeline()
    found = targets(sink, pipeline)
    found.hold([TABLE])
    found.versions_at([TABLE], MARK)
    while "stay" not in pipeline.asked:
        pass
    sums = found.sums([COMPARED], DEFAULT_TYPES)[TABLE]
    assert isinstance(sums, dict) and {number: one.rows for number, one in sums.items()} == {0: 1, 2: 1}
    rows = found.rows(SCHEMA, COMPARED.buckets, [2], None, DEFAULT_TYPES)
    assert [key for key, _ in rows] == ["250"]
    assert "release" not in pipeline.asked and sink.scans == ["begun"]
    found.close()
    assert pipeline.asked[-1] == "release" and sink.scans == ["begun", "ended"]
    found.close()
    assert pipeline.asked.count("release") == 1


def test_a_pipeline_goes_on_at_once_if_the_scan_does_not_see_what_it_writes() -> None:
    pipeline = Pipeline()
    sink = Sink(isolated=True, moves=pipeline)
    found = targets(sink, pipeline)
    found.versions_at([TABLE], MARK)
    assert pipeline.asked == ["cut", "release"]
    assert isinstance(found.sums([COMPARED], DEFAULT_TYPES)[TABLE], dict)
    found.hold([TABLE])
    assert sink.scans == ["begun", "ended"]


def test_what_was_read_while_the_pipeline_went_on_counts_for_nothing() -> None:
    pipeline = Pipeline()
    found = targets(Sink(moves=pipeline), pipeline)
    found.versions_at([TABLE], MARK)
    with pytest.raises(TargetMoved):
        found.sums([COMPARED], DEFAULT_TYPES)
    found.close()
    pipeline.epoch = 7
    found.versions_at([TABLE], MARK)
    with pytest.raises(TargetMoved):
        found.rows(SCHEMA, COMPARED.buckets, [2], None, DEFAULT_TYPES)
    found.close()


@pytest.mark.parametrize("isolated", [True, False])
def test_a_scan_that_began_too_late_counts_for_nothing(isolated: bool) -> None:
    pipeline = Pipeline(epoch=8)
    found = targets(Sink(isolated), pipeline)
    with pytest.raises(TargetMoved):
        found.versions_at([TABLE], MARK)
    found.close()
    assert pipeline.asked == ["cut", "release"]


def test_an_error_of_one_table_is_that_tables_result() -> None:
    found = targets(Sink(refuses=True), Pipeline())
    found.versions_at([TABLE], MARK)
    assert isinstance(found.sums([COMPARED], DEFAULT_TYPES)[TABLE], TableError)
    found.close()
