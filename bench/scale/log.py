"""A relay log of ten GiB, and one of a week: opened, and planned from its index alone.

A real receiver writes one segment; its index, as it stands when the segment is closed, is repeated with other
offsets and GTIDs until the log is as long as it is to be. The binlog files behind it are sparse: they have
the size, and no bytes. So whoever reads an event of them fails, and what is measured has read none.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench import measure
from bench.lines import Line
from bench.place import scratch
from penstock.config import SchemaConfig
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.model.table import Streaming, TableState
from penstock.planning.planner import Planner, PlannerLimits
from penstock.planning.policy import Policies
from penstock.relaylog import index
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.segment import SegmentName, list_segments
from penstock.snapshot.placement import PlacementLimits
from penstock.sources.mysql.snapshot.window import MySqlWindows
from penstock.state import StateStore
from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer

PART = "log"
GIB = 1024**3
OPEN_SECONDS_GOAL = 1.0
WEEK_BYTES = 7 * 86_400 * 1024**2
"""A mebibyte a second."""
EPOCH_BYTES = 512 * 1024**2
ORDERS = TableId("logged", "orders")
_SEGMENT_BYTES = 256 * 1024**2


class NoStatements:
    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        return []

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return set()


def run() -> Iterator[Line]:
    with scratch() as folder:
        pattern = _real_segment(folder / "real")
        for what, size in (("10 GiB", 10 * GIB), ("591 GiB (a week at 1 MiB/s)", WEEK_BYTES)):
            home = folder / str(size)
            segments = _repeat(pattern, home, size)
            yield from _measure(home, what, segments)


def _measure(home: Path, what: str, segments: int) -> Iterator[Line]:
    began = time.monotonic()
    log = RelayLog.open(home)
    opened = time.monotonic() - began
    yield Line(PART, f"relay log of {what}, {segments:,} segments: opened", opened, "s", OPEN_SECONDS_GOAL)
    began = time.monotonic()
    log.executed_at(log.end), log.position_at(log.end), log.start
    yield Line(PART, "... its end, GTIDs and position read", time.monotonic() - began, "s")
    began = time.monotonic()
    epochs = _plan_all(log, home)
    seconds = time.monotonic() - began
    yield Line(PART, f"... all of it planned from the index, {epochs:,} epochs", seconds, "s")
    yield Line(PART, "... of that an epoch of 512 MiB", seconds / epochs * 1000, "ms")


def _plan_all(log: RelayLog, home: Path) -> int:
    """By the planner of pipelines, into a state of its own; each plan counts as applied at once."""
    state = StateStore(home / "state")
    schema = TableSchema(ORDERS, (Column("id", "bigint", nullable=False),), ("id",))
    state.advance(log.start)
    state.put_table(TableState(schema, log.start, Streaming(snapshot_done=False), written=True, last_epoch=1))
    planner = Planner(
        state, log, NoStatements(), windows=MySqlWindows(),
        policies=Policies(SchemaConfig(), append_only=False, reads=False), discard=lambda staged: None,
        limits=PlannerLimits(EPOCH_BYTES, PlacementLimits(1, 1), 1 << 26, 1),
    )  # fmt: skip
    epochs = 0
    while state.position != log.end:
        plan = planner.plan_next()
        if plan is not None:
            state.applied(plan, keep=10)
            epochs += 1
    state.close()
    return epochs


# the log ----------------------------------------------------------------------------------------------------


def _real_segment(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], bytes]:
    """relay.json, the entries of a closed segment and the first bytes of its binlog file."""
    with MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "CREATE DATABASE logged",
            "CREATE TABLE logged.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000))",
            "CREATE TABLE logged.items (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000))",
        )
        folder.mkdir(parents=True)
        file = folder / "pipeline.yaml"
        document = {
            "name": "log",
            "source": {
                "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            },
            "tables": ["logged.*"], "state": str(folder),
            "relay_log": {"segment_size": "48MiB"},
        }  # fmt: skip
        file.write_text(yaml.safe_dump(document))
        relay = folder / "relay"
        receiver = subprocess.Popen(
            measure.program("penstock", "receive", file), env=measure.environment(), stdin=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: RelayLog.exists(relay), "the relay log")
            _write(server, relay)
        finally:
            receiver.terminate()
            receiver.wait(30)
    name = list_segments(relay)[0]
    path = relay / name.index
    entries = [entry.fields for entry in index.parse_lines(path.read_bytes(), path)]
    with (relay / name.file).open("rb") as binlog:
        head = binlog.read(entries[0]["end"])
    return json.loads((relay / "relay.json").read_text()), entries, head


def _write(server: MySqlServer, relay: Path) -> None:
    """Until a segment is full and closed."""
    rows = ", ".join(["(NULL, REPEAT('x', 900))"] * 20)
    with server.connect(database="logged", autocommit=True) as connection, connection.cursor() as cursor:
        deadline = time.monotonic() + 300
        while len(list_segments(relay)) < 2 and time.monotonic() < deadline:
            for _ in range(50):
                cursor.execute(f"INSERT INTO orders (id, v) VALUES {rows}")
                cursor.execute(f"INSERT INTO items (id, v) VALUES {rows}")
    wait_for(lambda: len(list_segments(relay)) >= 2, "a second segment")
    time.sleep(1)  # the index of the first one is put together


def _repeat(pattern: tuple[dict[str, Any], list[dict[str, Any]], bytes], home: Path, size: int) -> int:
    """Segments of 256 MiB, each made of the pattern's spans several times."""
    relay, entries, head = pattern
    home.mkdir(parents=True)
    (home / "relay.json").write_text(json.dumps(relay))
    first, spans = entries[0], entries[1:]
    length = spans[-1]["end"] - spans[0]["start"]
    uuid, _, last = spans[-1]["executed"].rpartition(":")[0], "", spans[-1]["executed"].rpartition("-")[2]
    lowest = int(spans[0]["executed"].rpartition(":")[2].partition("-")[0])
    step, done, base, segments = int(last) - lowest + 1, 0, 0, 0
    while base < size:
        name = SegmentName(Offset(base), 1)
        shift = base - first["start"]
        executed = f"{uuid}:1-{lowest - 1 + done * step}"
        lines = [_shifted(first, shift, 0) | {"head": {**first["head"], "executed": executed}}]
        at = lines[0]["end"]
        while at - base < _SEGMENT_BYTES:
            lines += [_shifted(span, at - spans[0]["start"], done * step) for span in spans]
            at, done = at + length, done + 1
        (home / name.index).write_bytes(index.encode(map(index.Entry, lines)))
        with (home / name.file).open("wb") as binlog:
            binlog.write(head)
            os.truncate(binlog.fileno(), at - base)
        base, segments = at, segments + 1
    return segments


def _shifted(fields: dict[str, Any], shift: int, gtids: int) -> dict[str, Any]:
    """The entry of a span elsewhere in the log."""
    moved = {**fields}
    for name in ("start", "end", "committed"):
        moved[name] = fields[name] + shift
    if fields.get("last"):
        moved["last"] = {**fields["last"], "start": fields["last"]["start"] + shift,
                         "end": fields["last"]["end"] + shift}  # fmt: skip
    moved["statements"] = [
        {**one, "offset": one["offset"] + shift, "end": one["end"] + shift}
        for one in fields.get("statements", ())
    ]
    if fields.get("executed"):
        uuid, _, numbers = fields["executed"].rpartition(":")
        low, _, high = numbers.partition("-")
        moved["executed"] = f"{uuid}:{int(low) + gtids}-{int(high or low) + gtids}"
    return moved
