"""`make test-all PART=…` leaves no test out, and runs none twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.parts import PARTS, QUICK_PIPELINES, TESTS, parts_of


def test_every_test_file_belongs_to_exactly_one_part() -> None:
    found = {str(path.relative_to(TESTS)): parts_of(path) for path in TESTS.rglob("test_*.py")}
    assert {name: parts for name, parts in found.items() if len(parts) != 1} == {}
    assert {part for [part] in found.values()} == set(PARTS), "a part without a test"


def test_parts_name_what_exists() -> None:
    places = [place for part in PARTS.values() for place in part]
    assert [place for place in places if not (TESTS / place).exists()] == []
    assert len(places) == len(set(places))


def test_no_more_quick_tests_start_whole_pipelines() -> None:
    found = {
        str(path.relative_to(TESTS)): names
        for folder in ("crash", "scenarios")
        for path in (TESTS / folder).rglob("*.py")
        if (names := set(_quick_pipelines(ast.parse(path.read_text("utf-8")))))
    }
    assert found == QUICK_PIPELINES


def _quick_pipelines(module: ast.Module) -> Iterator[str]:
    """Functions that call `….running()` and are not marked as slow; none if the module is."""
    for node in module.body:
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node) and "slow" in ast.unparse(node):
            return
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and _starts_a_pipeline(node):
            marks = [ast.unparse(one) for one in node.decorator_list]
            if "pytest.mark.slow" not in marks:
                yield node.name


def _starts_a_pipeline(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and not node.args)
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "running" for call in calls)
