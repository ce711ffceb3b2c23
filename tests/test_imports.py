"""Modules need each other one way, and a sink needs no other one. `test_style.py` has the layers."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

from tests.rust_modules import Module, circles
from tests.test_style import PACKAGE, imports

SHARES_A_SERVER = {("redis_streams", "redis")}
"""A sink, and the one whose options and connection it has, too."""


def test_a_sink_knows_no_other_sink() -> None:
    """What several sinks need is in modules beside their folders. Only the registry knows all sinks."""
    sinks = PACKAGE / "sinks"
    folders = {path.name for path in sinks.iterdir() if (path / "__init__.py").exists()}
    found = set()
    for path in sinks.rglob("*.py"):
        own = path.relative_to(sinks).parts[0]
        others = {module.split(".")[2] for module in imports(path) if module.startswith("penstock.sinks.")}
        found |= {(own, other) for other in others & folders - {own} if own != "registry.py"}
    assert found == SHARES_A_SERVER


def needed(path: Path, modules: Collection[str]) -> set[str]:
    """Those of `modules` that a file imports, also within functions, but not for types alone."""
    found = set()
    ahead: list[ast.AST] = [ast.parse(path.read_text())]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= named & set(modules) or {node.module}
        else:
            for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            ahead += [] if for_types else ast.iter_child_nodes(node)
    return found & set(modules)


def circles_in(package: Path) -> list[list[str]]:
    modules = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    needs: dict[Module, set[Module]] = {
        (name,): {(one,) for one in needed(path, modules) - {name}} for name, path in modules.items()
    }
    return circles(needs)


def test_modules_need_each_other_one_way() -> None:
    """Two modules that need each other are one module, or what they share belongs into a third."""
    assert circles_in(PACKAGE) == []


def test_a_circle_between_modules_is_found(tmp_path: Path) -> None:
    package = tmp_path / "whole"
    package.mkdir()
    files = {
        "__init__.py": "",
        "one.py": "from whole import two\n",
        "two.py": "if TYPE_CHECKING:\n    from whole import one\n",
        "three.py": "from whole.two import later\n",
    }
    for name, code in files.items():
        (package / name).write_text(code)
    assert circles_in(package) == []
    (package / "two.py").write_text("def later():\n    from whole import three\n")
    assert circles_in(package) == [["whole.three", "whole.two"]]
