"""What a server may do to its targets while a pipeline runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conformance import with_servers

from penstock.errors import DriverReplaced, TableError, TransientError
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, Foreign, Ours
from penstock.sinks.opensearch import bulk
from penstock.sinks.opensearch.client import Client
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.rows import Newer, Rows
from penstock.testing import servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIELDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


class Place:
    def __init__(self, table: TableId, pipeline: str | None = None, url: str = "") -> None:
        self.table = table
        self.pipeline = pipeline or str(uuid.uuid4())
        url = url or with_servers.server("opensearch").url
        self.options = OpenSearchOptions(type="opensearch", url=url)
        self.client = Client(self.options)
        self.sink: Any = registry.open_sink(self.options, None, self.pipeline)  # type: ignore[arg-type]

    def create(self) -> None:
        columns = (Column("id", "bigint"), Column("v", "text"))
        self.sink.create(TableSchema(self.table, columns, ("id",)), FIELDS)

    def merge(self, epoch: int, *rows: tuple[int, str | None, bool]) -> bool:
        columns = list(zip(*rows, strict=True))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(columns[0], pa.int64()),
                pa.array(columns[1], pa.string()),
                pa.array(columns[2], pa.bool_()),
                pa.array([epoch * 10] * len(rows), pa.int64()),
            ],
            ["id", "v", DELETED, SEQUENCE],
        )

        def frame() -> Any:
            raise AssertionError("few rows need no Spark")

        made = Rows(frame, Newer(lambda: iter([batch])))
        return bool(self.sink.merge(self.table, made, ("id",), Commit(self.pipeline, epoch)))

    def rows(self) -> dict[str, str]:
        name = self.options.alias(self.table)
        self.client.ask("POST", f"/{name}/_refresh")
        found = self.client.ask("GET", f"/{name}/_search?size=1000")["hits"]["hits"]
        return {hit["_id"]: hit["_source"].get("v") for hit in found}

    def writer(self) -> str:
        record = self.sink._records.find(self.options.alias(self.table))
        assert record is not None
        return str(record.writer)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place(TableId(f"s{uuid.uuid4().hex[:8]}", "orders"))
    made.create()
    yield made
    made.sink.close()


def test_a_driver_that_was_replaced_is_refused_also_in_what_it_had_begun(place: Place) -> None:
    place.merge(1, (1, "a", False))
    writer = place.writer()
    other = Place(place.table, place.pipeline)
    other.sink.begin(2)
    other.sink.fence(place.table)
    with pytest.raises(DriverReplaced):
        place.merge(2, (2, "b", False))
    late = bulk.put("3", 30, {"v": "late"})
    with pytest.raises(bulk.Gone):
        place.sink._bulk.send(place.table, writer, [late])
    assert other.merge(2, (1, None, True)) and other.rows() == {}


def test_a_write_that_comes_after_a_deletion_or_a_truncate_changes_nothing(place: Place) -> None:
    place.merge(1, (1, "a", False), (2, "b", False))
    writer, late = place.writer(), [bulk.put("1", 11, {"v": "late"})]
    place.merge(2, (1, None, True))
    place.sink._bulk.send(place.table, writer, late)
    assert place.rows() == {"2": "b"}
    place.sink.truncate(place.table, Commit(place.pipeline, 3), sequence=25)
    with pytest.raises(bulk.Gone):
        place.sink._bulk.send(place.table, writer, late)
    assert place.rows() == {}


def test_an_index_that_somebody_made_anew_is_refused(place: Place) -> None:
    place.merge(1, (1, "a", False))
    assert isinstance(place.sink.open(place.table), Ours)
    backing = place.writer().rpartition("~g")[0]
    alias = place.options.alias(place.table)
    place.client.ask("DELETE", f"/{backing}")
    place.client.ask("PUT", f"/{backing}", {"aliases": {alias: {}}})
    found = place.sink.open(place.table)
    assert isinstance(found, Foreign) and "restored" in found.reason
    with pytest.raises(TableError, match="has lost"):
        place.merge(2, (2, "b", False))


def test_an_index_that_takes_no_writes_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "ATTEMPTS_MAX", 2)
    backing = place.writer().rpartition("~g")[0]
    block = "index.blocks.read_only_allow_delete"
    place.client.ask("PUT", f"/{backing}/_settings", {block: True})
    with pytest.raises(TransientError, match="takes no writes"):
        place.merge(1, (1, "a", False))
    place.client.ask("PUT", f"/{backing}/_settings", {block: None})
    assert place.merge(1, (1, "a", False)) and place.rows() == {"1": "a"}


def test_requests_that_are_too_large_are_divided_and_a_row_that_is_stops_its_table() -> None:
    with servers.opensearch({"http.max_content_length": "1mb"}) as server:
        place = Place(TableId("shop", "orders"), url=server.url)
        place.create()
        place.merge(1, *[(number, "a" * 200_000, False) for number in range(20)])
        assert len(place.rows()) == 20
        with pytest.raises(TableError, match="larger than the server takes") as refused:
            place.merge(2, (21, "secret" * 500_000, False))
        assert "secret" not in str(refused.value)
        server.kill9()
        server.start()
        assert len(place.rows()) == 20 and place.merge(2, (0, None, True)) and len(place.rows()) == 19
        place.sink.close()


def test_operations_that_a_busy_server_refuses_are_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Client.bulk
    refusals = iter([{0, 2}, {1}])

    def busy(self: Client, index: str, lines: bytes, *, alias: bool) -> Any:
        refused = next(refusals, set[int]())
        operations = lines.split(b"\n")[:-1]
        kept = [n for n in range(len(operations) // 2) if n not in refused]
        rest = b"".join(b"%s\n" % operations[2 * n + part] for n in kept for part in (0, 1))
        done = iter(whole(self, index, rest, alias=alias))
        kind = {"type": "rejected_execution_exception"}
        return [
            {"status": 429, "error": kind} if n in refused else next(done)
            for n in range(len(operations) // 2)
        ]

    monkeypatch.setattr(Client, "bulk", busy)
    assert place.merge(1, (1, "a", False), (2, "b", False), (3, "c", False))
    assert place.rows() == {"1": "a", "2": "b", "3": "c"}
