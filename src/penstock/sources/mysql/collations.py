"""How MySQL and MariaDB compare texts, by the name of the collation."""

from __future__ import annotations

from penstock.cascades.comparison import Comparison
from penstock.model.schema import Column

_FOLDED = ("general_ci", "unicode_ci", "unicode_520_ci", "swedish_ci", "0900_ai_ci", "0900_as_ci",
           "uca1400_ai_ci", "uca1400_as_ci", "unicode_520_nopad_ci", "general_nopad_ci", "unicode_nopad_ci",
           "uca1400_nopad_ai_ci", "uca1400_nopad_as_ci")  # fmt: skip
"""Collations without language-specific rules, under which printable ASCII differs only by case."""
_CASED = ("0900_as_cs", "general_cs", "uca1400_as_cs", "uca1400_nopad_as_cs")


class MySqlComparisons:
    """`cascades.comparison.Comparisons`."""

    def of(self, column: Column) -> Comparison:
        if column.charset in (None, "binary") or column.collation in (None, "binary"):
            return "exact"
        collation = str(column.collation)
        name = collation.partition("_")[2]
        padded = not name.startswith("0900_") and "nopad" not in name
        if name == "bin" or name.endswith("_bin"):
            return "padded" if padded else "exact"
        if name in _FOLDED:
            return "folded padded" if padded else "folded"
        if name in _CASED:
            return "padded" if padded else "exact"
        return "unknown"

    def is_case_sensitive(self, column: Column) -> bool:
        return str(column.collation or "bin").endswith("bin") or column.charset in (None, "binary")
