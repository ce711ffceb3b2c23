"""`penstock snapshot-at FILE [OFFSET]`: versions of all targets that show one place of the source's log, so
that queries over several tables see the same transactions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from penstock import config as configuration
from penstock.commands.terminal import say, say_json
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.runtime.describe import ensure_run
from penstock.state import StateStore
from penstock.verify.subject import NotCompared
from penstock.verify.target_versions import PipelineVersions


def snapshot_at(file: Path, offset: int | None, *, as_json: bool) -> None:
    """Prints the version of each target. All have the log up to one offset, which is at or after `offset`
    (None: the end that the relay log has now). They stay readable for a day."""
    config = configuration.load(file)
    ensure_run(config)
    with closing(StateStore(config.state)) as state:
        log = RelayLog.open(LogPlace.of(config))
        wanted = log.end if offset is None else Offset(offset)
        if wanted > log.end:
            raise ConfigError(
                f"The relay log ends at offset {log.end}, before {wanted}.",
                hint="`penstock status FILE` shows offsets. Without an offset, the end of the log is taken.",
            )
        tables = sorted(table.table for table in state.tables().values() if not table.gone)
        versions = PipelineVersions(config, state, log)
        reached, found = versions.versions_at(tables, log.position_at(committed_from(log, wanted)))
    shown = [
        {"table": str(table), "version": None, "reason": one.reason}
        if isinstance(one, NotCompared)
        else {"table": str(table), "version": one.version}
        for table, one in found.items()
    ]
    if as_json:
        say_json({"offset": int(reached), "tables": shown})
        return
    say(f"offset {reached}")
    for line in shown:
        say(f"{line['table']}: {line.get('reason') or line['version'] or 'as it is now'}")


def committed_from(log: RelayLog, offset: Offset) -> Offset:
    """The smallest known end of a transaction at or after an offset, which may lie inside a transaction and
    is at most the log's end. The log's start if that is later."""
    return log.start if offset <= log.start else log.cut(Offset(offset - 1), 1)
