"""`penstock docs`: the pages are there for those who only have the package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import penstock
from penstock.commands.docs import docs, pages
from penstock.errors import ConfigError

PACKAGE = Path(penstock.__file__).parent


def test_pages_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    docs(None, as_json=False)
    listed = capsys.readouterr().out
    assert listed.startswith("readme") and re.search(r"^operations +Operations$", listed, re.MULTILINE)
    docs("operations", as_json=False)
    assert capsys.readouterr().out.startswith("# Operations")
    docs("docs/serve.md", as_json=False)
    assert capsys.readouterr().out.startswith("# ")


def test_a_page_that_is_not_there_names_the_one_that_is_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        docs("operation", as_json=False)
    assert "operations" in caught.value.hint


def test_messages_name_pages_that_a_command_shows() -> None:
    """Who installed the package has no `docs/` folder."""
    known, found = pages(), 0
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in docstrings:
                continue
            if not isinstance(node.value, str):
                continue
            assert not re.search(r"docs/[\w-]+\.md|README shows", node.value), f"{path}: {node.value}"
            for name in re.findall(r"`penstock docs ([\w-]+)`", node.value):
                assert name in known, f"{path}: {name}"
                found += 1
    assert found > 10
