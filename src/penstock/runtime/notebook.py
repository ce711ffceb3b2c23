"""Documents of a pipeline as a notebook shows them: dictionaries with a table in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.printable import printable, size_text

STYLE = "text-align:left;padding:2px 12px 2px 0"


def _count(items: Sequence[Any], name: str) -> str:
    return f"{len(items):,} {name}{'' if len(items) == 1 else 's'}"


class Status(dict[str, Any]):
    """The document of `penstock status --json`. `print` shows the lines of its tables, a notebook a page."""

    def __str__(self) -> str:
        head, rows = self._head(), [self._row(one) for one in self.get("tables", ())]
        return "\n".join([head, *["  ".join(row) for row in rows]])

    def _repr_html_(self) -> str:
        rows = [self._row(one) for one in self.get("tables", ())]
        return _paragraph(self._head()) + _table(("table", "status", "snapshot", "rows read", "reason"), rows)

    def _head(self) -> str:
        lag = self.get("lag") or {}
        seconds = lag.get("seconds")
        behind = "unknown" if seconds is None else f"{seconds:.1f} s, {size_text(lag['bytes'])}"
        state = "running" if self.get("running") else "not running"
        return f"{self.get('pipeline')}: {state}; epoch {self.get('epoch')}; lag {behind}"

    @staticmethod
    def _row(one: dict[str, Any]) -> tuple[str, ...]:
        parked = one["parked"]
        reason = f"{parked['reason']} {parked['hint']}" if parked else ""
        return (one["table"], one["status"], str(one["snapshot"]), str(one["rows_placed"]), reason)


class Rows(list[dict[str, Any]]):
    """Rows of a query, by column. `print` shows them as lines, a notebook as a table."""

    def __str__(self) -> str:
        return "\n".join(["  ".join(self._names()), *["  ".join(row) for row in self._cells()]])

    def _repr_html_(self) -> str:
        return _table(self._names(), self._cells())

    def _names(self) -> list[str]:
        return [printable(name) for name in (self[0] if self else ())]

    def _cells(self) -> list[list[str]]:
        return [["NULL" if one is None else printable(str(one)) for one in row.values()] for row in self]


class Plan(dict[str, Any]):
    """What a pipeline would do: `tables`, and `findings` about the source, worst first."""

    @property
    def risks(self) -> list[str]:
        """Problems at the source, and what may become one."""
        return [one["message"] for one in self["findings"] if one["level"] != "ok"]

    def __str__(self) -> str:
        rows = ["  ".join(self._row(one)) for one in self["tables"]]
        return "\n".join([self._head(), *rows, *[f"risk: {one}" for one in self.risks]])

    def _repr_html_(self) -> str:
        names = ("table", "target", "key", "rows (estimate)", "chunks", "columns")
        listed = "".join(f"<li>{_safe(one)}</li>" for one in self.risks)
        return (
            _paragraph(self._head())
            + _table(names, [self._row(one) for one in self["tables"]])
            + (f"<ul>{listed}</ul>" if listed else "")
        )

    def _head(self) -> str:
        seconds = self["snapshot_seconds"]
        return (
            f"{_count(self['tables'], 'table')} into {self['sink']}; the first read takes about "
            f"{seconds:,.0f} s; {_count(self.risks, 'risk')}"
        )

    @staticmethod
    def _row(one: dict[str, Any]) -> tuple[str, ...]:
        columns = ", ".join(f"{name} {kind}" for name, kind in one["columns"].items())
        key, target = ", ".join(one["key"]) or "none", ".".join(one["target"])
        return (one["table"], target, key, f"{one['rows_estimate']:,}", f"{one['chunks']:,}", columns)


def _safe(text: str) -> str:
    return html.escape(printable(text))


def _paragraph(text: str) -> str:
    return f"<p>{_safe(text)}</p>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th style="{STYLE}">{_safe(name)}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f'<td style="{STYLE}">{_safe(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
