"""What clients have acknowledged, in ZooKeeper."""

from __future__ import annotations

import json

import pytest
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import Serving, eventually
from tests.serve.zookeeper.conftest import Group
from tests.serve.zookeeper.test_failover import ids_of, read


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zookeeper", "mixed", "period"])
def test_positions_have_the_form_of_canal(group: Group, kind: str) -> None:
    server = group.server(1, positions={"type": kind})
    server.start()
    client = group.connect(server)
    group.insert(1)
    assert read(client, 1) == [1]
    [(file, position, *_)] = group.source.query("SHOW MASTER STATUS")

    def stored() -> dict[str, object]:
        found: dict[str, object] = json.loads(group.nodes.get("1001/cursor"))["postion"]
        return found

    if kind == "zookeeper":
        assert stored()["position"] == position  # before the answer that the client has
    has = group.nodes.exists
    eventually(
        lambda: has("1001/cursor") and group.nodes.get("1001/cursor") and stored()["position"] == position,
        "position in ZooKeeper",
    )
    cursor = json.loads(group.nodes.get("1001/cursor"))
    assert cursor["@type"] == "com.alibaba.otter.canal.protocol.position.LogPosition"
    assert cursor["identity"] == {
        "slaveId": -1, "sourceAddress": {"address": group.source.host, "port": group.source.port}
    }  # fmt: skip
    assert stored()["journalName"] == file and stored()["included"] is False
    assert stored()["serverId"] == 1 and stored()["timestamp"] % 1000 == 0  # type: ignore[operator]
    group.insert(2)
    assert read(client, 1) == [2]
    assert server.stop() == 0  # in order: nothing that was acknowledged comes again
    [(_, position, *_)] = group.source.query("SHOW MASTER STATUS")
    assert stored()["position"] == position


@pytest.mark.slow
def test_a_filter_is_stored_and_a_client_that_unsubscribes_is_forgotten(group: Group) -> None:
    server = group.server(1)
    server.start()
    client = group.connect(server)
    assert group.nodes.exists("1001/cursor") and not group.nodes.exists("1001/filter")
    client.subscribe(r".*\.orders")
    assert group.nodes.get("1001/filter") == rb".*\.orders"
    client.unsubscribe()
    assert not group.nodes.exists("1001")


def refusal(group: Group, server: Serving, client_id: str) -> str:
    client = RawClient(server.address, destination=group.destination, client_id=client_id)
    with pytest.raises(Failed) as refused:
        client.subscribe()
    return str(refused.value)


def canal_cursor(file: str, position: int) -> bytes:
    """As Canal 1.1.7 writes it."""
    return json.dumps(
        {
            "@type": "com.alibaba.otter.canal.protocol.position.LogPosition",
            "identity": {"slaveId": -1, "sourceAddress": {"address": "localhost", "port": 3306}},
            "postion": {
                "gtid": "", "included": False, "journalName": file, "position": position, "serverId": 1,
                "timestamp": 1795647170000,
            },
        }
    ).encode()  # fmt: skip


def test_a_position_of_canal_is_that_of_an_event(group: Group) -> None:
    """At its last event a transaction is done; at another one, it comes again. Statements between are not
    passed."""
    group.execute(
        "BEGIN", "INSERT INTO orders VALUES (1, 'a')", "INSERT INTO orders VALUES (2, 'a')", "COMMIT"
    )
    group.execute("CREATE TABLE more (id INT)", "INSERT INTO orders VALUES (3, 'a')")
    events = group.source.query(f"SHOW BINLOG EVENTS IN '{group.file}'")
    begins = [row for row in events if row[2] == "Query" and row[5] == "BEGIN"][-2:]
    rows = [row for row in events if row[2] == "Write_rows"][-3:]
    ends = [row for row in events if row[2] == "Xid"][-2:]
    create = next(row for row in events if row[2] == "Query" and "CREATE TABLE" in row[5])
    expected = {
        int(begins[0][1]): [1, 2, "CREATE", 3], int(rows[1][1]): [1, 2, "CREATE", 3],
        int(ends[0][1]): ["CREATE", 3], int(ends[0][4]): ["CREATE", 3], int(create[1]): [3],
        int(begins[1][1]): [3], int(ends[1][1]): [],
    }  # fmt: skip
    for number, position in enumerate(expected):
        group.nodes.set(f"{number}/cursor", canal_cursor(group.file, position))
    server = group.server(1)
    server.start()
    for number, (position, wanted) in enumerate(expected.items()):
        client = group.connect(server, client_id=str(number))
        found: list[int | str] = []
        while (batch := client.get(100, 300))[0] != -1:
            for entry in batch[1]:
                found += ids_of([entry]) or (["CREATE"] if b"CREATE" in entry else [])
        assert found == wanted, (number, position)


@pytest.mark.slow
def test_a_client_whose_place_the_log_does_not_have_gets_an_error_that_says_so(group: Group) -> None:
    number, _, digits = group.file.rpartition(".")
    later = f"{number}.{int(digits) + 5:06}"
    server = group.server(1)
    server.start()
    group.wait_for(server)
    server.kill()
    cursors = {
        "1001": (canal_cursor("binlog.000001", 4), "begins behind"), "1002": (b"{}", "cannot be read"),
        "1003": (canal_cursor(later, 4), "not reached"),
    }  # fmt: skip
    for client_id, (cursor, _) in cursors.items():
        group.nodes.set(f"{client_id}/cursor", cursor)
    server.start()
    eventually(lambda: server.address in group.running(), "server", 30)
    for client_id, (_, message) in cursors.items():
        eventually(lambda: message in refusal(group, server, client_id), message, 30)  # noqa: B023
