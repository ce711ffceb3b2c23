from __future__ import annotations

import pytest

from penstock.testing import servers

VERSIONS = {
    servers.MySql57Server: "5.7.",
    servers.MySqlServer: "8.0.",
    servers.MySql97Server: "9.7.",
    servers.MariaDb1011Server: "10.11.",
    servers.MariaDb118Server: "11.8.",
}


def test_each_flavor_is_the_release_it_says_and_logs_rows(flavor: servers.DatabaseServer) -> None:
    version = str(flavor.variable("version"))
    assert version.startswith(VERSIONS[type(flavor)])
    assert ("MariaDB" in version) == isinstance(flavor, servers.MariaDbServer)
    assert (flavor.variable("binlog_format"), flavor.variable("binlog_row_image")) == ("ROW", "FULL")


def test_each_flavor_restarts_with_other_options_and_keeps_its_rows(flavor: servers.DatabaseServer) -> None:
    with type(flavor)({"binlog_checksum": "NONE"}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.execute("INSERT INTO d.t VALUES (1)")
        before = server.gtid_executed()
        server.restart({"binlog_checksum": "CRC32"})
        assert server.variable("binlog_checksum") == "CRC32"
        assert server.query("SELECT id FROM d.t") == [(1,)]
        assert server.gtid_executed() == before != ""


def test_a_database_of_its_own_on_each_flavor(flavor_database: servers.Database) -> None:
    flavor_database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)")
    assert flavor_database.query("SELECT id FROM t") == [(7,)]


def test_no_name_of_the_matrix_stands_for_two_servers() -> None:
    classes = list(servers.FLAVORS.values())
    assert len(set(classes)) == len(classes) == len({one.release for one in classes})
    with pytest.raises(KeyError):
        servers.FLAVORS["oracle"]
