"""A function for the sink `python` that prints changes as JSON lines: an example, and a try."""

from __future__ import annotations

from penstock.sinks.calls.lines import lines_of
from penstock.sinks.calls.sink import Changes


def print_changes(changes: Changes) -> None:
    for batch in changes.batches:
        for line in lines_of(changes.table, batch):
            print(line, flush=True)
