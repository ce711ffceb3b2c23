"""Files of options: reads YAML, replaces `${NAME}` by environment variables, and explains what is wrong in
words that name the option and the cure. Pipeline files and files of `penstock serve` are read so."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from penstock.config.messages import in_words
from penstock.config.sink_section import options_model as sink_model
from penstock.config.source_section import options_model as source_model
from penstock.errors import ConfigError
from penstock.sinks import registry
from penstock.sinks.kind import SinkOptions
from penstock.sources.kind import SourceOptions

_SPECIAL = "Put values with special characters, such as passwords, in single quotes."


def read(path: Path, what: str, page: str) -> dict[str, Any]:
    """The options in a file, as they are written. `what`: "pipeline file", for messages. `page`: the page of
    docs that shows one. Raises `ConfigError`."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"The {what} {path} cannot be read: {error.strerror}.",
            hint=f"Give the path of a YAML file; `penstock docs {page}` shows one.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {what} {path} is not UTF-8 text: {error}.") from error
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # What PyYAML says of it quotes the line, and that may be the one with the password.
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise ConfigError(f"The {what} {path} is not valid YAML{place}.", hint=_cure(error, text)) from None
    except RecursionError:
        raise ConfigError(f"The {what} {path} is nested too deeply.") from None
    if not isinstance(document, dict):
        raise ConfigError(f"The {what} {path} holds no options.", hint=f"`penstock docs {page}` shows one.")
    found: dict[str, Any] = expanded(document, path)
    return found


def _cure(error: yaml.YAMLError, text: str) -> str:
    """What may be wrong with a text that is not YAML."""
    mark, opened = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    context = str(getattr(error, "context", "") or "")
    if mark is not None and _has_tab(text, mark.line):
        return "Indent with spaces: YAML allows no tabs there."
    if opened is not None and "flow" in context:
        bracket = "{" if "mapping" in context else "["
        place = f"line {opened.line + 1}, column {opened.column + 1}"
        return f"The {bracket} in {place} is not closed, or a comma is missing behind it. {_SPECIAL}"
    if opened is not None and "quoted scalar" in context:
        return f"The quote that begins in line {opened.line + 1}, column {opened.column + 1} is not closed."
    if "mapping values are not allowed" in str(getattr(error, "problem", "")):
        return "Check the indentation of this line and of the one before. " + _SPECIAL
    return _SPECIAL


def _has_tab(text: str, line: int) -> bool:
    """Whether the line (from 0) is indented with a tab."""
    found = text.splitlines()[line : line + 1]
    return bool(found) and "\t" in found[0][: len(found[0]) - len(found[0].lstrip())]


def expanded(value: Any, path: Path | str) -> Any:
    """The value with `${NAME}` replaced by environment variables. `path`: the option that has the value, for
    messages."""
    if isinstance(value, dict):
        return {name: expanded(item, path) for name, item in value.items()}
    if isinstance(value, list):
        return [expanded(item, path) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigError(
                f"{path} uses ${{{match[1]}}}, but the environment variable {match[1]} is not set.",
                hint=f"export {match[1]}=...",
            )
        return os.environ[match[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replace, value)


def explained(error: ValidationError, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    """What is wrong with the options, without a full stop. `model`: what the file describes."""
    return "; ".join(_explain(item, model, document) for item in error.errors())


def _explain(item: Any, model: type[BaseModel], document: Mapping[str, Any]) -> str:
    location = [str(part) for part in item["loc"]]
    where = ".".join(location)
    sink = f" of the sink {_sink_type(document)}" if location[:1] == ["sink"] else ""
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        meant = _meant(location, model, document)
        return f"unknown option `{where}`{sink}" + (f" (did you mean `{meant}`?)" if meant else "")
    if item["type"] == "missing":
        return f"option `{where}`{sink} is missing"
    message = in_words(item["type"], item["input"], item["msg"].removeprefix("Value error, "))
    return f"option `{where}`: {message}" if where else message


def _meant(location: list[str], model: type[BaseModel], document: Mapping[str, Any]) -> str:
    """The option that somebody may have meant by an unknown one: one of the source or the sink that has this
    name, or else one of the same section with a similar name. Empty if there is none."""
    *section, name = location
    for other in ("source", "sink"):
        with contextlib.suppress(ConfigError):  # there is no source or sink of this type, which is said, too
            if section != [other] and name in option_names(model, [other], document):
                return f"{other}.{name}"
    with contextlib.suppress(ConfigError):
        return next(iter(difflib.get_close_matches(name, option_names(model, section, document), n=1)), "")
    return ""


def _sink_type(document: Mapping[str, Any]) -> str:
    section = document.get("sink")
    return str(section.get("type", registry.DEFAULT.name)) if isinstance(section, dict) else ""


def option_names(model: Any, location: Sequence[str], value: Any) -> list[str]:
    """The names of the options of the section at `location`, in the file's `value` of `model`. Empty if
    nothing is known of it. Raises `ConfigError` for a source or sink of an unknown type."""
    for name in location:
        value = _item(value, name)
        model = _section(_member(model, name), value)
    if is_dataclass(model):
        return [option.name for option in fields(model)]
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _item(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    return value[int(name)] if isinstance(value, list) and name.isdigit() and int(name) < len(value) else None


def _member(model: Any, name: str) -> Any:
    """The annotation of an option of a section, or of an entry of a list or a mapping."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        field = next((f for n, f in model.model_fields.items() if name == (f.alias or n)), None)
        return None if field is None else field.annotation
    for one in _parts(model):
        if get_origin(one) in (list, tuple, dict):
            return get_args(one)[-1 if get_origin(one) is dict else 0]
    return None


def _section(annotation: Any, value: Any) -> Any:
    """The section that an annotation stands for. If it may be one of several, the one that `type` names."""
    kinds = [one for one in _parts(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    written = value if isinstance(value, dict) else {}
    for one in kinds:
        if one is SourceOptions:
            return source_model(written)
        if one is SinkOptions:
            return sink_model(written)
        kind = one.model_fields.get("type")
        if len(kinds) > 1 and kind is not None and written.get("type") in get_args(kind.annotation):
            return one
    return kinds[0] if kinds else annotation


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, or those that it is a union of, without what is said about them."""
    origin = get_origin(annotation)
    if origin in (list, tuple, dict) or not get_args(annotation):
        yield annotation
        return
    for one in get_args(annotation):
        yield from _parts(one)
