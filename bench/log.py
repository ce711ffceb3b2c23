"""The server that holds the log: built once per workload and scale and kept in the cache, with its data,
between runs."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import workload as what
from bench.workload import Counts, Workload
from bench.workloads import WORKLOADS
from penstock.errors import InternalError
from penstock.model.schema import TableId
from penstock.testing import artifacts
from penstock.testing.servers import MySqlServer

_OPTIONS = {
    "binlog_row_metadata": "FULL",
    "binlog_expire_logs_seconds": 0,
    "max_binlog_size": 1024**3,
    "innodb_buffer_pool_size": "1G",
    "table_open_cache": 4000,
}
_LOG_FILE = "penstock-bench.json"
_FORMAT = 3
"""Of that file and of how the server is set up; raise it when either changes."""


@dataclass(frozen=True)
class BenchLog:
    """A running server with the log. The changes begin after `file`:`position` and after `gtids`."""

    server: MySqlServer
    workload: Workload
    scale: float
    file: str
    position: int
    gtids: str
    end_file: str
    end_position: int
    """End of the workload and of the tail: byte `end_position` of `end_file`."""
    counts: Counts
    log_bytes: int
    """Size of the binary log, tail included (less than one percent at full scale)."""

    @property
    def path(self) -> Path:
        return self.server.datadir / self.file

    @property
    def tables(self) -> list[TableId]:
        return [TableId(what.DATABASE, name) for name in self.workload.compared(self.scale)]


class KeptServer(MySqlServer):
    """A private MySQL that starts from the kept data directory (identity and binary log included)."""

    template: Path

    @classmethod
    def prepare(cls) -> Path:
        MySqlServer.prepare()
        return cls.template


def cache_name(workload: Workload, scale: float) -> str:
    return f"bench/{workload.name}-{scale:g}-{MySqlServer.release}-{workload.version}.{_FORMAT}"


@contextlib.contextmanager
def running(scale: float, workload: Workload = WORKLOADS["orders"]) -> Iterator[BenchLog]:
    """The log at a scale on a private server, which is removed at the end. Each call starts from equal
    data."""
    kept = artifacts.entry(
        cache_name(workload, scale), lambda target: _build(target, workload=workload, scale=scale)
    )

    class Server(KeptServer):
        template = kept

    facts = json.loads((kept / _LOG_FILE).read_text())
    with Server(_OPTIONS) as server:
        yield BenchLog(
            server=server,
            workload=workload,
            scale=scale,
            file=facts["file"],
            position=facts["position"],
            gtids=facts["gtids"],
            end_file=facts["end_file"],
            end_position=facts["end_position"],
            counts=Counts(**facts["counts"]),
            log_bytes=facts["log_bytes"],
        )


def _build(target: Path, *, workload: Workload, scale: float) -> None:
    """Fills `target` with the data directory of a server that has written the log and was shut down
    cleanly."""
    with MySqlServer(_OPTIONS) as server:
        what.prepare(server, workload, scale)
        file, _ = server.position()
        gtids = server.gtid_executed()
        counts = workload.write(server, scale)
        what.write_tail(server)
        rows = sum(
            server.query(f"SELECT COUNT(*) FROM {what.DATABASE}.{table}")[0][0]
            for table in workload.compared(scale)
        )
        if rows != counts.rows_left:
            raise InternalError(f"The workload left {rows} rows instead of {counts.rows_left}.")
        end_file, end_position = server.position()
        if end_file != file and workload.one_log_file:
            raise InternalError("The workload does not fit into one binary log file.")
        sizes = {str(name): int(size) for name, size, *_ in server.query("SHOW BINARY LOGS")}
        server.stop()
        facts = {
            "file": file,
            "position": 4,
            "gtids": gtids,
            "end_file": end_file,
            "end_position": end_position,
            "counts": asdict(counts),
            "log_bytes": sum(size for name, size in sizes.items() if name >= file),
        }
        shutil.copytree(server.datadir, target, dirs_exist_ok=True)
    (target / _LOG_FILE).write_text(json.dumps(facts))
