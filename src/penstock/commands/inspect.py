"""`penstock inspect PATH…`: prints the changes in files of logs and in relay logs, offline.

Changes are printed as they are read, in bounded memory. A damaged file ends the command with exit code 1:
everything before the damage has been printed, and position and reason go to stderr (and into `error` of a
summary). Other problems of the log, such as events that the source lost, do not end it: they are said at the
end, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from penstock import config as configuration
from penstock._core import DecodeError, Inspector
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import cell, console, say, say_json
from penstock.errors import ConfigError
from penstock.model.offset import SegmentSource
from penstock.printable import printable_json
from penstock.relaylog.archive import MANIFEST
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import RELAY_FILE
from penstock.relaylog.segment_bytes import Part
from penstock.relaylog.segment_format import SUFFIXES, SegmentFormat, of_file
from penstock.store.errors import StoreRefused, StoreUnavailable
from penstock.store.opening import open_store

if TYPE_CHECKING:
    from penstock._core import File

ROWS_SHOWN = 100
"""Changes shown in the table, unless `--limit` is given. More are of no use on a terminal."""
_EVENTS_PER_STEP = 10_000
"""Events that the core reads in one call: few calls, and Ctrl-C is noticed between two of them."""
_NUMBERED = re.compile(r"\.\d{6,}$")


@dataclass(frozen=True)
class LogFile:
    """One file of a log. `base`: offset of its first byte. `end`: byte position in the file at which reading
    stops, or None for the end of the file."""

    path: str
    base: int = 0
    end: int | None = None
    source: SegmentSource | None = None
    """Where the bytes are; None: in the file `path`."""

    def bytes(self) -> File:
        part = Part(0, sys.maxsize if self.end is None else self.end)
        return self.path if self.source is None else self.source.open(part)

    def open(self, tables: Sequence[str], *, count_only: bool) -> Inspector:
        return Inspector(
            self.bytes(), base=self.base, end=self.end, tables=list(tables), count_only=count_only
        )


PIPE_WIDTH = 160
"""Width of the table, in characters, if the output is a file or a pipe, which have no width of their own."""


def inspect(
    paths: Sequence[str], *, summary: bool, tables: Sequence[str], limit: int | None, as_json: bool
) -> int:
    """Prints the changes, or counts with `summary`. Returns the exit code: 1 if a file is damaged or the log
    has other problems, otherwise 0."""
    files = [file for path in paths for file in log_files(path)]
    tables = [str(table_named(name)) for name in tables]
    try:
        if summary:
            return _summarise(files, tables, as_json=as_json)
        if as_json:
            return _print_lines(files, tables, limit)
        return _print_table(files, tables, ROWS_SHOWN if limit is None else limit)
    except BrokenPipeError:
        # The reader of our output has closed it. Nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def log_files(name: str) -> list[LogFile]:
    """Returns the files of a path: the file itself, the committed part of a relay log with its archive, or
    the numbered files of a folder. A URL is that of an archive. A pipeline file stands for its relay log."""
    if (log := relay_log_of(name)) is not None:
        return _segments(log)
    path = Path(name)
    if not path.exists():
        raise ConfigError(f"{path} does not exist.", hint="Give files of a log, or directories of them.")
    if not path.is_dir():
        return [LogFile(name)]
    numbered = [entry for entry in path.iterdir() if _NUMBERED.search(entry.name) and entry.is_file()]
    if not numbered:
        raise ConfigError(
            f"{path} contains neither a relay log nor numbered files of a server's log (NAME.000001).",
            hint="Name the files themselves.",
        )
    return [
        LogFile(str(entry))
        for entry in sorted(numbered, key=lambda entry: (entry.stem, int(entry.suffix[1:])))
    ]


def relay_log_of(name: str) -> RelayLog | None:
    """Returns the relay log that a path or URL stands for. None: the path is of other files."""
    path = Path(name)
    if "://" in name:
        return _opened(LogPlace.at(name))
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return _opened(LogPlace.of(configuration.load(path)).or_archive)
    if (path / RELAY_FILE).exists():
        return _opened(LogPlace.at(path))
    if (path / MANIFEST).exists():
        return _opened(LogPlace(None, open_store(path.resolve().as_uri())))
    return None


def _opened(place: LogPlace) -> RelayLog:
    try:
        return RelayLog.open(place)
    except (StoreRefused, StoreUnavailable) as error:
        raise ConfigError(
            f"The older part of {place} is in an archive, which cannot be read: {error.message}",
            hint="Give the pipeline file instead, which says how its store is reached. Or set variables of "
            f"the store, such as AWS_ENDPOINT_URL. Or name the files that are on this "
            f"disk: {place}/*.SUFFIX, with the suffix {' or '.join(SUFFIXES)}",
        ) from error


def _segments(relay_log: RelayLog) -> list[LogFile]:
    """Returns the segments of a relay log, without bytes after the last committed transaction."""
    files = relay_log.place.files
    segments = relay_log.segments()
    ends = [int(name.base) for name in segments[1:]] + [int(relay_log.end)]
    return [
        LogFile(files.path(name), int(name.base), max(end - int(name.base), 0), files.source(name))
        for name, end in zip(segments, ends, strict=True)
    ]


def _print_lines(files: Iterable[LogFile], tables: Sequence[str], limit: int | None) -> int:
    problems: list[dict[str, Any]] = []
    try:
        for lines in _changes(files, tables, limit, problems):
            sys.stdout.writelines(printable_json(line) + "\n" for line in lines)
    except DecodeError as error:
        problems.append(describe(error))
    sys.stdout.flush()
    for problem in problems:
        say_json({"error": problem}, file=sys.stderr)
    return int(bool(problems))


def _changes(
    files: Iterable[LogFile], tables: Sequence[str], limit: int | None, problems: list[dict[str, Any]]
) -> Iterator[list[str]]:
    """Yields the changes of all files in order, as lines of JSON, at most `limit`. Appends to `problems`."""
    left = sys.maxsize if limit is None else limit
    for file in files:
        inspector = file.open(tables, count_only=False)
        while left > 0 and (lines := inspector.next_lines(min(left, 1000))) is not None:
            left -= len(lines)
            yield lines
        problems += json.loads(inspector.summary())["problems"]


def describe(error: DecodeError) -> dict[str, Any]:
    return {"message": error.reason, "file": Path(error.path or "").name, "position": error.offset}


def _print_table(files: Iterable[LogFile], tables: Sequence[str], limit: int) -> int:
    table = Table()
    for title in ("position", "time", "table", "op", "columns"):
        table.add_column(title, overflow="fold", no_wrap=title == "op")
    problems: list[dict[str, Any]] = []
    try:
        for lines in _changes(files, tables, limit, problems):
            for line in lines:
                table.add_row(*map(cell, _cells(json.loads(line))))
    except DecodeError as error:
        problems.append(describe(error))
    out = console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    out.print(table)
    if table.row_count == limit:
        out.print(f"The first {limit} changes; --limit shows more, --json all, --summary counts them.")
    for problem in problems:
        _complain(problem)
    return int(bool(problems))


def _cells(change: dict[str, Any]) -> list[str]:
    time = change["ts"].replace("T", " ").partition(".")[0].removesuffix("Z")
    columns = ", ".join(_columns(change))
    return [f"{change['file']}:{change['pos']}", time, change["table"], change["op"], columns]


def _columns(change: dict[str, Any]) -> Iterator[str]:
    before, after, partial = change["before"] or {}, change["after"] or {}, change.get("partial", ())
    for name in dict.fromkeys([*before, *after, *partial]):
        if name in partial:
            known = _shown(before[name]) if name in before else "?"
            yield f"{name}={known} → (only changes are known)"
            continue
        old, new = before.get(name, after.get(name)), after.get(name, before.get(name))
        yield f"{name}={_shown(old)}" if old == new else f"{name}={_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(value)


_COUNTS = frozenset(("events", "rows", "transactions", "first_ts", "last_ts", "notes", "problems", "error"))
"""What summaries of all formats have."""


@dataclass
class Totals:
    """The sum of the summaries of several files."""

    events: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    first_ts: str | None = None
    last_ts: str | None = None
    executed: dict[str, str] = field(default_factory=dict)
    """The transactions that ended, by what the format calls their set."""
    notes: list[str] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None

    def add(self, part: dict[str, Any], segments: SegmentFormat) -> None:
        self.events.update(part["events"])
        self.rows.update(part["rows"])
        self.transactions += part["transactions"]
        self.first_ts = self.first_ts or part["first_ts"]
        self.last_ts = part["last_ts"] or self.last_ts
        for name in part.keys() - _COUNTS:
            known = segments.transaction_set(self.executed.get(name, ""))
            self.executed[name] = str(known.union(segments.transaction_set(part[name])))
        self.notes += [note for note in part["notes"] if note not in self.notes]
        self.problems += part["problems"]
        self.error = part["error"]

    def to_json(self) -> dict[str, Any]:
        return {
            "events": dict(sorted(self.events.items())),
            "rows": dict(sorted(self.rows.items())),
            "transactions": self.transactions,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            **self.executed,
            "notes": self.notes,
            "problems": self.problems,
            "error": self.error,
        }


def _summarise(files: Iterable[LogFile], tables: Sequence[str], *, as_json: bool) -> int:
    totals = Totals()
    for file in files:
        inspector = file.open(tables, count_only=True)
        try:
            while inspector.next_lines(_EVENTS_PER_STEP) is not None:
                pass
        except DecodeError:
            pass  # the summary contains the error
        totals.add(json.loads(inspector.summary()), of_file(file.path))
        if totals.error is not None:
            break
    if as_json:
        say_json(totals.to_json())
    else:
        _show(totals)
    return int(bool(totals.problems or totals.error))


def _show(totals: Totals) -> None:
    out = console()
    for title, counts in (("event", totals.events), ("rows", totals.rows)):
        table = Table(title, "count")
        table.columns[1].justify = "right"
        for name, count in sorted(counts.items()):
            table.add_row(cell(name), f"{count:,}")
        out.print(table)
    out.print(cell(f"{totals.transactions:,} transactions, {totals.first_ts} to {totals.last_ts}"))
    for name, executed in totals.executed.items():
        if executed:
            out.print(cell(f"{name}: {executed}"))
    for note in totals.notes:
        out.print(cell(f"Note: {note}."))
    for problem in [*totals.problems, *filter(None, [totals.error])]:
        _complain(problem)


def _complain(error: dict[str, Any]) -> None:
    text = f"penstock: {error['file']} at position {error['position']}: {error['message']}."
    say(text, file=sys.stderr)
