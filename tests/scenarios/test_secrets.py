"""The password of the source, in a whole run: nobody else learns it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.scenarios.canaries import files_with

from penstock.testing.scenario import SHORT_LIVED, Scenario
from penstock.testing.servers import Database

PASSWORD = "hunter2-Zb81fkq0"


@pytest.mark.slow
def test_a_run_leaves_the_password_nowhere_and_shows_it_to_nobody(
    mysql: Database, scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    account = f"s{mysql.name[-8:]}"
    mysql.execute(
        f"CREATE USER {account}@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO {account}@'%'",
        "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(100))",
        "INSERT INTO t VALUES " + ", ".join(f"({n}, 'x')" for n in range(30_000)),
    )
    events = tmp_path / "events"
    events.mkdir()
    conf = {**SHORT_LIVED, "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false"}  # fmt: skip
    case = scenario(
        source={"host": mysql.host, "port": mysql.port, "user": account, "password": PASSWORD},
        snapshot={"chunk_rows": 5000},
        spark={"master": "local[2]", "driver_memory": "1g", "conf": conf},
    )
    seen: list[str] = []
    with case.running() as pipeline:

        def looks(status: dict[str, Any]) -> bool:
            for processes in pipeline.processes().values():
                for process in processes:
                    try:
                        words = [*process.cmdline(), *process.environ().values()]
                    except psutil.Error:
                        continue
                    seen.extend(word for word in words if PASSWORD in word)
            secrets = case.folder / "state" / "secrets"
            found = files_with(case.folder / "state", PASSWORD)
            seen.extend(str(path) for path in found if path.parent != secrets)
            return bool(status["snapshot"]["done"])

        pipeline.wait_until(looks, "the snapshot", seconds=180)
        case.drain(pipeline)
        said = json.dumps(pipeline.latest) + pipeline.errors + json.dumps(case.status())
        assert pipeline.stop() == 0
    case.assert_equal("t")
    assert seen == [] and PASSWORD not in said
    assert list(events.rglob("*")), "Spark has written its event log"
    assert files_with(tmp_path, PASSWORD) == [case.file]
    mysql.execute(f"DROP USER {account}@'%'")
