"""Tables that the server cannot open are named and parked, and stop no other table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from tests.sources.mysql.test_preflight import config_for

from penstock.commands.doctor import with_parked
from penstock.config import TablesConfig
from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sources.mysql import preflight
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer

FORMS = {
    "union": "(id INT PRIMARY KEY, UNIQUE (id)) ENGINE=MERGE UNION=(d.base)",
    "crashed": "(v INT NOT NULL, id INT NOT NULL, UNIQUE z (id), UNIQUE a (v)) ENGINE=MyISAM",
    "space": "(id INT PRIMARY KEY)",
    "parted": "(id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
    "damaged": "(id INT PRIMARY KEY) ENGINE=MyISAM",
    "remote": "(id INT PRIMARY KEY) ENGINE=FEDERATED CONNECTION='mysql://nobody@127.0.0.1:1/d/t'",
}


def broken(server: DatabaseServer) -> set[str]:
    """Makes tables that the server cannot open, beside two sound ones. Returns their names."""
    forms = {
        name: form for name, form in FORMS.items() if "FEDERATED" not in form or "federated" in server.options
    }
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.base (id INT PRIMARY KEY, UNIQUE (id)) ENGINE=MyISAM",
        *(f"CREATE TABLE d.{name} {form}" for name, form in forms.items()),
        "INSERT INTO d.crashed VALUES (1, 1)",
        "INSERT INTO d.parted VALUES (1), (2), (3)",
        "CREATE TABLE d.ok (id INT PRIMARY KEY)",
        "INSERT INTO d.ok VALUES (1), (2)",
        "CREATE TABLE d.zz (id INT PRIMARY KEY)",
        "CREATE TABLE d.gone (id INT)",
        "CREATE VIEW d.based AS SELECT * FROM d.gone",
        "CREATE DEFINER=nobody@localhost VIEW d.defined AS SELECT * FROM d.ok",
        "DROP TABLE d.gone, d.base",
    )
    server.stop()
    folder = server.datadir / "d"
    with open(folder / "crashed.MYI", "r+b") as index:
        index.truncate(100)
    (folder / "space.ibd").unlink()
    next(folder.glob("parted#*1.ibd")).unlink()
    definition = folder / "damaged.frm"
    if definition.exists():  # not on 8.0
        definition.write_bytes(b"junk")
    server.start()
    found = set()
    for name in forms:
        try:
            server.query(f"SELECT * FROM d.{name}")
        except Exception:
            found.add(name)
    assert found >= {"union", "crashed", "space", "parted"}, found
    return found


@pytest.fixture(
    scope="module",
    params=[
        "mariadb1011",
        pytest.param("mysql57", marks=pytest.mark.slow),
        pytest.param("mysql80", marks=pytest.mark.slow),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[DatabaseServer, set[str]]]:
    options = {} if request.param.startswith("mariadb") else {"federated": "ON"}
    options |= {"gtid_mode": "ON", "enforce_gtid_consistency": "ON"} if request.param == "mysql57" else {}
    with servers.FLAVORS[request.param](options=options) as one:
        yield one, broken(one)


def session_of(server: DatabaseServer) -> SourceSession:
    source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return SourceSession(MySqlOptions(**source))


def test_a_broken_table_is_parked_and_no_other_one(server: tuple[DatabaseServer, set[str]]) -> None:
    one, names = server
    session = session_of(one)
    try:
        captured = TableFilter(TablesConfig(include=["*.*"]), fold_case=False)
        schemas = session.read_tables(captured)
        assert {str(table) for table in schemas} >= {
            f"d.{name}" for name in names - {"damaged"} | {"ok", "zz"}
        }
        found = session.unfollowable(schemas, cascades=True, reads=True)
        # MySQL opens a table with a partition that is missing, and fails when that is read.
        assert {table.table for table in found} == (names & {table.table for table in schemas}) - late(one)
        for table, (reason, hint) in found.items():
            assert str(table) in reason and hint, (reason, hint)
        if "damaged" not in names:
            assert "REPAIR TABLE `d`.`crashed`" in found[TableId("d", "crashed")][1]
        assert not session.unfollowable(
            [table for table in schemas if table.table in ("ok", "zz")], cascades=True, reads=True
        )
    finally:
        session.close()


def late(server: DatabaseServer) -> set[str]:
    """Broken tables that open."""
    found = set()
    for name in FORMS:
        try:
            server.query(f"SELECT 1 FROM (SELECT * FROM d.{name} LIMIT 0) AS t")
            found.add(name)
        except Exception:
            continue
    return found


def test_the_rows_of_a_broken_table_are_an_error_of_that_table(
    server: tuple[DatabaseServer, set[str]],
) -> None:
    one, names = server
    session = session_of(one)
    try:
        executed = one.gtid_executed()
        for name in sorted(names - {"damaged"}):
            schema = session.read_table(TableId("d", name))
            assert schema is not None
            if schema.key and name not in late(one):
                with pytest.raises(TableError, match=f"d.{name}"):
                    list(session.find(schema, 100, executed, sized=lambda rows: None))
    finally:
        session.close()


def test_doctor_names_every_broken_table(server: tuple[DatabaseServer, set[str]], tmp_path: Path) -> None:
    one, names = server
    findings = preflight.check(config_for(one, tmp_path, tables=["*.*"]))
    assert not [finding for finding in findings if "could not be checked" in finding.message]
    assert {finding.subject for finding in findings if finding.check == "broken"} == {
        f"d.{name}" for name in names - late(one)
    }
    assert not [finding for finding in findings if finding.level == "error"]
    assert with_parked(findings, {}, {}) == findings


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_pipeline_over_all_tables_starts_and_copies_the_sound_ones(
    server: tuple[DatabaseServer, set[str]], tmp_path: Path
) -> None:
    one, names = server
    source = {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
    document = {
        "name": "x", "source": source, "tables": ["*.*"], "state": str(tmp_path / "state"),
        "sink": {"type": "parquet", "path": str(tmp_path / "out")}, "spark": {"master": "local[1]"},
    }  # fmt: skip
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    _command("run", file, "--once")
    states = _parked(tmp_path)
    assert states["ok"] is None and states["zz"] is None
    assert {name for name, parked in states.items() if parked is not None} == names & states.keys()
    assert states.keys() >= names - {"damaged"}
    assert _rows(tmp_path, "ok") == [1, 2]
    one.query("REPAIR TABLE d.crashed USE_FRM")
    assert one.query("SELECT id FROM d.crashed") == [(1,)]
    _command("unpark", file, "d.crashed")
    _command("run", file, "--once")
    assert _parked(tmp_path)["crashed"] is None
    assert _rows(tmp_path, "crashed") == [1]


def _command(name: str, file: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", name, str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 4), done.stderr[-3000:]
    return done.stdout + done.stderr


def _parked(folder: Path) -> dict[str, object]:
    with closing(StateStore(folder / "state", read_only=True)) as store:
        return {table.table: state.parked for table, state in store.tables().items()}


def _rows(folder: Path, table: str) -> list[int]:
    files = sorted((folder / "out").rglob("*.parquet"))
    frames = [pq.read_table(path, partitioning=None) for path in files if table in path.parts]
    return sorted({row for frame in frames for row in frame["id"].to_pylist() if row is not None})
