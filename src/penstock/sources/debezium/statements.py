"""What the statements of the log mean: it defines its tables itself."""

from __future__ import annotations

from penstock.relaylog.full_statements import in_full
from penstock.relaylog.reader import RelayLog
from penstock.sources.logged_definitions import LoggedDefinitions
from penstock.sources.table_filter import TableFilter


def statements_of(captured: TableFilter, log: RelayLog) -> LoggedDefinitions:
    return LoggedDefinitions(captured, lambda statement: in_full(log, statement))
