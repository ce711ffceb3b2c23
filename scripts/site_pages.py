"""A hook of mkdocs (`mkdocs.yml`): pages of the docs site that stand outside of `docs/`, and their links."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE",
}
"""In the repository, and on the site, which lies in `docs/` as it were."""
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?!\w+://)(?P<target>[^)\s]+)\)")
_TARGET = re.compile(r"(?<=\]\()(?!\w+://|#)[^)\s]+|(?<=<img src=\")[^\"]+")


def on_config(config: Any) -> Any:
    """Decisions are listed by their files."""
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    inside = next(part["Inside"] for part in config["nav"] if "Inside" in part)
    section = next(part for part in inside if "Decisions" in part)
    section["Decisions"] = [f"decisions/{name}" for name in names]
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, target in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, target, content=_TARGET.sub(_moved_into_docs, text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of `docs/` lead to the pages that were brought into it. A link to something else, such as a
    file of the source tree, becomes plain text."""
    here = page.file.src_uri
    if here not in PAGES.values():
        markdown = _TARGET.sub(_moved_out_of_root, markdown)

    def kept(link: re.Match[str]) -> str:
        path = link["target"].partition("#")[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        return link[0] if not path or files.get_file_from_path(place) is not None else link["text"]

    return _LINK.sub(kept, markdown)


def _moved_into_docs(match: re.Match[str]) -> str:
    path, mark, anchor = match[0].partition("#")
    return PAGES.get(path, path.removeprefix("docs/")) + mark + anchor


def _moved_out_of_root(match: re.Match[str]) -> str:
    path, mark, anchor = match[0].partition("#")
    up, name = path.rsplit("../", 1) if "../" in path else ("", path)
    return f"{up}{PAGES[name]}{mark}{anchor}" if "../" in path and name in PAGES else match[0]
