"""The options of a pipeline file as values, read from the models that validate it.

`penstock options`, docs/options.md and the JSON Schema for editors are generated from these values, so none
of them can differ from what a pipeline accepts. This works for any pydantic model or dataclass. A model
that is nested in another one becomes a section. If an option takes one of several models, each of them
becomes a section of its own.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.config.source_section import OwnSources
from penstock.model.units import Unit
from penstock.secret import Secret

REQUIRED = "required"


@dataclass(frozen=True)
class Option:
    """One option. `name` is the full name (`snapshot.chunk_rows`). `default` is written as in a pipeline
    file, or is `REQUIRED`. `text` says what the option is for."""

    name: str
    type: str
    default: str
    text: str

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "type": self.type, "default": self.default, "text": self.text}


@dataclass(frozen=True)
class OptionSection:
    """The options of one section. `name` is empty for options outside of all sections. `variant`: the
    options exist only for this `type`."""

    name: str
    text: str
    options: tuple[Option, ...]
    variant: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} ({self.variant})" if self.variant else self.name

    def to_json(self) -> dict[str, Any]:
        options = [option.to_json() for option in self.options]
        return {"name": self.name, "variant": self.variant or None, "text": self.text, "options": options}


@dataclass(frozen=True)
class _Field:
    name: str
    annotation: Any
    metadata: tuple[Any, ...]
    default: Any


def sections(model: type) -> list[OptionSection]:
    """All sections. A section comes before those that are nested in it."""
    return list(_sections(model, "", ""))


def docs_of(model: type) -> dict[str, str]:
    """The docstring below each field of a class, including inherited fields."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind.__module__.split(".")[0] in ("builtins", "pydantic", "typing"):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in pairwise(tree.body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = " ".join(inspect.cleandoc(str(below.value.value)).split())
    return found


def _sections(model: type, name: str, variant: str) -> Iterator[OptionSection]:
    docs, options, nested = docs_of(model), list[Option](), list[OptionSection]()
    for field in _fields(model):
        full = f"{name}.{field.name}" if name else field.name
        models = list(_models_in(field.annotation))
        for one in models:
            nested += _sections(one, full, _variant(one) if len(models) > 1 else "")
        if models and not _is_repeated(field.annotation) and not _may_be_a_word(field.annotation):
            continue  # the section has its own text
        text = docs.get(_attribute(model, field.name), "")
        options.append(Option(full, _type_text(field), _default_text(field), text))
    yield OptionSection(name, first_paragraph(model.__doc__), tuple(options), variant)
    yield from nested


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring. The other paragraphs are for readers of the code."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _fields(model: type) -> Iterator[_Field]:
    if issubclass(model, BaseModel):
        for name, info in model.model_fields.items():
            yield _Field(info.alias or name, _written(info), tuple(info.metadata), _default(info))
    else:
        hints = get_type_hints(model, include_extras=True)
        for field in fields(cast(Any, model)):
            default = PydanticUndefined if field.default is MISSING else field.default
            yield _Field(field.name, hints[field.name], (), default)


def _written(info: FieldInfo) -> Any:
    """The type of the value in the file. A validator may convert it."""
    written = [one.json_schema_input_type for one in info.metadata if isinstance(one, BeforeValidator)]
    written += [one.written for one in info.metadata if isinstance(one, OwnSources)]
    return next((one for one in written if one is not PydanticUndefined), info.annotation)


def _default(info: FieldInfo) -> Any:
    return info.get_default(call_default_factory=True) if info.default_factory else info.default


def _attribute(model: type, name: str) -> str:
    """The name of the field for an option that has another name."""
    if issubclass(model, BaseModel):
        return next((one for one, info in model.model_fields.items() if info.alias == name), name)
    return name


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation))


def _models_in(annotation: Any) -> Iterator[type]:
    if _is_model(annotation):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _models_in(part)


def _is_repeated(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple, dict)


def _may_be_a_word(annotation: Any) -> bool:
    """Whether the option takes a section or a text."""
    return get_origin(annotation) in (Union, UnionType) and str in get_args(annotation)


def _variant(model: type) -> str:
    kind = next((field for field in _fields(model) if field.name == "type"), None)
    return "" if kind is None else str(get_args(kind.annotation)[0])


# as text ---------------------------------------------------------------------------------------------------


def _type_text(field: _Field) -> str:
    unit = _unit(field)
    text = unit.name if unit is not None else _name(field.annotation)
    bounds = [*field.metadata, *_annotated(field.annotation)]
    lower = [one.ge for one in bounds if getattr(one, "ge", None) is not None]
    upper = [one.le for one in bounds if getattr(one, "le", None) is not None]
    if lower and (least := max(lower)) > 0:
        text += f", at least {unit.show(least) if unit is not None else least}"
    if upper:
        text += f", at most {unit.show(min(upper)) if unit is not None else min(upper)}"
    return text


def _unit(field: _Field) -> Unit | None:
    found = [*field.metadata, *_annotated(field.annotation)]
    return next((one for one in found if isinstance(one, Unit)), None)


def _annotated(annotation: Any) -> Sequence[Any]:
    """The metadata in `Annotated`, also if the type is optional."""
    if get_origin(annotation) is Annotated:
        return list(annotation.__metadata__)
    if get_origin(annotation) in (Union, UnionType):
        return [one for part in get_args(annotation) for one in _annotated(part)]
    return []


_NAMES: dict[Any, str] = {
    int: "number", float: "number", bool: "`true` or `false`", str: "text", Path: "path",
    Secret: "text or `{file: PATH}`",
}  # fmt: skip


def _name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        names = ["section" if _is_model(part) else _name(part) for part in arguments if part is not NoneType]
        return " or ".join(dict.fromkeys(names))
    if origin is dict:
        return "names with values"
    if origin in (list, tuple):
        return f"list of {_name(arguments[0])}s".replace("ys", "ies")
    entry = "entry" if any(_models_in(annotation)) else str(annotation)
    return _NAMES.get(annotation, entry)


def _default_text(field: _Field) -> str:
    value, unit = field.default, _unit(field)
    if value is PydanticUndefined:
        return REQUIRED
    if value is None or isinstance(value, Secret):
        return "none"
    if unit is not None:
        return unit.show(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str) and _is_text_in_yaml(value):
        return value
    return json.dumps(value)  # quotes a text that YAML would read as another type, or refuse


def _is_text_in_yaml(value: str) -> bool:
    try:
        return isinstance(yaml.safe_load(value), str)
    except yaml.YAMLError:
        return False
