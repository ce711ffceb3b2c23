"""How texts of foreign keys compare, by the name of their collation."""

from __future__ import annotations

import pytest

from penstock.model.schema import Column
from penstock.sources.mysql.collations import MySqlComparisons


@pytest.mark.parametrize(
    ("collation", "how"),
    [
        ("utf8mb4_0900_ai_ci", "folded"),
        ("utf8mb4_0900_as_cs", "exact"),
        ("utf8mb4_0900_bin", "exact"),
        ("utf8mb4_general_ci", "folded padded"),
        ("latin1_swedish_ci", "folded padded"),
        ("utf8mb4_bin", "padded"),
        ("utf8mb4_uca1400_nopad_ai_ci", "folded"),
        ("utf8mb4_tr_0900_ai_ci", "unknown"),
        ("utf8mb4_turkish_ci", "unknown"),
        ("binary", "exact"),
    ],
)
def test_texts_compare_as_their_collation_says(collation: str, how: str) -> None:
    charset = collation.partition("_")[0]
    assert MySqlComparisons().of(Column("x", "varchar", charset=charset, collation=collation)) == how
