"""A pipeline into streams of Valkey. The judge is the SELECT of the source, and a reader of streams alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from penstock.testing import oracle, servers, topics
from penstock.testing.scenario import Scenario
from penstock.testing.topics import Record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Make = Callable[..., Scenario]


def test_a_table_is_rebuilt_from_its_stream_over_kills(scenario: Make) -> None:
    with servers.valkey() as server:
        case = scenario("streams", epoch={"interval": "50ms"})
        case.options["sink"] = {
            "type": "redis-streams", "url": server.url, "password": server.password, "format": "json",
        }  # fmt: skip
        case.write_file()
        case.server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), d DECIMAL(9,2))",
            "INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, NULL), (3, 'ä', -2)",
        )
        with case.running() as pipeline:
            case.drain(pipeline)
            case.server.execute("UPDATE t SET v = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2")
            pipeline.kill("driver")
            pipeline.wait(seconds=60)
            server.kill9()
            server.start()
            pipeline.start()
            case.server.execute("INSERT INTO t VALUES (4, 'c', 0)", "UPDATE t SET id = 5 WHERE id = 3")
            case.drain(pipeline)
        name = f"{case.database}.t"
        columns = {name: oracle.columns_of(case.server, name)}
        with redis.Redis(host=server.host, port=server.port, password=server.password) as client:
            found = [
                Record(name, 0, at, fields.get(b"key"), fields.get(b"value"))
                for at, (_, fields) in enumerate(client.xrange(name))
            ]
        rebuilt = topics.rebuild(found, columns)
        oracle.assert_same_rows(oracle.rows_of(case.server, name), rebuilt.rows[name])
        assert rebuilt.repeated == 0
