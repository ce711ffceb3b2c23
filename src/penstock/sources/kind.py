"""What a source registers: its name, its options, and how it is opened.

The pipeline file is read with the options of this module and of each source. So `penstock.config` imports
this module and the registry, and they import nothing of what they open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from penstock.model.section import Section


class SourceOptions(Section):
    """The section `source` of the pipeline file. Every source has a model of its own that derives from this
    one, and gives `type` a `Literal` of its name. An option with a password is a `penstock.config.Secret`."""

    type: str
    """Name of the source."""

    @property
    def begins_at_end(self) -> bool:
        """Whether a new relay log begins at the present end of the source's log. If not, it begins in the
        past, when tables may have had other definitions. A source with an option for this overrides it."""
        return True

    @property
    def named_after_pipeline(self) -> tuple[str, ...]:
        """Options without a value, for which the server has something that is named after the pipeline."""
        return ()

    @property
    def reads_tables(self) -> bool:
        """Whether the rows of a table can be read again from the source."""
        return True

    def beginning(self, *, latest: bool) -> Self:
        """These options; if they do not say where a new relay log begins, it does at the present end of the
        source's log (`latest`), or as far back as that goes."""
        return self

    def beginning_at(self, place: str) -> Self:
        """These options, for a new relay log that has everything behind a place: the text of a
        `SourcePosition`."""
        return self


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A registered source."""

    name: str
    """The value of `source.type` in the pipeline file."""
    options: type[SourceOptions]
    open: Callable[..., Any]
    """`open(config, foreign_keys=…)` makes the `sources.base.Source` of one pipeline, which does not connect
    yet. With `foreign_keys`, definitions have the foreign keys that cascade, if their changes are not in the
    log."""
    statements: Callable[..., Any]
    """`statements(captured, log, types=…)` makes the `sources.statements.Statements` of a relay log of this
    source, as far as the log says. It serves readers that have only the log."""
    read_statement: Callable[..., Any] | None = None
    """`read_statement(statement)` reads the text of a statement in a log of this source's own segment format
    (`sources.statement_reading`). None: its log says definitions itself."""
    of_the_server: frozenset[str] = frozenset()
    """The databases of the server itself, which subscribers do not get."""
    start: type[Any] | None = None
    """A `sources.log_start.LogStart` with places of this source's own log. None: it has no names for them."""
    places: Callable[[], Any] | None = None
    """`places()` makes the `sources.source_places.Places` of this source's own segment format. None: a place
    in one relay log means nothing in another one."""
    canal_places: Callable[[], Any] | None = None
    """`canal_places()` makes the `sources.source_places.CanalPlaces` of this source. None: Canal does not
    know such servers."""
    drop_slot: Callable[..., Any] | None = None
    """`drop_slot(config)` removes what the server keeps of its log for a pipeline, and returns the name of
    the slot; None: there is none. Raises `ConfigError` while it is in use. None: the source's servers keep
    nothing for a pipeline."""
    adopt_server: Callable[..., Any] | None = None
    """`adopt_server(config)` notes that another server has taken the place of the one that the relay log
    follows, with all of its rows and a log that goes on. Returns what it found, for people and for JSON.
    Raises `ConfigError` if it finds that this is not so. None: other servers go on without it."""
    first_file: Callable[[], Any] | None = None
    """`first_file()` returns the `sources.first_file.FirstFile` of this source. None: `penstock init` writes
    no file for it."""
    receive: Callable[..., Any] | None = None
    """`receive(config, stopping)` writes the relay log of a pipeline until it is asked to stop
    (`sources.stop_signals.Stopping`), and raises errors that it cannot retry. It is what `penstock receive`
    runs, and the process of `sources.supervisor`. None: this source needs no process."""
