"""What the scripted source registers. The entry point is like that of a package of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.scripted.server import SERVERS
from tests.scripted.source import ScriptedSource, ScriptedStatements

from penstock.config import PipelineConfig
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.kind import SourceKind, SourceOptions
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter


class ScriptOptions(SourceOptions):
    """A script."""

    type: Literal["script"]
    """Name of the source."""
    server: str
    """The server that plays the script, in this process."""


def _open(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    assert isinstance(config.source, ScriptOptions)
    return ScriptedSource(config, SERVERS[config.source.server])


def _statements(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    return ScriptedStatements()


def install(folder: Path) -> None:
    """Puts into a folder what an installed package would have there: its entry point. With the folder in
    `sys.path`, pipeline files may name the source."""
    info = folder / "penstock_script-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[penstock.sources]\nscript = {__name__}:SCRIPT\n")


SCRIPT = SourceKind(name="script", options=ScriptOptions, open=_open, statements=_statements)
