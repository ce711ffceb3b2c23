"""A pipeline into brokers. The judge is the SELECT of the source, and a reader of the messages alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sinks.conformance.brokers import BROKERS

from penstock.testing import oracle, topics
from penstock.testing.scenario import Scenario
from penstock.testing.topics import Record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Make = Callable[..., Scenario]


@pytest.mark.parametrize("name", [one for one in BROKERS if one != "kafka"])  # which has scenarios of its own
def test_a_table_is_rebuilt_from_its_messages_over_kills(name: str, scenario: Make) -> None:
    broker = BROKERS[name]()
    try:
        case = scenario("streams", epoch={"interval": "50ms"})
        case.options["sink"] = broker.section()
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
            broker.kill9()
            broker.start()
            pipeline.start()
            case.server.execute("INSERT INTO t VALUES (4, 'c', 0)", "UPDATE t SET id = 5 WHERE id = 3")
            case.drain(pipeline)
        table = f"{case.database}.t"
        columns = {table: oracle.columns_of(case.server, table)}
        entries = enumerate(broker.entries(broker.section(), table))
        rebuilt = topics.rebuild([Record(table, 0, at, *one) for at, one in entries], columns)
        oracle.assert_same_rows(oracle.rows_of(case.server, table), rebuilt.rows[table])
        assert rebuilt.repeated == 0
    finally:
        broker.close()
