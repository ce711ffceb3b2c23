"""Draws the progress of a pipeline: the screen of `penstock run` and of the demo, the output of `penstock
status`, and a one-line summary for logs. The input is the document of `runtime/progress.py`.

Text from outside (names, reasons, statements) is printed through `commands/terminal.py` and `printable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from penstock.commands.terminal import cell
from penstock.printable import printable, size_text

RETRIES_SHOWN_MAX = 5
"""Causes for which work is being retried, in lines."""
PARKED_SHOWN_MAX = 10
"""Parked tables that the one-line summary names, so that a log of the run stays readable."""
TABLES_SHOWN_MAX = 50
"""Maximum number of tables shown. Drawing a thousand rows twice a second would cost more CPU time than the
pipeline itself."""
TABLES_SHOWN_MIN = 5
"""Minimum number of tables shown, even if the terminal has too few lines."""
LINES_BESIDE_TABLES = 9
"""Lines of the screen that are neither tables nor reasons: the pipeline, the snapshot, the frame of the table
and its line for tables that are not shown, a retry."""
REASONS_SHOWN_SHARE = 1 / 3
"""Largest share of the lines for tables that the reasons of parked tables get."""
REMARKS_WIDTH_MIN = 20
"""Width of the column for remarks, in characters, below which they are shown below their row instead."""
BAR_WIDTH = 40
"""Width of the bar of a snapshot, in characters. It leaves room for the numbers on 80 columns."""


def screen(status: dict[str, Any], *, lines: int | None = None) -> Group:
    """Returns the screen: the pipeline, a bar for its snapshot, its tables, why tables are parked, and what
    is being retried. `lines`: height of the terminal, in which each reason gets one line; or None for no
    limit and whole reasons."""
    parts: list[RenderableType] = [cell(_heading(status), "bold"), cell(_speed(status))]
    if status["snapshot"]["chunks"] and not status["snapshot"]["done"]:
        parts.append(_snapshot(status["snapshot"]))
    if status["snapshot"]["throttled"]:
        parts.append(cell(f"snapshot paused: {status['snapshot']['throttled']}", "yellow"))
    tables_max, reasons_max = _room(status["tables"], lines)
    parts.append(_tables(status["tables"], tables_max, whole=lines is None))
    parts += _reasons(status["tables"], reasons_max, whole=lines is None)
    parts += [cell(line, "yellow") for line in _retries(status["retrying"])]
    return Group(*parts)


def _room(tables: list[dict[str, Any]], lines: int | None) -> tuple[int, int]:
    """How many tables and how many reasons are shown in a terminal of this height."""
    parked = len(_parked(tables))
    if lines is None:
        return TABLES_SHOWN_MAX, TABLES_SHOWN_MAX
    room = lines - LINES_BESIDE_TABLES
    reasons = min(parked, max(1, int(room * REASONS_SHOWN_SHARE)))
    return min(TABLES_SHOWN_MAX, max(TABLES_SHOWN_MIN, room - reasons)), reasons


def summary_line(status: dict[str, Any]) -> str:
    """Returns the progress of the pipeline as one line."""
    snapshot, lag = status["snapshot"], status["lag"]
    parts = [f"epoch {status['epoch']}", f"lag {_seconds(lag['seconds'])}, {size_text(lag['bytes'])}"]
    if snapshot["chunks"] and not snapshot["done"]:
        left = snapshot.get("seconds_left")
        parts.append(
            f"snapshot {snapshot['chunks_placed']}/{snapshot['chunks']} chunks, "
            f"{snapshot['rows_placed']:,} rows" + (f", {time_text(left)} left" if left is not None else "")
        )
    if snapshot["throttled"]:
        parts.append(f"snapshot paused: {snapshot['throttled']}")
    parts += _retries(status["retrying"])
    parked = _parked(status["tables"])
    if parked:
        more = len(parked) - PARKED_SHOWN_MAX
        names = ", ".join(table["table"] for table in parked[:PARKED_SHOWN_MAX])
        parts.append(f"parked: {names}" + (f" and {more:,} more" if more > 0 else ""))
    return "; ".join(parts)


def closing_line(status: dict[str, Any]) -> str:
    """Returns what a run has reached, as one line."""
    count = len(status["tables"])
    rows = status["snapshot"]["rows_placed"]
    read = f"{count:,} table{'s' if count != 1 else ''}, {rows:,} row{'s' if rows != 1 else ''} of snapshots"
    return f"{read}; {summary_line(status)}"


def _heading(status: dict[str, Any]) -> str:
    lag, parked = status["lag"], len(_parked(status["tables"]))
    return (
        f"{status['pipeline']}: epoch {status['epoch']}, lag {_seconds(lag['seconds'])} "
        f"({size_text(lag['bytes'])}, {lag['transactions']:,} transactions)"
        + (f", {parked:,} of {len(status['tables']):,} tables parked" if parked else "")
        + (f", {lacking:,} without their rows" if (lacking := lag.get("tables", 0)) else "")
    )


def _parked(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [table for table in tables if table["status"] == "parked"]


def _speed(status: dict[str, Any]) -> str:
    rates = status.get("rates")
    if not rates:
        return f"{status['snapshot']['rows_placed']:,} rows of snapshots"
    text = (
        f"log {size_text(rates['log_bytes_per_s'])}/s, {rates['transactions_per_s']:,} transactions/s, "
        f"{rates['changes_per_s']:,} changes written/s"
    )
    if not status["snapshot"]["done"] or rates["snapshot_rows_per_s"]:
        text += f", snapshot {rates['snapshot_rows_per_s']:,} rows/s"
    return text


def _snapshot(snapshot: dict[str, Any]) -> Table:
    """Returns the bar of the snapshot, which counts rows. It counts chunks if no rows are known."""
    placed, total = snapshot["rows_placed"], snapshot["rows_placed"] + snapshot["rows_left"]
    if not total:
        placed, total = snapshot["chunks_placed"], snapshot["chunks"]
    left = snapshot.get("seconds_left")
    line = Table.grid(padding=(0, 1))
    line.add_row(
        "snapshot",
        ProgressBar(total=total, completed=placed, width=BAR_WIDTH),
        f"{100 * placed // total} %",
        f"{snapshot['rows_placed']:,} rows, {snapshot['chunks_placed']}/{snapshot['chunks']} chunks",
        f"{time_text(left)} left" if left is not None else "",
    )
    return line


def _tables(tables: list[dict[str, Any]], count: int, *, whole: bool) -> RenderableType:
    """`whole`: remarks may have several lines. Names never have more than one."""
    shown, rows = shown_first(tables, count), []
    for item in shown:
        chunks, state = item["chunks"], _state(item)
        placed = f"{chunks['placed']}/{chunks['total']}" if chunks["total"] else ""
        read = f"{item['rows_placed']:,}" if chunks["total"] else ""  # it got its rows from the log
        if state in ("planning chunks", "snapshot + stream"):
            read = f"{item['rows_placed']:,} of ~{item['rows_estimate']:,}"
        remarks = _fitted(Text(_remarks(item)), whole=whole)
        rows.append((cell(item["table"]), state, placed, read, remarks))
    if more := len(tables) - len(shown):
        others = Text("`penstock status FILE --json` lists all tables.")
        rows.append((Text(f"… and {more:,} more"), "", "", "", _fitted(others, whole=whole)))
    return _WholeTable(rows) if whole else _table(rows)


_Row = tuple[Text, str, str, str, Text]
"""A table's name, its state, its chunks, its rows and remarks."""


def _table(rows: list[_Row], *, remarks: bool = True) -> Table:
    table = Table()
    table.add_column("table", no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    table.add_column("chunks", justify="right", no_wrap=True)
    table.add_column("snapshot rows", justify="right", no_wrap=True)
    if remarks:
        table.add_column("remarks", overflow="fold")  # it gives way to the others: only they have `no_wrap`
    for row in rows:
        table.add_row(*row if remarks else row[:-1])
    return table


@dataclass(frozen=True)
class _WholeTable:
    """Remarks have a column, or lines below their row if that column would be too narrow."""

    rows: list[_Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = _table(self.rows, remarks=False)
        room = options.max_width - console.measure(narrow, options=options).maximum - len(" │ ")
        if room >= REMARKS_WIDTH_MIN or not any(row[-1] for row in self.rows):
            yield _table(self.rows)
            return
        narrow.expand = True
        lines = console.render_lines(narrow, options)  # a row is a line: its cells have `no_wrap`
        for number, line in enumerate(lines, -len(lines) + len(self.rows) + 1):
            yield from (*line, Segment.line())
            if 0 <= number < len(self.rows):
                yield from _framed(self.rows[number][-1], line, console, options.max_width)


def _framed(text: Text, row: list[Segment], console: Console, width: int) -> Iterator[Text]:
    """The lines of a text between the edges of a row."""
    left, right = row[0].text[:1], row[-1].text[-1:]
    for line in text.wrap(console, width - 4) if text else ():
        line.pad_right(width - 4 - line.cell_len)
        yield Text.assemble(left, " ", line, " ", right)


def _fitted(text: Text, *, whole: bool) -> Text:
    """The text, cut to what fits one line unless it shall be shown whole."""
    text.no_wrap, text.overflow = not whole, "fold" if whole else "ellipsis"
    return text


def _reasons(tables: list[dict[str, Any]], count: int, *, whole: bool) -> list[Text]:
    """Why tables are parked. `whole`: with all of the reason and the cure. Otherwise each has one line, and
    the last one says where the rest is."""
    parked = sorted(_parked(tables), key=lambda item: str(item["table"]))
    found = []
    for item in parked[:count]:
        name, reason = str(item["table"]), str(item["parked"]["reason"])
        text = f"parked: {reason}" if name in reason else f"parked: {name}: {reason}"
        line = cell(f"{text} {item['parked']['hint']}".strip() if whole else text, "red")
        found.append(_fitted(line, whole=whole))
    if parked and (not whole or len(parked) > count):
        more = len(parked) - count
        others = f"{more:,} more {'tables are' if more > 1 else 'table is'} parked. " if more > 0 else ""
        found.append(cell(f"{others}`penstock status FILE{'' if not whole else ' --json'}` has all reasons."))
    return found


def shown_first(tables: list[dict[str, Any]], count: int = TABLES_SHOWN_MAX) -> list[dict[str, Any]]:
    """Returns at most `count` tables, by trouble: first those that are parked, then those that wait or catch
    up, then those being read, then the others."""
    return sorted(tables, key=_rank)[: min(max(count, TABLES_SHOWN_MIN), TABLES_SHOWN_MAX)]


def _rank(item: dict[str, Any]) -> int:
    if item["status"] == "parked":
        return 0
    if item["resnapshot_pending"] or item["catching_up"]:
        return 1
    return 2 if item["snapshot"] in ("splitting", "reading") else 3


def _state(item: dict[str, Any]) -> str:
    if item["resnapshot_pending"]:
        return "resnapshot pending"
    if item["catching_up"]:
        return "catching up"
    if item["status"] != "live":
        return str(item["status"])
    return {"splitting": "planning chunks", "reading": "snapshot + stream"}.get(item["snapshot"], "stream")


def _remarks(item: dict[str, Any]) -> str:
    remarks = ""
    if waits := item.get("waits_for"):
        remarks = printable(f"waits for {', '.join(waits['tables'])}")
    elif item["last_change"] and not item["parked"]:
        remarks = printable(_last_change(item["last_change"]))
    verified = printable(_last_verified(item["verified"])) if item["verified"] else ""
    return "\n".join(filter(None, (remarks, verified)))


def _retries(retrying: list[dict[str, Any]]) -> list[str]:
    """Returns a line for each cause of failures: what is retried, since when, and why. Reasons that differ
    only in the table's name count as one cause."""
    causes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for retry in retrying:
        key = retry["what"], retry["reason"].replace(retry["table"] or "", "")
        causes.setdefault(key, []).append(retry)
    found = [_retry(group[0], len(group) - 1) for group in causes.values()]
    more = len(found) - RETRIES_SHOWN_MAX
    return found[:RETRIES_SHOWN_MAX] + ([f"… and {more} more"] if more > 0 else [])


def _retry(retry: dict[str, Any], others: int) -> str:
    what = retry["what"] + (f" of {retry['table']}" if retry["table"] else "")
    if others:
        what += f" and of {others:,} more table{'s' if others > 1 else ''}"
    since = retry["since"][:19].replace("T", " ")
    if not (tried := retry["attempts"]):
        return f"{what} since {since} UTC: {retry['reason']}"
    attempts = f"{tried} attempt{'s' if tried != 1 else ''}"
    return f"retrying {what} since {since} UTC ({attempts}): {retry['reason']}"


def _last_change(change: dict[str, Any]) -> str:
    at = (change["committed"] or change["recorded"])[:19].replace("T", " ")
    return f"version {change['version']} ({at} UTC): {change['what']}, {change['decision']}"


def _last_verified(verified: dict[str, Any]) -> str:
    different = f", {verified['keys_different']:,} keys differ" if verified["keys_different"] else ""
    offset = f", at offset {verified['offset']}" if verified["offset"] is not None else ""
    return f"verified {verified['at'][:19].replace('T', ' ')} UTC: {verified['verdict']}{different}{offset}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f} s"


def time_text(seconds: float) -> str:
    """Formats an estimated time with at most two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
