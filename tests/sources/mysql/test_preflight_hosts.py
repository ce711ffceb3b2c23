"""What preflight says of the other servers that a snapshot concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.topology import pair, promote

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.sources.mysql import preflight
from penstock.sources.preflight import Finding, refuse
from penstock.testing.scenario import wait_for
from penstock.testing.servers import DatabaseServer, MySqlClient, MySqlServer


def config_of(
    server: MySqlClient, folder: Path, *, watermark_table: str | None = None, **snapshot: Any
) -> PipelineConfig:
    source = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        "watermark_table": watermark_table,
    }  # fmt: skip
    document = {"name": "x", "source": source, "state": str(folder / "state"), "tables": ["shop.*"]}
    return configuration.parse({**document, "sink": {"type": "console"}, "snapshot": snapshot})


def found(config: PipelineConfig, *checks: str) -> list[Finding]:
    return [one for one in preflight.check(config) if one.check in checks]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    with pair("mysql80", slave_parallel_workers=4, slave_preserve_commit_order="OFF") as both:
        primary, replica = both
        wait_for(lambda: replica.gtid_executed() == primary.gtid_executed(), "the replica")
        yield both


def address(server: MySqlClient) -> str:
    return f"{server.host}:{server.port}"


def test_hosts_are_refused_without_gtids_and_the_cure_is_told(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(gtid_mode="OFF", enforce_gtid_consistency="OFF")
    config = config_of(server, tmp_path, hosts=["127.0.0.1:1"], watermark_table="a.b")
    [finding] = found(config, "snapshot_hosts")
    assert finding.level == "error" and "gtid_mode = OFF" in finding.message
    assert "SET GLOBAL gtid_mode = ON" in finding.sql and "snapshot.hosts" in finding.message
    with pytest.raises(ConfigError, match=r"snapshot\.hosts"):
        refuse([finding])


@pytest.mark.slow
def test_hosts_are_refused_on_mariadb(tmp_path: Path) -> None:
    from penstock.testing import servers

    with servers.mariadb1011() as server:
        [finding] = found(config_of(server, tmp_path, hosts=["127.0.0.1:1"]), "snapshot_hosts")
        assert finding.level == "error" and "MariaDB" in finding.message


@pytest.mark.slow
def test_a_replica_is_fit_and_its_commit_order_is_no_matter(
    servers: tuple[DatabaseServer, DatabaseServer], tmp_path: Path
) -> None:
    primary, replica = servers
    lag = {"replica_lag_max": "5s", "replicas": [address(replica)]}
    config = config_of(primary, tmp_path, hosts=[address(replica)], load=lag)
    hosts, load = found(config, "snapshot_hosts", "snapshot_load", "errant_gtids", "read_only")
    assert hosts.level == load.level == "ok"
    assert "preserve_commit_order = OFF" in hosts.message


@pytest.mark.slow
def test_one_that_is_away_or_a_stranger_is_a_warning_that_says_what_happens(
    servers: tuple[DatabaseServer, DatabaseServer], mysql_server: MySqlServer, tmp_path: Path
) -> None:
    stranger = mysql_server
    stranger.execute("CREATE DATABASE IF NOT EXISTS stranger")
    lag = {"replica_lag_max": "5s", "replicas": ["127.0.0.1:1", address(stranger)]}
    config = config_of(servers[0], tmp_path, hosts=["127.0.0.1:1", address(stranger)], load=lag)
    away, other, lag_away, lag_other = found(config, "snapshot_hosts", "snapshot_load")
    assert {one.level for one in (away, other, lag_away, lag_other)} == {"warning"}
    assert "127.0.0.1:1" in away.message and "the snapshot waits" in away.message
    assert "replicates from no server" in other.message and "never pauses" in lag_other.message
    assert "is unknown, and the snapshot waits" in lag_away.message
    assert "GRANT" not in lag_away.message + lag_away.sql, "nobody has refused anything"


@pytest.mark.slow
def test_what_is_written_on_the_replica_itself_is_named(
    servers: tuple[DatabaseServer, DatabaseServer], tmp_path: Path
) -> None:
    primary, replica = servers
    replica.execute("SET GLOBAL read_only = OFF", "CREATE DATABASE errant")
    hosts, *notes = found(
        config_of(primary, tmp_path, hosts=[address(replica)]), "errant_gtids", "read_only", "snapshot_hosts"
    )
    by_check = {one.check: one for one in (hosts, *notes)}
    uuid = replica.query("SELECT @@server_uuid")[0][0]
    assert f"{uuid}:1" in by_check["errant_gtids"].message
    assert by_check["read_only"].level == "warning" and "read_only = ON" in by_check["read_only"].sql
    assert by_check["snapshot_hosts"].level == "ok"
    promote(replica)
    [unfit] = found(config_of(primary, tmp_path, hosts=[address(replica)]), "snapshot_hosts")
    assert unfit.level == "warning" and "replicates from no server" in unfit.message
