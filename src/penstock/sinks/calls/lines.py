"""Changes as JSON lines. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE, own_name
from penstock.sinks.documents import plain
from penstock.sinks.names import source_columns


def lines_of(table: str, batch: pa.RecordBatch) -> Iterator[str]:
    """One JSON object for each change: `table`, `change`, `sequence`, `committed`, and the `row`, in which
    decimals and times are texts and bytes are in Base64."""
    names = source_columns(batch.schema.names)
    columns = [plain(batch.column(name)) for name in names]
    own = [own_name(one, batch.schema.names) for one in (CHANGE_TYPE, SEQUENCE, COMMIT_TIMESTAMP)]
    kinds, sequences, times = (plain(batch.column(name)) for name in own)
    for place, kind in enumerate(kinds):
        document = {
            "table": table,
            "change": kind,
            "sequence": sequences[place],
            "committed": times[place],
            "row": {name: column[place] for name, column in zip(names, columns, strict=True)},
        }
        yield json.dumps(document, ensure_ascii=False)
