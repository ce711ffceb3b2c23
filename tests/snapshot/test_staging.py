"""Staging: rows and manifest appear whole, once, and are checked when they are read."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import _core
from penstock.backoff import Schedule
from penstock.errors import ChunkCorrupt, TableError, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog import segment_format
from penstock.snapshot.staging import Stager, Staging, snapshot_of, stage_chunk, table_folder
from penstock.sources.chunks import ReadResult
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.snapshot.host_selection import MySqlHost
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.snapshot.window import MySqlWindow, MySqlWindows
from penstock.store.base import Store
from penstock.store.credentials import GivenKeys, Keys, KeysFromEnvironment
from penstock.store.location import is_key
from penstock.store.opening import open_store
from penstock.store.options import Retries, StoreOptions
from penstock.testing import preload
from penstock.testing.faulty_proxy import Fault, FaultyProxy, Request
from penstock.testing.preload import Preloaded
from penstock.testing.scenario import wait_for
from penstock.testing.servers import Database, MySqlClient
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Server

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


def values_of(staging: Staging, chunk: StagedChunk) -> list[int]:
    return [value for batch in staging.open_chunk(chunk) for value in batch.column(0).to_pylist()]


def source_of(server: MySqlClient) -> MySqlOptions:
    return MySqlOptions(host=server.host, port=server.port, user=server.user, password=server.password)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with Moto() as server:
        server.make_bucket("lake")
        yield server


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A directory, and an S3 server whose requests can fail (`faulty`)."""
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return s3_store(server.url)


def s3_store(endpoint: str, place: str = "") -> Store:
    options = StoreOptions(
        GivenKeys(Keys(KEY_ID, SECRET)), endpoint,
        retries=Retries(Schedule(first_s=0.01, max_s=0.1), seconds_max=20, attempts_max=3),
        request_seconds_max=5,
    )  # fmt: skip
    return open_store(f"s3://lake/{place or uuid.uuid4().hex}", options)


@pytest.fixture
def staging(store: Store) -> Staging:
    return Staging(store)


def keys(staging: Staging) -> list[str]:
    return [found.key for found in staging.store.objects()]


def test_a_staged_chunk_comes_back_with_its_manifest_and_rows(staging: Staging) -> None:
    staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, "12")
    assert staging.staged() == staging.staged("12") == [staged]
    assert staging.find("12", CHUNK) == staged
    assert staging.find("13", CHUNK) is None
    assert (staged.chunk, staged.rows, staged.schema_version) == (CHUNK, 3, 3)
    assert staged.bytes == staging.store.stat(staged.path).size
    assert values_of(staging, staged) == [1, 2, 3]
    assert staging.snapshots() == {snapshot_of(staged)} == {"12"}


def test_a_second_attempt_returns_the_first(staging: Staging) -> None:
    first = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    second = staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, "12")
    assert second == first
    assert values_of(staging, second) == [1]
    assert len(keys(staging)) == 2


def test_of_many_attempts_at_once_all_return_the_same_one(tmp_path: Path) -> None:
    staging = Staging(open_store(tmp_path.as_uri()))
    gate = threading.Barrier(8)
    found: list[StagedChunk] = []

    def attempt(value: int) -> None:
        found.append(staging.stage(ScriptedReader([value], gate=gate), SCHEMA, CHUNK, "12"))

    threads = [threading.Thread(target=attempt, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert len(keys(staging)) == 2


def test_an_attempt_that_is_overtaken_returns_the_other_one_and_leaves_nothing(staging: Staging) -> None:
    overtaking: list[StagedChunk] = []

    class Slow(ScriptedReader):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield from super().__iter__()
            overtaking.append(staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, "12"))

    assert staging.stage(Slow([1]), SCHEMA, CHUNK, "12") == overtaking[0]
    assert values_of(staging, overtaking[0]) == [2]
    assert len(keys(staging)) == 2


def test_an_attempt_that_fails_leaves_nothing(staging: Staging) -> None:
    with pytest.raises(TransientError):
        staging.stage(ScriptedReader([1], fails=True), SCHEMA, CHUNK, "12")
    assert keys(staging) == []
    assert staging.find("12", CHUNK) is None


def test_a_chunk_of_another_plan_is_another_chunk_whatever_its_number(staging: Staging) -> None:
    staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    other = replace(CHUNK, upper=("9",))
    assert staging.find("12", other) is None
    assert values_of(staging, staging.stage(ScriptedReader([2]), SCHEMA, other, "12")) == [2]


STAGES = """
import sys
from pathlib import Path
from tests.snapshot.test_staging import CHUNK, SCHEMA, ScriptedReader
from penstock.disk.directory import make
from penstock.disk.replace import sync
from penstock.snapshot.staging import Staging
from penstock.store.opening import open_store
state = Path(sys.argv[1])
make(state / "staging", "state")
staged = Staging(open_store((state / "staging").as_uri())).stage(
    ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, "1757229")
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
    staging = Staging(open_store((state / "staging").as_uri()))
    (found,) = staging.staged()
    assert found.path == done.stdout.strip()
    assert values_of(staging, found) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_rows_are_never_handed_out(staging: Staging, damage: str) -> None:
    staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, "12")
    data = bytearray(staging.store.get(staged.path).data)
    if damage == "remove":
        staging.store.delete(staged.path)
    else:
        data[len(data) // 2] ^= 1
        staging.store.put(staged.path, data if damage == "flip" else data[: len(data) // 2])
    with pytest.raises(ChunkCorrupt, match=r"chunk 7 of d\.t"):
        values_of(staging, staged)


def test_rows_larger_than_memory_may_hold_are_checked_and_read_in_pieces(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.snapshot.staging._WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr("penstock.snapshot.staging._READ_BYTES", 100)
    staged = staging.stage(ScriptedReader([1, 2, 3]), SCHEMA, CHUNK, "12")
    assert values_of(staging, staged) == [1, 2, 3]
    data = bytearray(staging.store.get(staged.path).data)
    for damaged in (data[:-1], data + b"x", data[:-1] + b"x"):
        staging.store.put(staged.path, damaged)
        with pytest.raises(ChunkCorrupt):
            values_of(staging, staged)


def test_a_discarded_chunk_can_be_staged_again_and_the_later_attempt_stays(staging: Staging) -> None:
    first = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    staging.discard(first)
    assert keys(staging) == []
    second = staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, "12")
    staging.discard_placed([first])
    assert staging.staged() == [second]
    assert values_of(staging, second) == [2]


def test_a_new_run_removes_what_died_and_keeps_what_counts(staging: Staging) -> None:
    staged = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    folder = staged.path.rpartition("/")[0]
    for name in ("00000001-0-dead.parquet", "00000001-0-dead.tmp", "00000001-0-dead.manifest.tmp"):
        staging.store.put(f"{folder}/{name}", b"x")
    assert staging.recover() == [staged]
    assert len(keys(staging)) == 2
    assert values_of(staging, staged) == [1]


def test_a_manifest_whose_rows_were_removed_does_not_count(staging: Staging) -> None:
    """A task of a killed run may end after the next one has removed its rows."""
    late = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    manifest = next(key for key in keys(staging) if key.endswith(".json"))
    for seen in ("find", "staged", "stage"):
        data = staging.store.get(manifest).data
        staging.store.delete(late.path)
        if seen == "find":
            assert staging.find("12", CHUNK) is None
        elif seen == "staged":
            assert staging.staged() == []
        else:
            assert values_of(staging, staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, "12")) == [2]
            break
        assert keys(staging) == []
        staging.store.put(manifest, data)


def test_chunks_of_older_versions_are_found_by_their_paths(staging: Staging) -> None:
    staged = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    old = replace(staged, path=f"/srv/state/{staged.path}")
    assert snapshot_of(old) == "12"
    assert values_of(staging, old) == [1]
    staging.discard(old)
    assert keys(staging) == []


def test_it_travels_to_tasks_without_the_keys_of_the_store(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_ID", KEY_ID)
    monkeypatch.setenv("THE_SECRET", SECRET)
    options = StoreOptions(KeysFromEnvironment("THE_ID", "THE_SECRET"), s3_server.url)
    staging = Staging(open_store(f"s3://lake/{uuid.uuid4().hex}", options))
    staged = staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    pickled = pickle.dumps(staging)
    assert SECRET.encode() not in pickled
    assert values_of(pickle.loads(pickled), staged) == [1]
    assert pickle.loads(pickled).store is pickle.loads(pickled).store, "its connections are used again"


# faults of the store


@pytest.fixture
def faulty(s3_server: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3_server.host, s3_server.port) as proxy:
        yield proxy


LOST = {
    "one answer": (Fault("lost answer"), 1),
    "every answer": (Fault("lost answer"), 99),
    "done after the attempt gave up": (Fault("late", seconds=0.5), 99),
    "an answer that says no": (Fault("done, but answer", status=500, code="InternalError"), 99),
}


def puts_manifest(request: Request) -> bool:
    return request.method == "PUT" and request.path.partition("?")[0].endswith(".json")


@pytest.mark.parametrize("lost", LOST)
def test_a_manifest_that_nobody_confirmed_keeps_its_rows(faulty: FaultyProxy, lost: str) -> None:
    """The store takes it, but its answer is lost, once or until the attempt gives up."""
    staging = Staging(s3_store(faulty.url))
    fault, times = LOST[lost]
    faulty.plan(fault, when=puts_manifest, times=times)
    if times == 1:
        staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    else:
        with pytest.raises(TransientError):
            staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    assert faulty.faults
    faulty.forget()
    wait_for(lambda: staging.find("12", CHUNK), "the manifest to appear")
    [staged] = staging.recover()
    assert values_of(staging, staged) == [1]


def test_placed_chunks_that_cannot_be_removed_now_stop_nothing(faulty: FaultyProxy) -> None:
    staging = Staging(s3_store(faulty.url))
    placed = [staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, folder) for folder in ("12", "13")]
    faulty.plan(Fault("answer"), times=99)
    staging.discard_placed(placed)
    faulty.forget()
    assert len(keys(staging)) == 4
    staging.discard_placed(placed)
    assert keys(staging) == []


def test_a_task_killed_between_rows_and_manifest_leaves_nothing_that_counts(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Staging, "_publish", killed)
    with pytest.raises(Killed):
        staging.stage(ScriptedReader([1]), SCHEMA, CHUNK, "12")
    monkeypatch.undo()
    assert len(keys(staging)) == 1 and staging.find("12", CHUNK) is None
    again = staging.stage(ScriptedReader([2]), SCHEMA, CHUNK, "12")
    assert staging.recover() == [again] and len(keys(staging)) == 2
    assert values_of(staging, again) == [2]


def test_every_table_name_has_a_safe_folder_of_its_own(tmp_path: Path) -> None:
    names = [
        TableId("a", "b"), TableId("A", "b"), TableId("a", "B"), TableId("a.b", "c"), TableId("a", "b.c"),
        TableId("..", ".."), TableId("a/b", "c"), TableId("a", "../../x"), TableId("😀" * 64, "ü" * 64),
        TableId("😀" * 64, "ü" * 63 + "x"), TableId("con", "~"), TableId("a%2Fb", "c"),
    ]  # fmt: skip
    folders = {table_folder(name) for name in names}
    assert len({folder.lower() for folder in folders}) == len(names)
    for folder in folders:
        assert is_key(folder) and "/" not in folder
        (tmp_path / folder).mkdir()


def test_a_chunk_of_a_real_table_is_read_and_staged(mysql: Database, tmp_path: Path) -> None:
    staging = Staging(open_store(tmp_path.as_uri()))
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')"
    )
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, "t"))
    assert schema is not None
    chunk = Chunk(schema.table, 0, None, ("3",))
    start = mysql.gtid_executed()
    staged = stage_chunk(MySqlHost(source_of(mysql)), staging, schema, chunk, "12", executed=start)
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
    staging = Staging(open_store(tmp_path.as_uri()))
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
        staged = stage_chunk(MySqlHost(source), staging, schema, chunk, "12", executed="")
        assert staged.rows == 1 and staged.bytes_read > 0
        wait_for(lambda: not sessions_of(mysql, account), "the server to forget the connection")
    mysql.execute(f"DROP USER {account}")


def test_chunks_staged_one_after_the_other_share_a_connection(mysql: Database, tmp_path: Path) -> None:
    staging = Staging(open_store(tmp_path.as_uri()))
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    mysql.execute("CREATE TABLE u (name VARCHAR(9) PRIMARY KEY)", "INSERT INTO u VALUES ('a'), ('b')")
    account = f"few{mysql.name[-8:]}@127.0.0.1"
    mysql.execute(
        f"CREATE USER {account} IDENTIFIED BY 'p' WITH MAX_CONNECTIONS_PER_HOUR 1",
        f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {account}",
    )
    source = MySqlOptions(host=mysql.host, port=mysql.port, user=account.partition("@")[0], password="p")
    rows = {}
    with Stager(MySqlHost(source), staging) as stager:
        for name in ("t", "u", "t"):
            with mysql.connect() as connection:
                schema = read_table(connection, TableId(mysql.name, name))
            assert schema is not None
            chunk = Chunk(schema.table, 0, None, None)
            staged = stager.stage(schema, chunk, "12", executed=mysql.gtid_executed())
            rows[name] = staged.rows
    assert rows == {"t": 3, "u": 2}
    assert not sessions_of(mysql, account), "the server has let go of it"
    assert schema is not None
    with pytest.raises(TransientError), Stager(MySqlHost(source), staging) as stager:
        stager.stage(schema, replace(chunk, upper=("2",)), "12", executed="")
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
    staging = Staging(open_store(tmp_path.as_uri()))
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY)", "DROP USER IF EXISTS poor@127.0.0.1",
        "CREATE USER poor@127.0.0.1 IDENTIFIED BY 'p'", "GRANT REPLICATION CLIENT ON *.* TO poor@127.0.0.1",
    )  # fmt: skip
    schema = TableSchema(TableId(mysql.name, "t"), (Column("k", "int", False),), ("k",))
    poor = MySqlOptions(host=mysql.host, port=mysql.port, user="poor", password="p")
    with pytest.raises(TableError, match="GRANT SELECT ON") as caught:
        stage_chunk(MySqlHost(poor), staging, schema, Chunk(schema.table, 0, None, None), "12", executed="")
    assert caught.value.details["table"] == f"{mysql.name}.t"
