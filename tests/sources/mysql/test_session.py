"""The session that asks the source for definitions and for the end of its log."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.relaylog.segment import STATUS_FILE
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.testing.servers import Database


def test_the_host_that_is_followed_is_asked_even_if_the_one_before_answers(
    mysql: Database, tmp_path: Path
) -> None:
    def follow(host: str) -> None:
        (tmp_path / STATUS_FILE).write_text(json.dumps({"source": {"host": host, "port": mysql.port}}))

    options = MySqlOptions(
        host="127.0.0.1", port=mysql.port, user=mysql.user, password=mysql.password,
        failover=[f"localhost:{mysql.port}"],
    )  # fmt: skip
    session = SourceSession(options, tmp_path)
    hosts, described = [], list[object]()
    for host in ("127.0.0.1", "localhost", "localhost", "127.0.0.1"):
        follow(host)
        session.end_position()
        described.append(session.traits)
        hosts.append((session._connection.host, session._connection.thread_id()))
    session.close()
    assert [host for host, _ in hosts] == ["127.0.0.1", "localhost", "localhost", "127.0.0.1"]
    assert hosts[1] == hosts[2], "the connection is kept otherwise"
    assert described[1] is described[2] and described[0] is not described[1], "it may be another release"
