"""Messages for what statements did to whole tables, where a format has any. Pure.

Formats have no messages of their own for all of it. Then the message is as near to the format as possible
(docs/kafka.md): a consumer that rebuilds a table must learn that it was emptied.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock._core import source_fields
from penstock.model.name import quote_part
from penstock.model.schema import TableId


@dataclass(frozen=True)
class At:
    """A place in the log, and in the source's own log. `commit_us`: microseconds since 1970.
    `segment_format`: that of the log, on which it depends what messages say of the place."""

    offset: int
    commit_us: int
    place: str
    segment_format: str


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def truncated(format: str, prefix: str, table: TableId, at: At, catalog: str = "") -> bytes | None:
    """The message of a table that was emptied. None: the format has none. `catalog`: see `TableSchema`."""
    named = {"database": table.database, "table": table.table}
    source = partial(_source, format, prefix, table, at, catalog)
    match format:
        case "json":
            rows = {"op": "t", "before": None, "after": None, "ts_us": at.commit_us}
            return _json({**named, **rows, **source(), "sequence": at.offset})
        case "maxwell":
            return _json({**named, "type": "table-truncate", "ts": at.commit_us // 1_000_000, "data": {}})
        case "canal":
            ms = at.commit_us // 1000
            values: dict[str, Any] = {
                "data": None,
                "es": ms,
                "id": at.offset,
                "isDdl": True,
                "mysqlType": None,
            }
            values |= {
                "old": None,
                "pkNames": None,
                "sql": f"TRUNCATE TABLE {quote_part(table.table)}",
                "sqlType": None,
            }
            return _json({**values, **named, "ts": ms, "type": "TRUNCATE"})
        case "debezium":
            return _json({"before": None, "after": None, "source": source()}
                         | {"transaction": None, "op": "t", **_times(at)})  # fmt: skip
    return None


def _times(at: At) -> dict[str, int]:
    return {"ts_ms": at.commit_us // 1000, "ts_us": at.commit_us, "ts_ns": at.commit_us * 1000}


def _source(format: str, prefix: str, table: TableId, at: At, catalog: str) -> dict[str, Any]:
    """What messages say of the source."""
    found: dict[str, Any] = json.loads(
        source_fields(
            at.segment_format, format, prefix=prefix, place=at.place, at_us=at.commit_us,
            database=table.database, table=table.table, catalog=catalog,
        )
    )  # fmt: skip
    return found
