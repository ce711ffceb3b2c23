"""Names and texts of a source name things and do nothing else: where they are read, stored and shown."""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.hostile import ALL, FEW, TWINS, HostileDatabase, pickled
from tests.test_printable import is_unsafe
from typer.testing import CliRunner

from penstock.cli import app
from penstock.model.schema import TableId
from penstock.sinks.names import catalog_name, directory_name
from penstock.sources.mysql.identifiers import quote
from penstock.testing import oracle
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario

TOKEN = "a-token-of-twenty-characters"


def assert_harmless(text: str) -> None:
    """Neither a stack trace nor a character that a terminal obeys."""
    assert "Traceback" not in text, text[-5000:]
    found = {character for character in text if character != "\n" and is_unsafe(character)}
    assert not found, f"{found} in {text[:3000]!r}"


class Case:
    """`columns`: names of tables and of columns; `twins`: of tables only."""

    def __init__(
        self,
        scenario: Callable[..., Scenario],
        sink: str,
        columns: tuple[str, ...],
        twins: tuple[str, ...] = (),
    ) -> None:
        self.canary = Path(f"/tmp/p{os.getpid()}")
        self.level = f"hostile{uuid.uuid4().hex[:8]}"
        self.scenario = scenario(
            sink,
            sink_options={"namespace": self.level + ".{database}"},
            http={"listen": "127.0.0.1:0", "tokens": {"one": {"token": TOKEN}}},
        )
        prefix = self.scenario.database
        self.database = HostileDatabase(
            self.scenario.server,
            f"{prefix}[/]\x1b'`${{x}}$(x)/",
            (pickled(self.canary), *columns, *twins),
            columns,
        )
        self.scenario.write_file(tables=[f"{prefix}*.*"])

    def tables(self) -> list[str]:
        found = self.scenario.server.query("SHOW TABLES FROM " + quote(self.database.name))
        return [str(name) for (name,) in found]

    def name(self, table: str) -> str:
        return str(TableId(self.database.name, table))

    def command(self, name: str, *arguments: str) -> str:
        """In a process of its own, as it needs a Spark of its own."""
        done = self.scenario.command(name, *arguments)
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        return done.stdout

    def says(self, name: str, *arguments: str) -> str:
        return said(name, str(self.scenario.file), *arguments)

    def target(self, table: str) -> Any:
        scenario, spark = self.scenario, self.scenario.spark
        levels = (self.level, self.database.name, table)
        if scenario.sink == "iceberg":
            return spark.sql("SELECT * FROM lake." + ".".join(quote(catalog_name(one)) for one in levels))
        path = str(scenario.sink_path.joinpath(*map(directory_name, levels)))
        return spark.read.format(scenario.sink).load(path)

    def difference(self, table: str) -> str:
        columns = oracle.columns_of(self.scenario.server, self.name(table))
        frame = self.target(table).select(*[quote(column.name) for column in columns])
        found = oracle.canonical_rows([tuple(row) for row in frame.collect()], columns)
        return oracle.compare(oracle.rows_of(self.scenario.server, self.name(table)), found)

    def live_through(self) -> dict[str, dict[str, Any]]:
        """Snapshot, stream and schema changes; what status says of each table then."""
        self.database.make()
        with self.scenario.running() as pipeline:
            self.scenario.drain(pipeline)
            self.database.change()
            status = self.scenario.drain(pipeline)
            self.look(pipeline)
            assert pipeline.stop() == 0
            assert_harmless(pipeline.errors)
        return {one["table"]: one for one in status["tables"]}

    def look(self, pipeline: RunningPipeline) -> None:
        """Over HTTP, while it runs."""
        request = urllib.request.Request(
            f"http://{pipeline.latest['http']}/status", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        assert_harmless(text)
        assert set(map(self.name, self.tables())) == {one["table"] for one in json.loads(text)["tables"]}

    def assert_shown(self) -> None:
        """What commands say for people can be shown; what they say for programs has every name as it is."""
        names = set(map(self.name, self.tables()))
        for arguments in (["status"], ["status", "--history"], ["doctor"], ["signals"]):
            self.says(*arguments)
        told = json.loads(self.says("status", "--json"))
        assert {one["table"] for one in told["tables"]} == names
        history = json.loads(self.says("status", "--history", "--json"))
        assert self.name("columns") in {one["table"] for one in history}

    def assert_read_offline(self, folder: Path) -> None:
        """The log, and the definitions as a dump has them."""
        server = self.scenario.server
        dump = folder / "dump.sql"
        made = [server.query(f"SHOW CREATE TABLE {self.database.quoted(one)}")[0][1] for one in self.tables()]
        text = ";\n".join([f"USE {quote(self.database.name)}", *made])
        dump.write_text(text, "utf-8", newline="")
        relay = self.scenario.folder / "state" / "relay"
        for command, path in (("schema", dump), ("inspect", relay)):
            for options in ([], ["--json"], *([["--summary"]] if command == "inspect" else [])):
                said(command, str(path), *options)
        told = json.loads(said("schema", str(dump), "--json"))
        assert {(one["database"], one["table"]) for one in told["tables"]} == {
            (self.database.name, one) for one in self.tables()
        }


def said(*arguments: str) -> str:
    """What a command of this process prints."""
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert_harmless(done.output)
    assert done.exit_code == 0, f"{arguments}: {done.output[-3000:]}"
    return done.stdout


@pytest.mark.slow  # quick: names of targets in `sinks`, and `test_printable.py`
def test_hostile_names_arrive_and_are_shown_as_text(
    scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    case = Case(scenario, "iceberg", FEW)
    try:
        status = case.live_through()
        assert {one["status"] for one in status.values()} == {"live"}
        for table in case.tables():
            assert not case.difference(table), table
        case.assert_shown()
        case.assert_read_offline(tmp_path)
        assert not case.canary.exists()
    finally:
        case.database.drop()


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("sink", ["iceberg", "delta", "parquet"])
def test_every_hostile_name_arrives_or_its_table_is_parked_with_the_reason(
    scenario: Callable[..., Scenario], tmp_path: Path, sink: str
) -> None:
    case = Case(scenario, sink, ALL, TWINS)
    try:
        status = case.live_through()
        parked = {name: one["parked"] for name, one in status.items() if one["status"] != "live"}
        assert parked == {}
        if sink != "parquet":
            assert {table: text for table in case.tables() if (text := case.difference(table))} == {}
            case.command("verify")
            case.command("query", f"SELECT * FROM {quote(FEW[0])}")
            case.command("compact", case.name(FEW[0]), case.name(FEW[1]))
        case.assert_shown()
        case.says("resnapshot", case.name(FEW[2]))
        case.says("signal", "park", case.name(FEW[1]))
        case.assert_read_offline(tmp_path)
        assert not case.canary.exists()
    finally:
        case.database.drop()
