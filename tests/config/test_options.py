"""Options read from models: names, types, defaults and texts, for any model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from penstock.config import PipelineConfig
from penstock.config.options import REQUIRED, Option, sections
from penstock.model.units import DURATION, SIZE, Bytes, Milliseconds, Unit
from penstock.secret import Secret


class Paper(BaseModel):
    """Prints.

    Only who reads the code needs to know this.
    """

    type: Literal["paper"] = "paper"
    """What it is."""
    pages_max: int | None = Field(None, ge=1, le=9)
    """Pages at most."""


class Screen(BaseModel):
    type: Literal["screen"] = "screen"
    """What it is."""


@dataclass(frozen=True)
class Rule:
    """One rule."""

    into: str
    """Where it goes."""


class Base(BaseModel):
    wait: Milliseconds | None = None
    """Inherited."""


class Model(Base):
    size: Bytes = 3 * 1024
    """How large."""
    secret: Secret = Secret("abc")
    place: Path
    """Where."""
    names: list[str] = []
    """Which."""
    word: str = "{database}"
    """Named
    in two lines."""
    internal: Annotated[bool, Field(alias="outer")] = False
    """Has another name in the file."""
    rules: tuple[Rule, ...] = ()
    """All rules."""
    out: Annotated[Paper | Screen, Field(discriminator="type")] = Paper()


def test_every_kind_of_option_is_told_by_name_type_default_and_text() -> None:
    [top, *_] = sections(Model)
    assert top.options == (
        Option("wait", "duration, such as 10s", "none", "Inherited."),
        Option("size", "size, such as 256MiB", "3KiB", "How large."),
        Option("secret", "text or `{file: PATH}`", "none", ""),
        Option("place", "path", REQUIRED, "Where."),
        Option("names", "list of texts", "[]", "Which."),
        Option("word", "text", '"{database}"', "Named in two lines."),
        Option("outer", "`true` or `false`", "false", "Has another name in the file."),
        Option("rules", "list of entries", "[]", "All rules."),
    )


def test_models_inside_a_model_are_sections_and_variants_are_told_apart() -> None:
    _, rules, paper, screen = sections(Model)
    assert (rules.name, rules.text) == ("rules", "One rule.")
    assert rules.options == (Option("rules.into", "text", REQUIRED, "Where it goes."),)
    assert (paper.name, paper.variant, paper.text) == ("out", "paper", "Prints.")
    assert paper.options[1] == Option(
        "out.pages_max", "number, at least 1, at most 9", "none", "Pages at most."
    )
    assert (screen.title, screen.text) == ("out (screen)", "")


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        (SIZE, 0, "0"), (SIZE, 1, "1B"), (SIZE, 1536, "1536B"), (SIZE, 2 * 1024**3, "2GiB"),
        (DURATION, 0, "0"), (DURATION, 1500, "1500ms"), (DURATION, 90_000, "90s"),
        (DURATION, 86_400_000, "1d"),
    ],
)  # fmt: skip
def test_a_number_is_shown_in_the_largest_unit_that_is_exact(unit: Unit, value: int, shown: str) -> None:
    assert unit.show(value) == shown


def test_every_option_of_a_pipeline_file_says_what_it_is_for() -> None:
    options = [option for section in sections(PipelineConfig) for option in section.options]
    assert [option.name for option in options if not option.text.endswith((".", "?"))] == []
    assert len({option.name for option in options}) >= 70
