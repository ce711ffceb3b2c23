"""The result of a verification, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.verify.subject import TEMPORARY, NotCompared, Why

KEYS_LISTED = 100
"""Differing keys that are listed per table, so that a report stays readable. All are counted."""


@dataclass(frozen=True)
class DifferentKey:
    """`key` maps key columns to their values as the server prints them (binary ones in hexadecimal)."""

    key: dict[str, str | None]
    kind: str

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "kind": self.kind}


@dataclass(frozen=True)
class TableReport:
    """The result for one table. `equal` only if nothing differs and nothing is unverified."""

    table: TableId
    rows_source: int = 0
    rows_target: int = 0
    offset: Offset | None = None
    """The offset at which both sides were read."""
    ranges: int = 0
    ranges_different: list[str] = field(default_factory=list)
    keys_different: list[DifferentKey] = field(default_factory=list)
    keys_not_listed: int = 0
    """Number of differing keys, or keys in differing ranges, that are not listed."""
    unverified: int = 0
    """Number of keys that changed in every round."""
    error: str | None = None
    """Why a table that should be equal could not be compared."""
    not_compared: NotCompared | None = None
    """Why the table is not expected to be equal."""

    @property
    def equal(self) -> bool:
        return (
            self.error is None
            and self.not_compared is None
            and not self.ranges_different
            and not self.keys_different
            and not self.keys_not_listed
            and not self.unverified
        )

    @property
    def verdict(self) -> str:
        if self.not_compared is not None:
            return "not compared"
        if self.error is not None:
            return "not verified"
        return "equal" if self.equal else "different" if self.keys_different else "not proven equal"

    def summary(self) -> dict[str, Any]:
        """The summary that `penstock status` shows later."""
        different = len(self.keys_different) + self.keys_not_listed
        return {"verdict": self.verdict, "keys_different": different, "offset": self.offset}

    def to_json(self) -> dict[str, Any]:
        if self.not_compared is not None:
            return {"table": str(self.table), **self.not_compared.to_json()}
        return {
            "table": str(self.table),
            "equal": self.equal,
            "rows_source": self.rows_source,
            "rows_target": self.rows_target,
            "offset": self.offset,
            "ranges": self.ranges,
            "ranges_different": self.ranges_different,
            "keys_different": [key.to_json() for key in self.keys_different],
            "keys_not_listed": self.keys_not_listed,
            "unverified": self.unverified,
            "error": self.error,
        }

    def lines(self) -> list[str]:
        """The report for people: one line for the table, and one for each difference."""
        if self.not_compared is not None:
            return [f"{self.table}: not compared ({self.not_compared.why.value}). {self.not_compared.reason}"]
        if self.error is not None:
            return [f"{self.table}: not verified. {self.error}"]
        verdict = "equal" if self.equal else self.verdict.upper()
        counts = f"{self.rows_source:,} rows at the source, {self.rows_target:,} at the target"
        lines = [f"{self.table}: {verdict}, {counts}"]
        lines += [f"  different rows in {name}" for name in self.ranges_different[:KEYS_LISTED]]
        for key in self.keys_different:
            values = ", ".join(f"{name}={value}" for name, value in key.key.items())
            lines.append(f"  {key.kind}: {values}")
        if self.keys_not_listed:
            lines.append(f"  about {self.keys_not_listed:,} more keys are not listed")
        if self.unverified:
            lines.append(f"  {self.unverified:,} keys changed in every round and could not be verified")
        return lines


ALL_EQUAL, DIFFERENT, SOME_PARKED, NOT_YET = 0, 1, 4, 6


def exit_code(reports: Iterable[TableReport], *, named: bool) -> int:
    """The exit code of a command. `named`: the tables were named on the command line.

    0: every table that should be equal is equal. 1: one differs or could not be compared. If nothing differs,
    4: tables are parked; 6: tables are still being read, or one that was named is not compared."""
    reports = list(reports)
    left_out = {report.not_compared.why for report in reports if report.not_compared is not None}
    if any(report.not_compared is None and not report.equal for report in reports):
        return DIFFERENT
    if Why.PARKED in left_out:
        return SOME_PARKED
    return NOT_YET if left_out & TEMPORARY or (named and left_out) else ALL_EQUAL
