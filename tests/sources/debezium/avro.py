"""Messages in Avro, made from those in JSON: schemas as Confluent's `AvroData` translates them, values by
fastavro. The converter itself is not on Maven Central."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
from tests.encode.registry_server import FakeRegistry
from tests.sources.debezium.messages import Consumed

_PRIMITIVES = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float",
    "double": "double", "string": "string", "bytes": "bytes",
}  # fmt: skip
_LOGICAL = {"Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}
_CONNECT = "org.apache.kafka.connect.data."


class InAvro:
    """Registers schemas as a producer does, one for each of Connect's."""

    def __init__(self, registry: FakeRegistry) -> None:
        self._registry = registry
        self._unnamed = 0

    def message(self, message: Consumed) -> Consumed:
        *place, key, value = message
        return (*place, self.converted(key), self.converted(value))  # type: ignore[return-value]

    def converted(self, text: bytes | None) -> bytes | None:
        if text is None:
            return None
        wrapped, self._unnamed = _with_source(json.loads(text)), 0
        schema = self._type(wrapped["schema"], {})
        body = {"schema": json.dumps(schema)}
        if body not in self._registry.ids:
            self._registry.ids.append(body)
        number = self._registry.ids.index(body) + 1
        out = io.BytesIO()
        parsed = fastavro.parse_schema(json.loads(body["schema"]))
        fastavro.schemaless_writer(out, parsed, _value(wrapped["schema"], wrapped["payload"]))
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()

    def _type(self, connect: dict[str, Any], named: dict[str, Any]) -> Any:
        plain = self._plain(connect, named)
        return ["null", plain] if connect.get("optional") else plain

    def _plain(self, connect: dict[str, Any], named: dict[str, Any]) -> Any:
        kind, name = connect["type"], connect.get("name", "")
        if kind == "struct":
            return self._record(connect, named)
        said: dict[str, Any] = {}
        if name:
            said["connect.name"] = name
        if "parameters" in connect:
            said["connect.parameters"] = connect["parameters"]
        if kind in ("int8", "int16"):
            said["connect.type"] = kind
        if name.startswith(_CONNECT):
            said |= self._logical(name.removeprefix(_CONNECT), connect.get("parameters", {}))
        if kind == "array":
            return {"type": "array", "items": ["null", self._plain(connect["items"], named)], **said}
        if kind == "map":
            return {"type": "map", "values": self._plain(connect["values"], named), **said}
        return {"type": _PRIMITIVES[kind], **said} if said else _PRIMITIVES[kind]

    def _logical(self, name: str, parameters: dict[str, str]) -> dict[str, Any]:
        """fastavro would take numbers for dates, so only decimals name their logical type."""
        if name != "Decimal" or "connect.decimal.precision" not in parameters:
            return {}
        precision = int(parameters["connect.decimal.precision"])
        return {"logicalType": "decimal", "precision": precision, "scale": int(parameters["scale"])}

    def _record(self, connect: dict[str, Any], named: dict[str, Any]) -> Any:
        name = connect.get("name")
        if name is None:
            self._unnamed += 1
            name = f"ConnectDefault{self._unnamed}"
        if named.get(name) == connect["fields"]:
            return name
        named[name] = connect["fields"]
        fields = []
        for field in connect["fields"]:
            one = {"name": field["field"], "type": self._type(field, named)}
            if field.get("optional"):
                one["default"] = None
            fields.append(one)
        return {"type": "record", "name": name.rpartition(".")[2], "namespace": name.rpartition(".")[0],
                "fields": fields, "connect.name": name}  # fmt: skip


def _with_source(wrapped: dict[str, Any]) -> dict[str, Any]:
    """With a schema of the block `source`, which the messages made by hand do without."""
    fields, block = wrapped["schema"]["fields"], wrapped["payload"].get("source")
    if block is not None and not any(one["field"] == "source" for one in fields):
        described = [
            {"field": name, "type": "int64" if isinstance(value, int) else "string", "optional": True}
            for name, value in block.items()
        ]
        named = {"field": "source", "type": "struct", "name": "io.debezium.Source", "fields": described}
        wrapped["schema"] = {**wrapped["schema"], "fields": [*fields, named]}
    return wrapped


def _value(connect: dict[str, Any], value: Any) -> Any:
    if value is None:
        return None
    match connect["type"]:
        case "struct":
            return {one["field"]: _value(one, value.get(one["field"])) for one in connect["fields"]}
        case "bytes":
            return base64.b64decode(value)
        case "array":
            return [_value(connect["items"], one) for one in value]
        case "map":
            return {name: _value(connect["values"], one) for name, one in value.items()}
    return value
