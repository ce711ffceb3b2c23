"""Reads a section of the pipeline file whose `type` decides which options it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.errors import ConfigError
from penstock.model.section import Section

Options = TypeVar("Options", bound=Section)


def read_section(
    section: Any, name: str, base: type[Options], model_of: Callable[[dict[str, Any]], type[Options]]
) -> Options:
    """The options in `section`, checked. Options that are already a `base` are returned as they are.

    `model_of` chooses the model by the section's `type`, and has a default for a section without one. Its
    `ConfigError`, for a type that does not exist, becomes pydantic's error about the option `type`. So it is
    reported together with the other errors in the file. `name` is the name of the section.
    """
    if isinstance(section, base):
        return section
    if not isinstance(section, dict):
        return model_of({}).model_validate(section)
    try:
        model = model_of(section)
    except ConfigError as error:
        why = f"{error.message} {error.hint}".rstrip(". ")
        message = PydanticCustomError("unknown_type", "{why}", {"why": why})
        details = InitErrorDetails(type=message, loc=("type",), input=section.get("type"))
        raise ValidationError.from_exception_data(name, [details]) from None
    return model.model_validate(section)
