"""Staging: rows and manifest appear whole, once, and are checked when they are read."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import _core
from penstock.errors import TableError, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog import segment_format
from penstock.snapshot import staging
from penstock.sources.chunks import ReadResult
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.host_selection import MySqlHost
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.snapshot.window import MySqlWindow, MySqlWindows
from penstock.testing import preload
from penstock.testing.preload import Preloaded
from penstock.testing.scenario import wait_for
from penstock.testing.servers import Database, MySqlClient

SCHEMA = TableSchema(TableId("d", "t"), (Column("k", "int", False),), ("k",), version=3)
CHUNK = Chunk(SCHEMA.table, 7, ("1",), None)
MARKS = ReadResult(MySqlWindow("", BinlogPosition("binlog.000001", 4)).watermarks, "uuid", 3)


class ScriptedReader:
    """Yields given values; fails after them if told to."""

    def __init__(
        self, values: list[int], *, fails: bool = False, gate: threading.Barrier | None = None
    ) -> None:
        self._values, self._fails, self._gate = values, fails, gate

    def require(self, executed: str) -> None:
        pass

    def read(self, schema: TableSchema, chunk: Chunk) -> ScriptedReader:
        return self

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        arrow = _core.arrow_schema(SCHEMA.to_json(), "rows")
        yield pa.RecordBatch.from_pydict({"k": self._values}, schema=arrow)
        if self._gate is not None:
            self._gate.wait()
        if self._fails:
            raise TransientError("the source went away")

    @property
    def result(self) -> ReadResult:
        return MARKS

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass


def values_of(chunk: StagedChunk) -> list[int]:
    return [value for batch in staging.open_chunk(chunk) for value in batch.column(0).to_pylist()]


def source_of(server: MySqlClient) -> MySqlOptions:
    return MySqlOptions(host=server.host, port=server.port, user=server.user, password=server.password)


def test_a_staged_chunk_comes_back_with_its_manifest_and_rows(tmp_path: Path) -> None:
    staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, tmp_path)
    assert staging.staged(tmp_path) == [staged]
    assert staging.find(tmp_path, CHUNK) == staged
    assert (staged.chunk, staged.rows, staged.schema_version) == (CHUNK, 3, 3)
    assert values_of(staged) == [1, 2, 3]


def test_a_second_attempt_returns_the_first(tmp_path: Path) -> None:
    first = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, tmp_path)
    second = staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, tmp_path)
    assert second == first
    assert values_of(second) == [1]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_of_many_attempts_at_once_all_return_the_same_one(tmp_path: Path) -> None:
    gate = threading.Barrier(8)
    found: list[StagedChunk] = []

    def attempt(value: int) -> None:
        found.append(staging.stage(ScriptedReader([value], gate=gate), SCHEMA, CHUNK, tmp_path))

    threads = [threading.Thread(target=attempt, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TransientError):
        staging.stage(ScriptedReader([1], fails=True), SCHEMA, CHUNK, tmp_path)
    assert list(tmp_path.glob("*/*")) == []
    assert staging.find(tmp_path, CHUNK) is None


def test_a_chunk_of_another_plan_is_another_chunk_whatever_its_number(tmp_path: Path) -> None:
    staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, tmp_path)
    other = replace(CHUNK, upper=("9",))
    assert staging.find(tmp_path, other) is None
    assert values_of(staging.stage(ScriptedReader([2]), SCHEMA, other, tmp_path)) == [2]


STAGES = """
import sys
from pathlib import Path
from tests.snapshot.test_staging import CHUNK, SCHEMA, ScriptedReader
from penstock.disk.directory import make
from penstock.disk.replace import sync
from penstock.snapshot import staging
chunks = Path(sys.argv[1]) / "chunks"
make(chunks, "state")
sync(chunks.parent)
staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, chunks / "1757229")
print(staged.path)
"""


@pytest.mark.skipif(bool(preload.missing()), reason=preload.missing())
def test_a_staged_chunk_survives_a_loss_of_power_with_the_directories_above_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with Preloaded(tmp_path / "preloaded") as preloaded:
        environment = {**os.environ, **preloaded.environment(roots=[state])}
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, sys.path), str(Path(__file__).parents[2])])
        done = subprocess.run(
            [sys.executable, "-c", STAGES, str(state)], env=environment, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        preloaded.lose_power(random.Random(1), "strict")
    (found,) = staging.staged(state / "chunks" / "1757229")
    assert found.path == done.stdout.strip()
    assert values_of(found) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_rows_are_never_handed_out(tmp_path: Path, damage: str) -> None:
    staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, tmp_path)
    path = Path(staged.path)
    data = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    with pytest.raises(staging.ChunkCorrupt, match=r"chunk 7 of d\.t"):
        list(staging.open_chunk(staged))


def test_a_discarded_chunk_can_be_staged_again_and_the_later_attempt_stays(tmp_path: Path) -> None:
    first = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, tmp_path)
    staging.discard(first)
    assert staging.staged(tmp_path) == []
    second = staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, tmp_path)
    staging.discard(first)
    assert staging.staged(tmp_path) == [second]
    assert values_of(second) == [2]


def test_sweep_removes_what_died_and_keeps_what_counts(tmp_path: Path) -> None:
    staged = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, tmp_path)
    folder = Path(staged.path).parent
    for name in ("00000001-0-dead.parquet", "00000001-0-dead.tmp", "00000001-0-dead.manifest.tmp"):
        (folder / name).write_bytes(b"x")
    assert staging.sweep(tmp_path) == 3
    assert values_of(staged) == [1]


def test_every_table_name_has_a_safe_directory_of_its_own(tmp_path: Path) -> None:
    names = [
        TableId("a", "b"), TableId("A", "b"), TableId("a", "B"), TableId("a.b", "c"), TableId("a", "b.c"),
        TableId("..", ".."), TableId("a/b", "c"), TableId("a", "../../x"), TableId("😀" * 64, "ü" * 64),
        TableId("😀" * 64, "ü" * 63 + "x"), TableId("con", "~"), TableId("a%2Fb", "c"),
    ]  # fmt: skip
    folders = {staging.table_directory(tmp_path, name) for name in names}
    assert len({str(folder).lower() for folder in folders}) == len(names)
    for folder in folders:
        assert folder.parent == tmp_path
        folder.mkdir()


def test_a_chunk_of_a_real_table_is_read_and_staged(mysql: Database, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')"
    )
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, "t"))
    assert schema is not None
    chunk = Chunk(schema.table, 0, None, ("3",))
    start = mysql.gtid_executed()
    staged = staging.stage_chunk(MySqlHost(source_of(mysql)), schema, chunk, str(tmp_path), executed=start)
    assert [row for batch in staging.open_chunk(staged) for row in batch.to_pylist()] == [
        {"k": 1, "v": "a"},
        {"k": 2, "v": None},
    ]
    window = MySqlWindows().of(staged.watermarks)
    assert _core.GtidSet(start).issubset(_core.GtidSet(window.low))
    file, position = mysql.position()
    assert window.end.order <= segment_format.position(file, position).order
    assert staged.server_uuid == mysql.variable("server_uuid")


def test_a_chunk_leaves_no_connection_behind(mysql: Database, tmp_path: Path) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, "t"))
    assert schema is not None
    # One connection is all that the account may have, so one that was left behind would refuse the next.
    account = f"one{mysql.name[-8:]}@127.0.0.1"
    mysql.execute(
        f"CREATE USER {account} IDENTIFIED BY 'p' WITH MAX_USER_CONNECTIONS 1",
        f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {account}",
    )
    source = MySqlOptions(host=mysql.host, port=mysql.port, user=account.partition("@")[0], password="p")
    bounds = [None, ("2",), ("3",), None]
    for number in range(3):
        chunk = Chunk(schema.table, number, bounds[number], bounds[number + 1])
        staged = staging.stage_chunk(MySqlHost(source), schema, chunk, str(tmp_path), executed="")
        assert staged.rows == 1 and staged.bytes_read > 0
        wait_for(lambda: not sessions_of(mysql, account), "the server to forget the connection")
    mysql.execute(f"DROP USER {account}")


def test_chunks_staged_one_after_the_other_share_a_connection(mysql: Database, tmp_path: Path) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    mysql.execute("CREATE TABLE u (name VARCHAR(9) PRIMARY KEY)", "INSERT INTO u VALUES ('a'), ('b')")
    account = f"few{mysql.name[-8:]}@127.0.0.1"
    mysql.execute(
        f"CREATE USER {account} IDENTIFIED BY 'p' WITH MAX_CONNECTIONS_PER_HOUR 1",
        f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {account}",
    )
    source = MySqlOptions(host=mysql.host, port=mysql.port, user=account.partition("@")[0], password="p")
    rows = {}
    with staging.Stager(MySqlHost(source)) as stager:
        for name in ("t", "u", "t"):
            with mysql.connect() as connection:
                schema = read_table(connection, TableId(mysql.name, name))
            assert schema is not None
            chunk = Chunk(schema.table, 0, None, None)
            staged = stager.stage(schema, chunk, str(tmp_path), executed=mysql.gtid_executed())
            rows[name] = staged.rows
    assert rows == {"t": 3, "u": 2}
    assert not sessions_of(mysql, account), "the server has let go of it"
    assert schema is not None
    with pytest.raises(TransientError), staging.Stager(MySqlHost(source)) as stager:
        stager.stage(schema, replace(chunk, upper=("2",)), str(tmp_path), executed="")
    mysql.execute(f"DROP USER {account}")


def sessions_of(mysql: Database, account: str) -> list[tuple[object, ...]]:
    user = account.partition("@")[0]
    return mysql.query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s", (user,))


def test_no_chunk_is_read_before_the_server_has_executed_the_table_start(mysql: Database) -> None:
    reader = MySqlChunkReader(mysql.connect())
    reader.require(mysql.gtid_executed())
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET('00000000-0000-0000-0000-000000000001:1', 0.01)")
    from penstock.sources.mysql.snapshot import watermark

    with pytest.raises(TransientError, match="has not executed"), mysql.connect() as connection:
        watermark.ensure_executed(connection, "00000000-0000-0000-0000-000000000001:1", timeout_s=1)
    reader.close()


def test_a_missing_grant_names_the_table_and_the_grant(mysql: Database, tmp_path: Path) -> None:
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY)", "DROP USER IF EXISTS poor@127.0.0.1",
        "CREATE USER poor@127.0.0.1 IDENTIFIED BY 'p'", "GRANT REPLICATION CLIENT ON *.* TO poor@127.0.0.1",
    )  # fmt: skip
    schema = TableSchema(TableId(mysql.name, "t"), (Column("k", "int", False),), ("k",))
    poor = MySqlOptions(host=mysql.host, port=mysql.port, user="poor", password="p")
    with pytest.raises(TableError, match="GRANT SELECT ON") as caught:
        staging.stage_chunk(
            MySqlHost(poor), schema, Chunk(schema.table, 0, None, None), str(tmp_path), executed=""
        )
    assert caught.value.details["table"] == f"{mysql.name}.t"
