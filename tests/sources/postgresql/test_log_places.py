"""Places of one server's log in two relay logs, of two slots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.receiving import Receiving, changes_of

from penstock._core import transactions_of
from penstock.errors import ConfigError, LogPurged
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.relaylog.log_parts import parts_of
from penstock.serve.batches import Place
from penstock.serve.source_places import NotReached, of_place, to_place
from penstock.serve.start import offset_of, start_of
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLE = TableId("public", "placed")


def test_a_place_of_one_relay_log_is_found_in_another_one(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE public.placed (id int PRIMARY KEY)")
    connection.execute("CREATE TABLE public.others (id int)")
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
    both = [Receiving(server, tmp_path / name, name, publication="all") for name in ("east", "west")]
    with both[0].started():
        both[0].wait_until_streaming()
        connection.execute("INSERT INTO public.placed VALUES (0)")
        with both[1].started():
            both[1].wait_until_streaming()
            for number in range(1, 21):
                with connection.transaction():
                    connection.execute("INSERT INTO public.placed VALUES (%s)", (number,))
                    connection.execute("INSERT INTO public.others VALUES (%s)", (number,))
            both[1].wait_until_received(connection)
        both[0].wait_until_received(connection)
        connection.execute("INSERT INTO public.placed VALUES (21)")
        both[0].wait_until_received(connection)
    east, west = (one.log() for one in both)
    assert [row["id"] for row in changes_of(both[1], connection, TABLE)] == list(range(1, 21))
    begins, _ids, places, _ = transactions_of(
        parts_of(west, LogRange(west.start, west.end)), [], statements=False
    )
    assert len(begins) == 20, "one for each transaction"
    for begin, place in zip(begins, places, strict=True):
        there = of_place(west, Place(west.committed_before(Offset(begin)), 1))
        found = to_place(east, there)
        assert found.entries == 1
        follows = transactions_of(parts_of(east, LogRange(found.offset, east.end)), [], statements=False)
        assert follows[2][0] == place, "the next transaction is the same"
        assert to_place(west, replace(there, relay_log="another")).offset <= begin
        assert offset_of(east, start_of({"lsn": place})) == found.offset
    first = of_place(east, Place(east.start))
    with pytest.raises(LogPurged):
        to_place(west, first)
    with pytest.raises(NotReached):
        to_place(west, of_place(east, Place(east.end)))
    with pytest.raises(ConfigError, match="another server"):
        to_place(west, replace(of_place(east, Place(east.end)), server_uuid="7"))
    with pytest.raises(ConfigError, match="begins behind"):
        offset_of(west, start_of({"lsn": "0/1"}))
    with pytest.raises(ConfigError, match="ends at"):
        offset_of(west, start_of({"lsn": "FF/1"}))
    with pytest.raises(ConfigError, match="lsn"):
        start_of({"lsn": "here"})
