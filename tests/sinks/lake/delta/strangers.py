"""Two Sparks write one Delta table on S3 at the same time. `test_on_s3.py` runs this (`--lake-in
delta-s3`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import newer

from penstock.sinks.jars import jars
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.registration import DELTA
from penstock.testing.scenario import wait_for

EPOCHS = 20


def test_a_stranger_who_compacts_and_adds_rows_loses_nothing_and_neither_do_we(
    place: Callable[..., Place], delta: DeltaOptions, tmp_path: Path
) -> None:
    it = place("delta").create()
    options = {
        **DELTA.spark_options(delta, {}, tmp_path),
        "spark.driver.extraClassPath": ":".join(map(str, jars([delta]))),
        "spark.driver.memory": "700m",
        "spark.databricks.delta.optimize.minFileSize": str(1 << 20),
    }
    stop, table = tmp_path / "stop", it.sink.format.place(it.table)
    program = [sys.executable, str(Path(__file__).with_name("stranger.py"))]
    with subprocess.Popen(
        [*program, table, str(stop), json.dumps(options)], stdout=-1, stderr=-1, text=True
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "ready\n"
        expected, conflicts = dict[int, tuple[str, int]](), 0
        for epoch in range(1, EPOCHS + 1):
            keys = [(epoch * 7 + n * 13) % 60 for n in range(12)]
            make = few if epoch % 3 else newer  # by the driver, by tasks
            rows = [(key, f"epoch {epoch}", key % 5 == epoch % 5, epoch) for key in dict.fromkeys(keys)]
            while True:  # as a pipeline does
                try:
                    it.sink.merge(it.table, make(it, *rows), it.key, it.commit(epoch))
                    break
                except Py4JJavaError as error:
                    assert "Concurrent" in str(error), error
                    conflicts += 1
            for key, name, deleted, sequence in rows:
                expected.pop(key, None)
                if not deleted:
                    expected[key] = (name, sequence)
            if epoch % 10 == 0:  # while we write, a compaction hardly ever gets through
                known = operations(it).count("OPTIMIZE")
                wait_for(partial(compacted_since, it, known), "a compaction", seconds=120)
        stop.touch()
        said, complained = stranger.communicate(timeout=200)
    assert stranger.returncode == 0, complained[-3000:]
    added = int(said.split()[-1])
    found = {row[0]: row[1:] for row in it.rows()}
    assert {key: row for key, row in found.items() if key >= 0} == expected
    assert sorted(key for key in found if key < 0) == list(range(-added, 0))
    history = it.spark.sql(f"DESCRIBE HISTORY {it.sink.name(it.table)}").collect()
    assert [row["version"] for row in history] == list(range(len(history) - 1, -1, -1))
    done = operations(it)
    assert added >= 3 and done.count("STREAMING UPDATE") == EPOCHS, (added, conflicts)
    assert done.count("WRITE") == added


def compacted_since(it: Place, known: int) -> bool:
    return operations(it).count("OPTIMIZE") > known


def operations(it: Place) -> list[str]:
    history = it.spark.sql(f"DESCRIBE HISTORY {it.sink.name(it.table)}").collect()
    return [str(row["operation"]) for row in history]
