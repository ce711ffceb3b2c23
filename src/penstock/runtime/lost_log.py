"""What a pipeline does when the newest part of its relay log was lost with a disk.

The receiver then goes on from the end E of the archive, and requests the rest from the source again
(`relaylog/archive_restore.py`). It gets the same transactions, but may put them at other offsets: each
connection of the lost receiver began a segment, and each segment begins with some hundred bytes of its own.
So if the pipeline has planned up to a greater offset P, it can no longer say which events were before P. And
rows with sequences up to P are at the targets, while new changes get sequences from E on. Rows are merged by
their sequence, so a new change could lose against an old row.

Therefore the pipeline goes back to E and reads its tables again. Each target is emptied before the first row
is written (`target_reset`), so no old sequence is left. Plans that are not applied are given up, but keep
their numbers: some targets may have recorded them.

That is not possible for a change log, whose changes would be there twice, with sequences that go back. And it
is not done if the pipeline file forbids that tables are read again (`schema.rereads`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from penstock.config import PipelineConfig
from penstock.errors import START_OVER, ConfigError
from penstock.model.offset import Offset
from penstock.model.table import Change, Parked, TableState, TargetReset
from penstock.relaylog.archive_restore import forks_of, lost_after
from penstock.relaylog.reader import RelayLog
from penstock.signals.channels import read_again_after
from penstock.state import StateStore

log = logging.getLogger(__name__)

REASON = "the newest part of the relay log was lost with a disk"
"""Why tables are read again."""
_FORKS = "relay_log_forks"
"""Key in the state: the forks of the log that is planned (`relaylog/archive_restore.py`)."""


def note_log(relay_log: RelayLog, state: StateStore, config: PipelineConfig) -> None:
    """Records which log is planned. Must be called before the first plan of a run, once the receiver has
    begun the log. If a part that was planned is lost, all tables will be read again. Raises `ConfigError` if
    that cannot be done."""
    with state.transaction():
        lost = _lost(relay_log, state)
        if lost is not None:
            _go_back(lost, relay_log, state, config)
        state.set_meta("relay_log", relay_log.uuid)
        state.set_meta(_FORKS, json.dumps(forks_of(relay_log.facts)))


def _lost(relay_log: RelayLog, state: StateStore) -> Offset | None:
    position = state.position
    if position is None:
        return None
    known = json.loads(state.meta(_FORKS) or "[]")
    return lost_after(relay_log.facts, position=position, known=known)


def _go_back(lost: Offset, relay_log: RelayLog, state: StateStore, config: PipelineConfig) -> None:
    cannot = None
    if not config.sink_kind.keeps_tables:
        cannot = "A change log cannot be written again."
    elif not config.rereads_max:
        cannot = "The pipeline file does not let tables be read again."
    elif any(plan.moves for plan in state.pending()):
        cannot = "Targets were being renamed."
    if cannot is not None:
        raise ConfigError(
            f"This pipeline has planned up to offset {state.position}, but the relay log after offset {lost} "
            f"was lost with a disk: {relay_log.place} goes on from its archive, and has other events at "
            f"these offsets. {cannot}",
            hint=f"To continue, {START_OVER}",
            path=str(relay_log.place),
            offset=int(lost),
        )
    log.warning(
        "%s: what followed offset %d. This pipeline had planned up to %s. All tables are read again; each "
        "target is emptied when that begins", REASON, lost, state.position,
    )  # fmt: skip
    state.give_up_pending()
    state.advance(lost)
    read_again_after(state, lost)  # a signal may come at a smaller offset now
    for table in state.tables().values():
        if not table.gone:
            state.end_partials(table.table, REASON)
            state.forget_chunks(table.table)
            state.put_table(_renewed(table))
            state.add_change(Change(table.table, table.schema.version, lost, REASON, "read again"))


def _renewed(table: TableState) -> TableState:
    """The table, to be read again into an empty target. A parked table is read when it is unparked."""
    reset: TargetReset = "recreate" if table.target_reset == "recreate" else "truncate"
    if isinstance(table.phase, Parked):
        return replace(table, phase=replace(table.phase, resumes=None), target_reset=reset)
    return replace(table.read_again(REASON), target_reset=reset)
