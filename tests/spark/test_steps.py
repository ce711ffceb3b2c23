"""All ways to make the rows of a step give the same rows. The server's SELECT is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sources.mysql.receiving import receiving

from penstock.config import EpochConfig
from penstock.epochs import strategy
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.epochs.strategy import SharesOfRange, ShuffleByKey
from penstock.model.offset import LogRange
from penstock.model.plan import ApplyEvents
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.relaylog.outline import Outlines
from penstock.sources.mysql.catalog import read_table
from penstock.spark.steps import StepRows, ahead
from penstock.state import StateStore
from penstock.testing.servers import DatabaseServer, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Any = None


def write(server: DatabaseServer) -> None:
    """Rows that are changed again and again, also in other parts of the log, get new keys, and are gone. One
    of their columns has the name of one of Penstock's, until `transforms` renames it."""
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (name VARCHAR(20), n INT, _sequence TEXT, PRIMARY KEY (name, n))",
    )
    for round_ in range(6):
        server.execute(
            *[f"REPLACE INTO d.t VALUES ('key {n % 3}', {n}, REPEAT('{round_}', 300))" for n in range(40)],
            f"UPDATE d.t SET n = n + 1000 WHERE n % 7 = {round_} AND n < 1000",
            f"DELETE FROM d.t WHERE n % 11 = {round_}",
        )


def batches(count: int, made: list[int]) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        made.append(number)
        yield pa.RecordBatch.from_pydict({"n": [number]})


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_batches_that_are_made_ahead_are_all_there_in_their_order(count: int) -> None:
    found = [batch.column(0)[0].as_py() for batch in ahead(batches(count, []))]
    assert found == list(range(count))


def test_no_more_batches_are_made_ahead_than_may_wait() -> None:
    made: list[int] = []
    several = ahead(batches(100, made))
    next(several)
    several.close()
    assert len(made) <= 3


def test_an_error_while_batches_are_made_ahead_reaches_the_caller() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(3, [])
        raise ValueError("decoding")

    several = ahead(failing())
    assert [next(several).num_rows for _ in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError, match="decoding"):
        next(several)


@pytest.mark.parametrize("fetched", [False, True])
def test_parts_of_the_log_and_shares_of_keys_leave_the_rows_of_the_server(
    fetched: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy, "SHARE_BYTES", 10_000)
    table = TableId("d", "t")
    with MySqlServer() as server, receiving(server, tmp_path, span_size="4KiB") as receiver:
        write(server)
        receiver.wait_until_level()
        with server.connect() as connection:
            schema = read_table(connection, table)
        assert schema is not None
        log = receiver.log
        reach = LogRange(log.start, log.end)
        splits, size = tuple(log.splits(reach, table, bytes_aim=15_000)), log.tables(reach)[table][1]
        step = ApplyEvents(splits, "merge", size, newer=True)
        with closing(StateStore(tmp_path / "state")) as state:
            rows = StepRows(
                spark, state, IncompleteImages(NOTHING, DEFAULT_TYPES, everywhere=False), NOTHING,
                types=DEFAULT_TYPES, before_images=True, driver_bytes_max=EpochConfig().driver_bytes_max,
                fetched=fetched,
            )  # fmt: skip
            rows._cores = 6
            way = strategy.for_events(
                step, partial_images=False, cores=6, driver_bytes_max=0, fetched=fetched
            )
            assert isinstance(way, ShuffleByKey if fetched else SharesOfRange) and way.tasks == 6
            assert len(splits) > 4
            found = rows.events(schema, step, Outlines({})).frame.collect()
        keys = [(row["name"], row["n"]) for row in found]
        assert len(keys) == len(set(keys)), "one row per key"
        left = [(row["name"], row["n"], row["_sequence"]) for row in found if not row["_penstock_deleted"]]
        assert sorted(left) == sorted(server.query("SELECT name, n, _sequence FROM d.t"))
