"""Opens sources. `registry.py` has the list of sources, and `base.py` says what each offers.

`penstock.config` imports this package to read the section `source`, so this package imports little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sources.registry import DEFAULT, kind

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.model.schema import TypeOptions
    from penstock.relaylog.reader import RelayLog
    from penstock.sources.base import Source
    from penstock.sources.statements import Statements
    from penstock.sources.table_filter import TableFilter


def open_source(config: PipelineConfig, *, foreign_keys: bool = False) -> Source:
    """The source of a pipeline. The caller closes it. `foreign_keys`: definitions have the foreign keys that
    cascade, if their changes are not in the log."""
    source: Source = kind(config.source.type).open(config, foreign_keys=foreign_keys)
    return source


def statements_of(log: RelayLog, captured: TableFilter, *, types: TypeOptions) -> Statements:
    """What the statements of a relay log mean, by the source that `relay.json` names."""
    source = log.facts.get("source") or {}
    statements: Statements = kind(source.get("type", DEFAULT)).statements(captured, log, types=types)
    return statements
