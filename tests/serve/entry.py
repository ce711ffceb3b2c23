"""Canal's entries, as far as tests read them, for Google's own Protobuf library."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

_TYPES = {"int32": 5, "int64": 3, "string": 9, "bytes": 12, "bool": 8, "enum": 5}
_MESSAGES: dict[str, list[tuple[int, str, str]]] = {
    "Pair": [(1, "key", "string"), (2, "value", "string")],
    "Header": [
        (1, "version", "int32"), (2, "logfileName", "string"), (3, "logfileOffset", "int64"),
        (4, "serverId", "int64"), (5, "serverenCode", "string"), (6, "executeTime", "int64"),
        (7, "sourceType", "enum"), (8, "schemaName", "string"), (9, "tableName", "string"),
        (10, "eventLength", "int64"), (11, "eventType", "enum"), (12, "props", "*Pair"),
        (13, "gtid", "string"),
    ],
    "Entry": [(1, "header", "Header"), (2, "entryType", "enum"), (3, "storeValue", "bytes")],
    "Column": [
        (1, "index", "int32"), (2, "sqlType", "int32"), (3, "name", "string"), (4, "isKey", "bool"),
        (5, "updated", "bool"), (6, "isNull", "bool"), (7, "props", "*Pair"), (8, "value", "string"),
        (9, "length", "int32"), (10, "mysqlType", "string"),
    ],
    "RowData": [(1, "beforeColumns", "*Column"), (2, "afterColumns", "*Column"), (3, "props", "*Pair")],
    "RowChange": [
        (1, "tableId", "int64"), (2, "eventType", "enum"), (10, "isDdl", "bool"), (11, "sql", "string"),
        (12, "rowDatas", "*RowData"), (13, "props", "*Pair"), (14, "ddlSchemaName", "string"),
    ],
    "Packet": [
        (1, "magic_number", "int32"), (2, "version", "int32"), (3, "type", "enum"),
        (4, "compression", "enum"), (5, "body", "bytes"),
    ],
    "Handshake": [
        (1, "communication_encoding", "string"), (2, "seeds", "bytes"), (3, "supported_compressions", "enum"),
    ],
    "ClientAuth": [
        (1, "username", "string"), (2, "password", "bytes"), (3, "net_read_timeout", "int32"),
        (4, "net_write_timeout", "int32"), (5, "destination", "string"), (6, "client_id", "string"),
        (7, "filter", "string"), (8, "start_timestamp", "int64"),
    ],
    "Ack": [(1, "error_code", "int32"), (2, "error_message", "string")],
    "Sub": [(1, "destination", "string"), (2, "client_id", "string"), (7, "filter", "string")],
    "Get": [
        (1, "destination", "string"), (2, "client_id", "string"), (3, "fetch_size", "int32"),
        (4, "timeout", "int64?"), (5, "unit", "int32?"), (6, "auto_ack", "bool"),
    ],
    "BatchOf": [(1, "destination", "string"), (2, "client_id", "string"), (3, "batch_id", "int64")],
    "Messages": [(1, "batch_id", "int64"), (2, "messages", "*bytes")],
}  # fmt: skip


def _classes() -> SimpleNamespace:
    # The package `protobuf` has no types.
    descriptor_pb2, descriptor_pool, message_factory = (
        import_module(f"google.protobuf.{name}")
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    file = descriptor_pb2.FileDescriptorProto(name="canal_test.proto", package="canal_test", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            plain = kind.strip("*?")
            made = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            if plain in _TYPES:
                made.type = _TYPES[plain]
            else:
                made.type, made.type_name = 11, f".canal_test.{plain}"
            if kind.endswith("?"):  # zero is written
                made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"canal_test.{name}"))
        for name in _MESSAGES
    }
    return SimpleNamespace(**found)


CanalEntry: Any = _classes()
