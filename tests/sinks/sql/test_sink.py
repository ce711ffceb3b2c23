"""What a SQL database may do to its targets while a pipeline runs."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, DriverReplaced, TableError
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, EvolvedColumn
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of
from penstock.testing import servers

TABLE = TableId("shop", "orders")
FIELDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


class Place:
    def __init__(self, folder: Path, pipeline: str | None = None) -> None:
        self.file = folder / "targets.db"
        self.pipeline = pipeline or str(uuid.uuid4())
        options = JdbcOptions(type="jdbc", url=f"sqlite://{self.file}")
        self.sink: Any = registry.open_sink(options, None, self.pipeline)  # type: ignore[arg-type]

    def create(self) -> None:
        self.sink.create(TableSchema(TABLE, (Column("id", "bigint"), Column("v", "text")), ("id",)), FIELDS)

    def merge(
        self,
        epoch: int,
        *rows: tuple[int, str | None, bool],
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> bool:
        """`meanwhile` happens after the look at the target, and before rows are written."""
        columns = list(zip(*rows, strict=True))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(columns[0], pa.int64()),
                pa.array(columns[1], pa.string()),
                pa.array(columns[2], pa.bool_()),
                pa.array([epoch] * len(rows), pa.int64()),
            ],
            ["id", "v", DELETED, SEQUENCE],
        )

        def frame() -> Any:
            raise AssertionError("few rows need no Spark")

        def batches() -> Iterator[pa.RecordBatch]:
            meanwhile()
            yield batch

        made = Rows(frame, Newer(batches))
        return bool(self.sink.merge(TABLE, made, ("id",), Commit(self.pipeline, epoch)))

    def rows(self) -> list[tuple[Any, ...]]:
        session = sqlite3.connect(self.file)
        found = session.execute("SELECT id, v FROM shop_orders ORDER BY id").fetchall()
        session.close()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.create()
    yield made
    made.sink.close()


def test_a_database_that_lost_changes_takes_no_more_until_the_target_is_made_anew(place: Place) -> None:
    place.merge(1, (1, "a", False))
    place.sink.close()
    backup = place.file.with_suffix(".backup")
    shutil.copy(place.file, backup)
    place.merge(2, (2, "b", False))
    place.sink.close()
    for left in place.file.parent.glob("targets.db-*"):
        left.unlink()
    shutil.copy(backup, place.file)
    with pytest.raises(TableError, match="has lost changes") as lost:
        place.merge(3, (3, "c", False))
    assert "--recreate" in lost.value.hint
    with pytest.raises(TableError, match="has lost changes"):  # also by a run that knows nothing of it
        Place(place.file.parent, place.pipeline).merge(3, (3, "c", False))
    assert place.rows() == [(1, "a")]
    place.sink.clear(TABLE)
    place.create()
    assert place.merge(4, (1, "a", False), (2, "b", False)) and len(place.rows()) == 2


def test_a_driver_that_was_replaced_is_refused(place: Place) -> None:
    place.merge(1, (1, "a", False))
    other = Place(place.file.parent, place.pipeline)
    other.sink.begin(2)
    other.sink.fence(TABLE)
    with pytest.raises(DriverReplaced):
        place.merge(2, (2, "b", False))
    assert other.merge(2, (1, None, True)) and other.rows() == []
    other.sink.close()


def test_a_driver_that_is_replaced_while_it_loads_rows_writes_none(place: Place) -> None:
    place.merge(1, (1, "a", False))
    other = Place(place.file.parent, place.pipeline)
    other.sink.begin(2)
    with pytest.raises(DriverReplaced):
        place.merge(2, (2, "late", False), meanwhile=lambda: other.sink.fence(TABLE))
    assert other.merge(2, (3, "c", False)) and other.rows() == [(1, "a"), (3, "c")]
    other.sink.close()


def test_an_epoch_that_another_driver_writes_meanwhile_is_not_written_again(place: Place) -> None:
    other = Place(place.file.parent, place.pipeline)

    def written() -> None:
        other.merge(1, (1, "a", False))
        other.merge(2, (1, "b", False))

    assert not place.merge(1, (1, "a", False), meanwhile=written)
    assert other.merge(3, (2, "c", False)), "the record is still that of epoch 2"
    assert other.rows() == [(1, "b"), (2, "c")]
    other.sink.close()


def test_a_target_that_another_pipeline_has_made_anew_is_not_written(place: Place) -> None:
    place.merge(1, (1, "a", False))
    session = sqlite3.connect(place.file)
    session.executescript("DROP TABLE shop_orders; DELETE FROM penstock_targets")
    session.close()
    other = Place(place.file.parent)
    other.create()
    assert other.merge(1, (7, "theirs", False))
    with pytest.raises(TableError, match="another pipeline's"):
        place.merge(2, (2, "b", False))
    with pytest.raises(TableError, match="another pipeline's"):
        place.sink.truncate(TABLE, Commit(place.pipeline, 2), sequence=9)
    assert other.rows() == [(7, "theirs")]
    assert other.merge(2, (8, "more", False)) and len(other.rows()) == 2
    other.sink.close()


def test_what_a_constraint_of_others_refuses_stops_the_table_and_shows_no_value(place: Place) -> None:
    session = sqlite3.connect(place.file)
    session.execute("CREATE UNIQUE INDEX theirs ON shop_orders (v)")
    session.close()
    place.merge(1, (1, "secret", False))
    with pytest.raises(TableError) as refused:
        place.merge(2, (2, "secret", False), (3, "c", False))
    assert "secret" not in str(refused.value) and place.rows() == [(1, "secret")]


def evolved(place: Place, epoch: int, *names: str, refills: bool = False) -> None:
    columns = [EvolvedColumn(FIELDS.field("id"), "id", refills=refills, key=1)]
    columns += [EvolvedColumn(pa.field(name, pa.string()), name, refills=refills) for name in names]
    if not refills:
        columns[-1] = replace(columns[-1], before=None)
    place.sink.evolve(TABLE, columns, Commit(place.pipeline, epoch), narrowing="keep")


def run(place: Place, sql: str) -> None:
    session = sqlite3.connect(place.file)
    session.execute(sql)
    session.close()


def test_a_column_that_somebody_has_removed_is_told_and_comes_back_with_all_rows(place: Place) -> None:
    place.merge(1, (1, "a", False))
    run(place, "ALTER TABLE shop_orders DROP COLUMN v")
    with pytest.raises(TableError, match="no column v: somebody else") as lacks:
        place.merge(2, (1, "b", False))
    assert "--recreate" not in lacks.value.hint
    assert place.sink.open(TABLE).lost_columns == ("v",)
    evolved(place, 2, "v", refills=True)
    assert place.merge(3, (1, "c", False)) and place.rows() == [(1, "c")]
    assert place.sink.open(TABLE).lost_columns == ()


def test_a_column_of_somebody_else_whose_name_the_source_uses_later_stops_the_table(
    place: Place,
) -> None:
    place.merge(1, (1, "a", False))
    run(place, "ALTER TABLE shop_orders ADD COLUMN Mine INTEGER")
    with pytest.raises(TableError, match="cannot get the column `mine`") as taken:
        evolved(place, 2, "v", "mine")
    assert "unpark" in taken.value.hint
    run(place, "ALTER TABLE shop_orders RENAME COLUMN Mine TO other")
    evolved(place, 2, "v", "mine")
    assert place.rows() == [(1, "a")]


def test_what_others_have_made_of_a_target_of_sqlite_stops_the_table_alone_and_is_not_waited_for(
    place: Place,
) -> None:
    action = "UPDATE shop_orders SET locked = 1, full = 1"
    run(place, f"CREATE TRIGGER theirs AFTER INSERT ON shop_orders BEGIN {action}; END")
    with pytest.raises(TableError, match="no such column: locked") as stopped:
        place.merge(1, (1, "a", False))
    assert "unpark" in stopped.value.hint
    run(place, "DROP TRIGGER theirs")
    assert place.merge(1, (1, "a", False))


def test_doctor_says_whether_the_database_can_be_used(tmp_path: Path) -> None:
    def probed(url: str) -> list[tuple[str, bool]]:
        options = JdbcOptions(type="jdbc", url=url)
        probe = registry.kind("jdbc").probe(options, {})
        assert probe is not None
        return [(one.check, one.ok) for one in probe(None, [])]  # type: ignore[arg-type]

    good = [("database", True), ("database-temporary-table", True)]
    assert probed(f"sqlite://{tmp_path}/t.db") == good
    assert probed(f"sqlite://{tmp_path}/missing/t.db") == [("database", False)]
    assert probed("mysql://127.0.0.1:1") == [("database", False)]


def test_an_old_duckdb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(duckdb, "__version__", "1.5.6")
    options = JdbcOptions(type="jdbc", url=f"duckdb://{tmp_path}/t")
    with pytest.raises(ConfigError, match="needs DuckDB 2") as refused:
        registry.open_sink(options, None, "p")  # type: ignore[arg-type]
    assert "pip install" in refused.value.hint


def test_a_duckdb_file_that_another_process_has_open_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    file, said = tmp_path / "targets.db", tmp_path / "opened"
    duckdb.connect(str(file)).close()
    program = "import duckdb, pathlib, sys, time; one = duckdb.connect(sys.argv[1]); "
    program += "pathlib.Path(sys.argv[2]).touch(); time.sleep(1)"
    with subprocess.Popen([sys.executable, "-c", program, str(file), str(said)]) as other:
        while not said.exists():
            assert other.poll() is None
            time.sleep(0.01)  # polls; the process ends by itself
        with pytest.raises(duckdb.IOException, match="lock"):
            duckdb.connect(str(file))
        from penstock.sinks.sql.duckdb import DuckDb  # needs the package

        session = DuckDb(JdbcOptions(type="jdbc", url=f"duckdb://{file}")).connect()
        session.close()


@pytest.mark.slow
def test_a_key_that_is_too_long_for_an_index_of_postgresql_is_written_once_the_index_is_gone() -> None:
    import psycopg

    with servers.postgresql() as server:
        options = {"type": "jdbc", "url": server.url, "user": server.user, "password": server.password}
        dialect = dialect_of(JdbcOptions.model_validate(options))
        session = dialect.connect()
        target = dialect.place(["public", "orders"])
        dialect.make_new(session, target, {"id": "text"}, {"id": "text"}, unique=True)
        long = random.Random(1).randbytes(1500).hex()  # PostgreSQL compresses what it can
        insert = f"INSERT INTO {dialect.target(target)} VALUES ('{long}')"
        with pytest.raises(psycopg.Error) as refused:
            dialect.run(session, insert)
        found = dialect.explained(refused.value, "Rows were not written", TABLE)
        assert isinstance(found, TableError) and "too long for an index" in str(found)
        drop = found.hint.partition("`")[2].partition("`")[0].replace("…", dialect.target(target))
        session.rollback()
        dialect.run(session, drop)
        dialect.run(session, insert)
        session.close()
