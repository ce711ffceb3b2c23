"""Which file of the Rust core uses which other: read from its `use` lines and paths, without a compiler.

A file is a module (`frame/branch.rs` is `frame::branch`, `json/mod.rs` is `json`). A path leads to the file
that holds its last part: `crate::column::Walk` leads to `column/walk.rs`, because `column/mod.rs` re-exports
`walk::Walk`. The re-export itself is no use, and neither is `mod walk;`. Code of tests is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

Module = tuple[str, ...]

_NO_CODE = re.compile(r'b?r#".*?"#|b?r".*?"|b?"(?:\\.|[^"\\])*"|//[^\n]*|b?\'(?:\\.|[^\'\\])\'', re.DOTALL)
"""Strings, comments and characters."""
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_MOD = re.compile(r"\bmod\s+(\w+)\s*;")
_PATH = re.compile(r"(?<![\w:])(\w+(?:::\w+)+)")


def modules(source: Path) -> dict[Module, Path]:
    """The files of a crate's `src` by their module; `lib.rs` is the empty path."""
    found = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        if parts[-1] != "tests":
            found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = path
    return found


def code_of(path: Path) -> str:
    """The code of a file without strings, comments and tests."""
    text = path.read_text().split("#[cfg(test)]\nmod tests {", 1)[0]
    return _NO_CODE.sub("", text)


def leaves(tree: str) -> Iterator[tuple[str, str]]:
    """The paths of a `use` tree, each with the name that it gets: `a::{b, c as d}` has `a::b` and `a::c`."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, name = tree.partition(" as ")
        path = path.strip()
        yield path, (name.strip() or path.split("::")[-1])
        return
    depth, part, parts = 0, "", []
    for character in rest[: rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    for inner in filter(str.strip, [*parts, part]):
        for path, name in leaves(inner):
            yield head.strip() + path, name


class Crate:
    """`uses`: the files that each file uses, by module."""

    def __init__(self, source: Path) -> None:
        self.files = modules(source)
        self._code = {module: code_of(path) for module, path in self.files.items()}
        self._exports: dict[Module, dict[str, Module]] = {module: {} for module in self.files}
        for module, code in self._code.items():
            for public, tree in _USE.findall(code):
                for path, name in leaves(tree) if public else ():
                    if (full := self._full(module, path)) is not None:
                        self._exports[module][name] = full
        self.uses = {module: self._uses(module) for module in self.files}

    def _full(self, module: Module, path: str) -> Module | None:
        """A path as seen from the crate's root; None: it leads out of the crate."""
        first, *rest = path.split("::")
        if first == "crate":
            return tuple(rest)
        if first == "self":
            return (*module, *rest)
        if first == "super":
            while rest and rest[0] == "super":
                module, rest = module[:-1], rest[1:]
            return (*module[:-1], *rest)
        return (*module, first, *rest) if first in _MOD.findall(self._code[module]) else None

    def _target(self, full: Module) -> Module:
        """The file that holds what a full path names, past re-exports."""
        at: Module = ()
        while rest := full[len(at) :]:
            if (*at, rest[0]) in self.files:
                at = (*at, rest[0])
            elif rest[0] in self._exports[at]:
                return self._target((*self._exports[at][rest[0]], *rest[1:]))
            else:
                break
        return at

    def _uses(self, module: Module) -> set[Module]:
        code = self._code[module]
        paths = [path for public, tree in _USE.findall(code) if not public for path, _ in leaves(tree)]
        paths += _PATH.findall(_USE.sub("", code))
        full = [found for path in paths if (found := self._full(module, path)) is not None]
        return {self._target(path) for path in full} - {module}


def circles(uses: dict[Module, set[Module]]) -> list[list[str]]:
    """Groups of files each of which needs all others of its group (strongly connected components)."""
    reached = {module: _reachable(uses, module) for module in uses}
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in uses}
    return sorted(sorted("::".join(module) for module in group) for group in groups if len(group) > 1)


def _reachable(uses: dict[Module, set[Module]], start: Module) -> set[Module]:
    found, ahead = set[Module](), [start]
    while ahead:
        for module in uses[ahead.pop()] - found:
            found.add(module)
            ahead.append(module)
    return found
