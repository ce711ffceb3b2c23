"""The options of the sinks `python` and `http`."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from penstock.model.schema import TableId
from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.sinks.kind import SinkOptions
from penstock.sinks.table_entries import as_text


class PythonOptions(SinkOptions):
    """Changes go to a function of yours (docs/sinks-calls.md)."""

    type: Literal["python"]
    """Name of the sink."""
    function: str
    """The function: `package.module:name`. It is called with `penstock.sinks.calls.sink.Changes`."""
    before_images: bool = False
    """Also pass the row before an update, as `update_preimage`."""

    @field_validator("function")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
            raise ValueError("write package.module:function")
        return value

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # each call names its table


class HttpOptions(SinkOptions):
    """Changes are posted to a URL as JSON lines (docs/sinks-calls.md)."""

    type: Literal["http"]
    """Name of the sink."""
    url: str
    """Where they are posted to. `{database}` and `{table}` are replaced."""
    headers: dict[str, Annotated[Secret, BeforeValidator(as_text, json_schema_input_type=str)]] = Field(
        default_factory=dict
    )
    """Headers of each request, such as `Authorization`. Their values are not shown anywhere."""
    timeout: Milliseconds = Field(30_000, ge=100)
    """How long an answer may take. Then it is tried again."""
    body_bytes: Bytes = Field(1024**2, ge=1024)
    """About so many bytes are in one request. A row is never divided."""
    before_images: bool = False
    """Also post the row before an update, as `update_preimage`."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ValueError("write https://host/path; credentials belong to `sink.headers`")
        return value

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None
