"""Encodes the whole relay log as messages, on one thread. Arguments: relay-log schemas-file format passes.

Told is the pass with the median wall time. Each begins from nothing; a first one, not timed, counts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from penstock._core import EncodedMessages, LogEncoder
from penstock.model.offset import LogRange
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog

OPTIONS = {format: {"tombstones_on_delete": False} for format in ("debezium", "avro", "protobuf")}
"""A tombstone is no change of its own."""


def main() -> None:
    folder, schemas_file, format, passes = sys.argv[1:]
    log = RelayLog.open(folder)
    schemas = Path(schemas_file).read_text().splitlines()
    tables = [(schema["database"], schema["table"]) for schema in map(json.loads, schemas)]

    def encode() -> int:
        encoder = LogEncoder(
            parts_of(log, LogRange(log.start, log.end)), format, options=json.dumps(OPTIONS.get(format, {})),
            schemas=schemas, tables=tables,
        )  # fmt: skip
        messages = 0
        while (step := encoder.read()) is not None:
            if isinstance(step, EncodedMessages):
                messages += len(step)
        return messages

    messages = encode()
    timed = []
    for _ in range(int(passes)):
        began, cpu_began = time.monotonic(), time.process_time()
        assert encode() == messages
        timed.append((time.monotonic() - began, time.process_time() - cpu_began))
    wall_s, cpu_s = sorted(timed)[(len(timed) - 1) // 2]
    print(json.dumps({"messages": messages, "wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main()
