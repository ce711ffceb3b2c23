"""`make test-all PART=…` leaves no test out, and runs none twice."""

from __future__ import annotations

from tests.parts import PARTS, TESTS, parts_of


def test_every_test_file_belongs_to_exactly_one_part() -> None:
    found = {str(path.relative_to(TESTS)): parts_of(path) for path in TESTS.rglob("test_*.py")}
    assert {name: parts for name, parts in found.items() if len(parts) != 1} == {}
    assert {part for [part] in found.values()} == set(PARTS), "a part without a test"


def test_parts_name_what_exists() -> None:
    places = [place for part in PARTS.values() for place in part]
    assert [place for place in places if not (TESTS / place).exists()] == []
    assert len(places) == len(set(places))
