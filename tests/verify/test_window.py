"""The keys that the log touched between the marks of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from tests.sources.mysql.receiving import receiving

from penstock import config as configuration
from penstock.model.schema import TableId, TypeOptions
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.source import MySqlRowImages
from penstock.sources.mysql.verify.read_view import read_view
from penstock.testing.servers import MySqlServer
from penstock.verify.window import RelayLogWindow


@pytest.mark.parametrize(("zero_dates", "key"), [("text", "0000-00-00|5"), ("null", "~|5")])
def test_keys_are_written_as_in_the_targets(
    emptied_mysql: Callable[..., MySqlServer], tmp_path: Path, zero_dates: Literal["text", "null"], key: str
) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (day DATE, id INT, PRIMARY KEY (day, id))")
    with receiving(server, tmp_path, start="latest") as receiver, closing(server.connect()) as connection:
        receiver.wait_until_level()
        with read_view(connection) as view:
            server.execute("SET sql_mode = ''", "INSERT INTO d.t VALUES ('0000-00-00', 5)")
            receiver.wait_until_level()
            schema = read_table(connection, TableId("d", "t"))
            assert schema is not None
            window = RelayLogWindow(
                receiver.log,
                MySqlRowImages(lambda: options_of(configuration.load(receiver.file))),
                TypeOptions(zero_dates=zero_dates),
            )
            assert window.keys_touched(schema, view.window, receiver.log.end, 100) == {key}
