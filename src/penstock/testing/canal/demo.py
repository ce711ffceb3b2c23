"""`penstock demo --canal`: Canal's own Java client rebuilds a shop under load from what our server gives it,
while client, server and receiver are killed. The result is compared with the source, row by row."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import PenstockError
from penstock.testing import oracle, servers, workload
from penstock.testing.canal.client import ClientEnded, ClientError, JavaClient
from penstock.testing.canal.rebuild import Rebuilt
from penstock.testing.canal.server import RunningServer
from penstock.testing.writer import Writer

DRAIN_S = 300.0
"""How long the client may take to read what is left at the end."""
BATCH_ENTRIES, WAIT_MS = 2000, 1000
"""Entries that the client asks for at once, and milliseconds that it waits for them."""
KILLS = ("client", "server", "receiver", "client", "server")

Say = Callable[[str], None]


@dataclass(frozen=True)
class CanalDemoOptions:
    rows: int = 20_000
    """Minimum number of rows of the shop. They come through the log, too."""
    seconds: float = 30
    """Number of seconds that the writer runs."""
    rate: float = 300
    """Row changes per second of the writer."""
    seed: int = 1


@dataclass
class CanalDemoResult:
    equal: bool = False
    tables: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    """Changes of rows that the client got."""
    repeated: int = 0
    """Changes among `rows` that came again behind a kill."""
    after_acknowledgement: int = 0
    """Changes among `rows` that came again although they were acknowledged: must be 0."""
    batches: int = 0
    changes: int = 0
    kills: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class CanalDemo:
    """`run()` does everything. `say` is called with a line about each step."""

    def __init__(self, options: CanalDemoOptions, *, say: Say) -> None:
        self.options = options
        self.result = CanalDemoResult()
        self._say = say
        self._names = [f"shop.{table}" for table in workload.TABLES]

    def run(self) -> CanalDemoResult:
        began = time.monotonic()
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            source = stack.enter_context(servers.mysql())
            self._server = RunningServer(_file(folder, source), folder / "server.log")
            stack.callback(self._server.kill)
            self._say(f"the server listens at {self._server.start()}; loading the shop …")
            shop = workload.Shop.of_rows(self.options.rows)
            workload.load(source, shop)
            columns = {name: oracle.columns_of(source, name) for name in self._names}
            self._rebuilt = Rebuilt(columns)
            self._client: JavaClient | None = None
            stack.callback(self._close_client)
            writer = stack.enter_context(Writer(source, shop, seed=self.options.seed, rate=self.options.rate))
            self._under_load()
            writer.stop()
            self.result.changes = writer.counts.changes
            self._say(f"writer stopped after {writer.counts.changes:,} changes; draining")
            self._drain(source)
            self._compare(source)
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _under_load(self) -> None:
        """Kills something at equal times."""
        began, step = time.monotonic(), self.options.seconds / (len(KILLS) + 1)
        for number, victim in enumerate(KILLS, 1):
            got = self.result.batches
            while time.monotonic() < began + number * step or self.result.batches == got:
                self._read()
            self._kill(victim)
        while time.monotonic() < began + self.options.seconds:
            self._read()

    def _kill(self, victim: str) -> None:
        if victim == "client" and self._client is not None:
            with contextlib.suppress(ClientError):
                # In the middle: it has used a batch, and has not acknowledged it.
                self._rebuilt.apply(self._client.rows(BATCH_ENTRIES, WAIT_MS)[1])
            self._close_client()
        elif victim == "server":
            self._server.kill()
            self._server.start()
        elif not self._server.kill_receiver():
            return
        self._say(f"killed the {victim} (kill -9)")
        self.result.kills.append(victim)

    def _read(self) -> bool:
        """The usual loop of a client, once. Returns whether there was something."""
        try:
            if self._client is None:
                self._client = JavaClient(self._server.address, "shop")
                self._client.connect()
                self._client.subscribe()
            batch, rows = self._client.rows(BATCH_ENTRIES, WAIT_MS)
            if batch == -1:
                return False
            self._rebuilt.apply(rows)
            self._client.acknowledge(batch)
            self._client.subscribe()  # an acknowledgement has arrived once the next request is answered
            self._rebuilt.acknowledged(rows)
            self.result.batches += 1
            return True
        except (ClientError, ClientEnded) as error:
            self._say(f"the client says: {error}; it connects again")
            self._close_client()
            return True

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _drain(self, source: Any) -> None:
        """Reads until the client has got a row that is written now."""
        source.execute("CREATE TABLE shop.ended (id INT PRIMARY KEY)", "INSERT INTO shop.ended VALUES (1)")
        self._rebuilt.columns = {
            **self._rebuilt.columns, "shop.ended": oracle.columns_of(source, "shop.ended")
        }  # fmt: skip
        deadline = time.monotonic() + DRAIN_S
        while not self._rebuilt.tables.get("shop.ended"):
            if time.monotonic() > deadline:
                raise PenstockError(f"The client did not get everything within {DRAIN_S:.0f} s.")
            self._read()

    def _compare(self, source: Any) -> None:
        for name in self._names:
            expected, found = oracle.rows_of(source, name), self._rebuilt.rows_of(name)
            difference = oracle.compare(expected, found)
            rows = {"rows_source": len(expected), "rows_target": len(found)}
            self.result.tables.append({"table": name, "equal": not difference, **rows})
            if difference:
                self._say(f"{name}: {difference}")
        rebuilt = self._rebuilt
        self.result.rows, self.result.repeated = rebuilt.rows, rebuilt.repeated
        self.result.after_acknowledgement = rebuilt.after_acknowledgement
        self.result.equal = not rebuilt.after_acknowledgement and all(
            table["equal"] for table in self.result.tables
        )


def _file(folder: Path, source: Any) -> Path:
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    document = {
        "listen": {"canal": "127.0.0.1:0"},
        "source": account,
        "relay_log": {"path": str(folder / "relay")},
        "destinations": {"shop": {"filter": r"shop\..*", "start": "earliest"}},
        "positions": {"type": "file", "path": str(folder / "positions")},
    }
    file = folder / "server.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    file.chmod(0o600)
    return file
