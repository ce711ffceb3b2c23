"""`penstock docs [PAGE]`: shows a page of the documentation that was installed with Penstock."""

from __future__ import annotations

import difflib
from pathlib import Path

from rich.markdown import Markdown

from penstock.commands.terminal import cell, console, say_json
from penstock.errors import ConfigError

PACKAGED = Path(__file__).parents[1] / "pages"
"""Where the wheel has the pages."""
CHECKOUT = Path(__file__).parents[3]
"""The root of a checkout, if this is one."""
README = "readme"
"""The page that begins: what Penstock is, and a pipeline file."""


def docs(page: str | None, *, as_json: bool) -> None:
    """Prints a page, or the list of pages. Raises `ConfigError` for a page that does not exist."""
    found = pages()
    out = console()
    if page is None:
        if as_json:
            say_json({name: title(path) for name, path in found.items()})
            return
        for name, path in found.items():
            out.print(cell(f"{name:20} {title(path)}"), soft_wrap=True)
        return
    name = page.lower().removeprefix("docs/").removesuffix(".md")
    if name not in found:
        close = difflib.get_close_matches(name, found, n=1)
        raise ConfigError(
            f"There is no page {page!r} in the docs.",
            hint=f"Did you mean {close[0]}?" if close else "`penstock docs` lists the pages.",
        )
    text = found[name].read_text("utf-8")
    if as_json:
        say_json({"page": name, "text": text})
    elif out.is_terminal:
        with out.pager(styles=True):
            out.print(Markdown(text))
    else:
        out.print(text, soft_wrap=True)


def pages() -> dict[str, Path]:
    """The pages by their names, `readme` first. Raises `ConfigError` if this installation has none."""
    for readme, folder in ((PACKAGED / "README.md", PACKAGED), (CHECKOUT / "README.md", CHECKOUT / "docs")):
        if readme.is_file() and folder.is_dir():
            others = sorted(path for path in folder.glob("*.md") if path != readme)
            return {README: readme, **{path.stem: path for path in others}}
    raise ConfigError("This installation of Penstock has no pages of docs.", hint="Install it by its wheel.")


def title(page: Path) -> str:
    """The first heading of a page."""
    lines = page.read_text("utf-8").splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "").strip("`")
