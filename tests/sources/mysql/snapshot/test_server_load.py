"""The rule of the load guard, and of which replicas chunks may be read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock._core import GtidSet
from penstock.config import SnapshotConfig, TablesConfig
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot import replicas
from penstock.sources.mysql.snapshot.host_selection import MySqlHosts
from penstock.sources.mysql.snapshot.replicas import ReplicaFacts, ReplicaOf, SourceFacts, Usable, decide
from penstock.sources.mysql.snapshot.server_load import Channel, too_busy, too_far
from penstock.sources.table_filter import TableFilter
from penstock.testing.servers import MySqlServer

P, R, X = (letter * 8 + "-1111-1111-1111-111111111111" for letter in "abc")
CAPTURED = TableFilter(TablesConfig(include=["shop.*", "crm.people"]))
CHANNEL = {"Replica_IO_Running": "Yes", "Replica_SQL_Running": "Yes", "Seconds_Behind_Source": 0}
REPLICA = ReplicaFacts(R, Dialect((8, 0, 36), False), True, GtidSet(f"{P}:1-90"), True, (CHANNEL,))
SOURCE = SourceFacts(P, GtidSet(f"{P}:1-100"), frozenset())


def test_a_server_is_too_busy_above_the_limit_only() -> None:
    assert too_busy("s:1", 20, 20) == "" and too_busy("s:1", 10_000, None) == ""
    assert "Threads_running = 21" in too_busy("s:1", 21, 20)


@pytest.mark.parametrize(
    ("channels", "why"),
    [
        ([], ""),  # it is no replica
        ([Channel("Yes", "Yes", 0)], ""),
        ([Channel("Yes", "Yes", 5)], ""),
        ([Channel("Yes", "Yes", 6)], "6 s behind"),
        ([Channel("Yes", "Yes", 1), Channel("Yes", "Yes", 60)], "60 s behind"),
        ([Channel("Yes", "No", None)], "does not run"),
        ([Channel("Connecting", "Yes", None)], "does not run"),
        ([Channel("Connecting", "Yes", 0)], "does not run"),  # the number is of what it has received
        ([Channel("No", "No", None)], "does not run"),
        ([Channel("Yes", "Yes", None)], "does not report"),
    ],
)
def test_a_replica_is_too_far_behind_when_it_lags_or_does_not_run(channels: list[Channel], why: str) -> None:
    found = too_far("r:1", channels, 5000)
    assert (why in found and "r:1" in found) if why else found == ""


def test_both_names_of_the_columns_are_known() -> None:
    old = {"Slave_IO_Running": "Yes", "Slave_SQL_Running": "No", "Seconds_Behind_Master": None}
    assert Channel.of(old) == Channel("Yes", "No", None)
    assert Channel.of({**CHANNEL, "Seconds_Behind_Source": 7}) == Channel("Yes", "Yes", 7)


def test_a_replica_of_the_same_history_is_fit_and_its_own_old_transactions_are_known() -> None:
    assert decide(REPLICA, SOURCE, CAPTURED) == Usable(ReplicaOf(P, ""))
    former = replace(REPLICA, executed=GtidSet(f"{P}:1-90,{R}:1-50"))
    source = replace(SOURCE, executed=GtidSet(f"{P}:1-100,{R}:1-40"))
    assert decide(former, source, CAPTURED) == Usable(ReplicaOf(P, f"{R}:1-40"))
    assert replicas.errant(former, source) == GtidSet(f"{R}:41-50")


def test_the_source_itself_is_read_as_such() -> None:
    assert decide(replace(REPLICA, uuid=P, channels=()), SOURCE, CAPTURED) == Usable(None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"channels": ()}, "replicates from no server"),
        ({"executed": GtidSet(f"{P}:1-101")}, f"lacks .{P}:101"),
        ({"executed": GtidSet(f"{P}:1-90,{X}:1")}, f"lacks .{X}:1"),
        ({"has_gtids": False}, "GTIDs"),
        ({"dialect": Dialect((10, 11, 6), True)}, "GTIDs"),
        ({"channels": ({**CHANNEL, "Replicate_Do_DB": "shop"},)}, "Replicate_Do_DB"),
        ({"channels": ({**CHANNEL, "Replicate_Ignore_Table": "mysql.x,shop.audit"},)}, "shop.audit"),
        ({"channels": ({**CHANNEL, "Replicate_Ignore_DB": "crm"},)}, "Replicate_Ignore_DB = crm"),
        ({"channels": ({**CHANNEL, "Replicate_Wild_Ignore_Table": "sh%.x"},)}, "Wild_Ignore"),
    ],
)
def test_what_replicates_something_else_is_unfit(changes: dict[str, Any], why: str) -> None:
    import re

    found = decide(replace(REPLICA, **changes), SOURCE, CAPTURED)
    assert isinstance(found, str) and re.search(why, found), found


@pytest.mark.parametrize("entry", ["mysql.rds_history,mysql.plugin", "crm.audit"])
def test_filters_for_tables_that_are_not_captured_do_no_harm(entry: str) -> None:
    channel = {**CHANNEL, "Replicate_Ignore_Table": entry}
    assert isinstance(decide(replace(REPLICA, channels=(channel,)), SOURCE, CAPTURED), Usable)


def test_a_server_that_the_source_replicates_from_or_one_far_behind_is_unfit() -> None:
    found = decide(REPLICA, replace(SOURCE, replicates_from=frozenset({R})), CAPTURED)
    assert found == "the source replicates from it"
    window = 512 * 1024**2
    far = decide(REPLICA, SOURCE, CAPTURED, behind_bytes=300 * 1024**2, window_bytes_max=window)
    assert isinstance(far, str) and "300 MiB" in far
    near = decide(REPLICA, SOURCE, CAPTURED, behind_bytes=window // 2, window_bytes_max=window)
    assert isinstance(near, Usable)


def selection(server: MySqlServer, **options: Any) -> MySqlHosts:
    source = MySqlOptions(host=server.host, port=server.port, user=server.user, password=server.password)
    config = SnapshotConfig.model_validate(options)
    return MySqlHosts(config, lambda: source, CAPTURED, lambda gtids: 0)


def test_what_cannot_be_told_counts_as_too_much(mysql_factory: Callable[..., MySqlServer]) -> None:
    server = mysql_factory()
    away = "127.0.0.1:1"
    one = selection(server, load={"replica_lag_max": "1s", "replicas": [away]})
    usable = one.look()
    assert not usable.hosts and usable.paused_by == "replica_lag" and away in usable.reason
    busy = selection(server, load={"threads_running_max": 1})
    [(running,)] = [row[1:] for row in server.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")]
    usable = busy.look()
    assert bool(usable.hosts) == (int(running) <= 1)
    assert selection(server, load={"threads_running_max": 1000}).look().hosts
    server.close()
    usable = busy.look()
    assert not usable.hosts and usable.paused_by == "threads_running"
    one.close()
    busy.close()


def test_the_source_is_never_read_in_place_of_hosts_that_are_away(
    mysql_factory: Callable[..., MySqlServer],
) -> None:
    server = mysql_factory()
    stranger = mysql_factory()
    stranger.execute("CREATE DATABASE other")
    hosts = ["127.0.0.1:1", f"127.0.0.1:{stranger.port}"]
    one = selection(server, hosts=hosts)
    usable = one.look()
    assert not usable.hosts and usable.paused_by == "hosts"
    assert all(host in usable.reason for host in hosts), usable.reason
    assert [item["host"] for item in one.hosts_to_json() if item["excluded_because"]] == hosts
    one.close()
