"""Writes docs/options.md, docs/serve-options.md and the JSON Schema of pipeline files from the models that
check them: `python scripts/options_doc.py`; with `--check` it only compares."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.config.options import REQUIRED, Option, OptionSection, sections
from penstock.config.schema import SCHEMA_FILE, schema_text
from penstock.serve.settings import DestinationSection, ServerConfig, UserSection

DOCS = Path(__file__).parent.parent / "docs"
PAGE, SERVER_PAGE = DOCS / "options.md", DOCS / "serve-options.md"

HEAD = """# Options of a pipeline file

Every option, with its type, its default and what it is for. `scripts/options_doc.py` makes this page from
the code that checks pipeline files; `penstock options` shows the same at a terminal (`penstock options
snapshot`: one section).

A size is a number of bytes, or a text with its unit: `64KiB`, `256MiB`, `1GiB`. A duration is a number of
milliseconds, or a text with its unit: `500ms`, `10s`, `5min`, `1h`, `7d`. `${NAME}` in any value is
replaced by the environment variable of that name. Relative paths count from the folder of the pipeline
file. An option that is not known is an error that names the nearest one.

Editors that read JSON Schema complete options and mark mistakes. The first line of a file that `penstock
init` writes names the schema of the installed package. `penstock options --schema` prints it, to be kept
beside pipeline files that others edit too:

```yaml
# yaml-language-server: $schema=penstock.schema.json
```

Rules that join several options (`cascades: apply` needs a sink with tables) are not part of the schema;
`penstock doctor` checks them.
"""


SERVER_HEAD = """# Options of a subscription server

Every option of the file of [`penstock serve`](serve.md). `scripts/options_doc.py` makes this page from the
code that checks the file. Sizes, durations, `${NAME}` and relative paths are written as in [pipeline
files](options.md).
"""


OF_PIPELINES = {"source", "relay_log", "store"}
"""Sections that have the options of a pipeline file."""


def server_page() -> str:
    found = [one for one in sections(ServerConfig) if not OF_PIPELINES & set(one.name.split("."))]
    for name, model in (("destinations.NAME", DestinationSection), ("users.NAME", UserSection)):
        found += [_below(name, one) for one in sections(model)]
    pages = "".join(f"\n{_section(one)}" for one in found)
    same = ", ".join(f"`{name}`" for name in sorted(OF_PIPELINES))
    text = f"\nThe sections {same} are those of a [pipeline file](options.md).\n"
    return SERVER_HEAD + pages.replace("## The pipeline\n", "## The server\n", 1) + text


def _below(name: str, section: OptionSection) -> OptionSection:
    """A section whose options are those of one destination or user."""
    where = f"{name}.{section.name}" if section.name else name
    options = tuple(replace(one, name=f"{name}.{one.name}") for one in section.options)
    return replace(section, name=where, options=options)


def page() -> str:
    return HEAD + "".join(f"\n{_section(one)}" for one in sections(PipelineConfig))


def _section(section: OptionSection) -> str:
    title = f"`{section.name}`" if section.name else "The pipeline"
    variant = f", `type: {section.variant}`" if section.variant else ""
    text = f"{section.text}\n\n" if section.text else ""
    return f"## {title}{variant}\n\n{text}" + "\n".join(map(_option, section.options))


def _option(option: Option) -> str:
    default = REQUIRED if option.default == REQUIRED else f"default `{option.default}`"
    return f"**`{option.name}`**: {option.type}; {default}. {option.text}\n"


def main() -> int:
    made = {PAGE: page(), SERVER_PAGE: server_page(), SCHEMA_FILE: schema_text(PipelineConfig)}
    if "--check" not in sys.argv:
        for path, text in made.items():
            path.write_text(text, "utf-8")
        return 0
    old = [path.name for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    print(f"{', '.join(old)} differ: run scripts/options_doc.py" if old else "options are up to date")
    return int(bool(old))


if __name__ == "__main__":
    sys.exit(main())
