"""Pages made from code are up to date, and links between pages lead to a file and to a heading in it."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.test_style import LAYERS

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|<(?:img|source|a)\b[^>]*?(?:src|srcset|href)=\"([^\"]+)\""
)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_MARKUP = re.compile(r"`|\*\*|\[([^\]]*)\]\([^)]*\)")


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Of the headings, as GitHub and the docs site make them."""
    found: dict[str, int] = {}
    made = set()
    for heading in _HEADING.findall(prose(page)):
        text = _MARKUP.sub(lambda match: match[1] or "", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        made.add(slug if slug not in found else f"{slug}-{found[slug]}")
        found[slug] = found.get(slug, 0) + 1
    return frozenset(made)


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere. Those to other servers are not followed."""
    wrong = []
    for target in (one or other for one, other in _LINK.findall(prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and (place.suffix != ".md" or anchor not in anchors(place))):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("script", ["types_doc.py", "options_doc.py"])
def test_what_is_made_from_code_is_up_to_date(script: str) -> None:
    """The table of types, the options and the JSON Schema."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The `first` one\n\n## What & why\n\n## Twice\n\n## Twice\n\n"
        "[a](#the-first-one) [b](page.md#what--why) [c](#twice-1) [d](https://example.com/x)\n"
        '<img src="none.svg"> [e](#twice-2) [f](gone.md) [g](page.md#x)\n'
        "```\n[h](in-code.md)\n```\n"
    )
    assert broken(page) == ["none.svg", "#twice-2", "gone.md", "page.md#x"]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = re.sub(r"!!python\S*", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    listed = set(re.findall(r"[\w/*-]+\.md|decisions/\*", str(yaml.safe_load(text)["nav"])))
    own = {"index.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "decisions/*"}
    assert listed == own | {path.name for path in ROOT.glob("docs/*.md")}


BASES = (ROOT, ROOT / "src" / "penstock", ROOT / "tests")
FOLDERS = {path.name for base in BASES[:2] for path in base.iterdir() if path.is_dir()}
FOLDERS -= {"state", "cascades"}  # also the names of directories that a pipeline makes


def expanded(path: str) -> list[str]:
    """The paths that a shell makes of braces: `a/{b,c}.py` is two."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", path)
    if match is None:
        return [path]
    ends = expanded(path[match.end() :])
    return [f"{path[: match.start()]}{word}{end}" for word in match[1].split(",") for end in ends]


def is_path(text: str) -> bool:
    """Whether a text in backticks names a file or folder of this project."""
    if not re.fullmatch(r"[\w./{},*-]+", text) or text.startswith("/") or "/" not in text:
        return False
    return text.endswith((".py", ".pyi", ".rs")) or (text.endswith("/") and text.split("/")[0] in FOLDERS)


def exists(path: str, bases: tuple[Path, ...] = BASES) -> bool:
    return any(next(base.glob(path.rstrip("/")), None) for base in bases)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = [text for text in re.findall(r"`([^`\n]+)`", page.read_text("utf-8")) if is_path(text)]
    assert [path for text in named for path in expanded(text) if not exists(path)] == []


def test_every_promise_names_the_files_that_keep_and_test_it() -> None:
    promises = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("\n## Promises\n")[2]
    rows = [line.strip("| ").split(" | ") for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for promise, kept, tested in rows:
        for column, bases in ((kept, BASES[:2]), (tested, BASES[2:])):
            paths = [path for text in re.findall(r"`([^`]+)`", column) for path in expanded(text)]
            assert paths, promise
            assert [path for path in paths if not exists(path, bases)] == [], promise


def test_the_tree_of_the_architecture_has_every_folder() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## The tree")[2].split("```")[1]
    package = ROOT / "src" / "penstock"
    folders = [path.parent.relative_to(package) for path in package.rglob("__init__.py")]
    named = set(re.findall(r"[\w/]+(?=/)", tree))
    wanted = [str(path) for path in folders if path.parts and path.parts[0] != "testing"]
    assert [one for one in wanted if not any(f"/{one}".endswith(f"/{name}") for name in named)] == []


def test_the_layers_of_the_architecture_are_those_that_are_checked() -> None:
    block = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("**Layers.**")[2].split("```")[1]
    named = [set(line.split(", ")) for line in block.strip().splitlines()]
    assert named == [layer for layer in LAYERS if "__init__" not in layer]
