"""`penstock options [SECTION]`: prints the options of pipeline files. Needs no file."""

from __future__ import annotations

import difflib

from rich.padding import Padding
from rich.text import Text

from penstock.commands.terminal import cell, console, say_json
from penstock.config import PipelineConfig
from penstock.config.options import REQUIRED, OptionSection, sections
from penstock.config.schema import json_schema
from penstock.errors import ConfigError


def options(section: str | None, *, schema: bool, as_json: bool) -> None:
    """Prints the options of a section and of the sections nested in it, or of all sections if `section` is
    None. With `schema`, prints the JSON Schema instead."""
    if schema:
        say_json(json_schema(PipelineConfig), plain=True)
        return
    chosen = _chosen(section)
    if as_json:
        say_json([one.to_json() for one in chosen], plain=True)
        return
    for one in chosen:
        _show(one)


def _chosen(name: str | None) -> list[OptionSection]:
    known = sections(PipelineConfig)
    if name is None:
        return known
    found = [one for one in known if one.name == name or one.name.startswith(f"{name}.")]
    if found:
        return found
    # `name` is a single option: returns its section with this option alone.
    for one in known:
        if options := tuple(option for option in one.options if option.name == name):
            return [OptionSection(one.name, "", options, one.variant)]
    names = [one.name for one in known if one.name]
    near = difflib.get_close_matches(name, names, n=1)
    raise ConfigError(
        f"{name} is neither a section nor an option of a pipeline file.",
        hint=f"Did you mean {near[0]}?" if near else f"Sections: {', '.join(dict.fromkeys(names))}.",
    )


def _show(section: OptionSection) -> None:
    out = console()
    out.print(cell(section.title or "the pipeline", "bold"))
    if section.text:
        out.print(Padding(cell(section.text), (0, 0, 0, 2)))
    for option in section.options:
        default = "required" if option.default == REQUIRED else f"default {option.default}"
        head = Text("  ").append(cell(option.name, "cyan"))
        out.print(head.append(f"  {option.type.replace('`', '')}; {default}"), soft_wrap=True)
        out.print(Padding(cell(option.text), (0, 0, 0, 6)))
    out.print()
