"""What transforms cost beside decoding and merging: `python -m bench.transforms [SCALE [NAME…]]`.

The backlog of the table `orders` (960,000 changes at scale 1) is merged into Iceberg without transforms, and
then with each kind of them, in one run. The share is of the CPU seconds of a run without them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bench import log as bench_log
from bench import measure, ours, warm
from bench.place import scratch

TABLE = "*.orders"
KINDS: Mapping[str, dict[str, Any]] = {
    "no transforms": {},
    "mask, hash, exclude, rename (Arrow)": {
        "mask": {"name": {"keep_first": 1}}, "hash": ["note"], "exclude": ["attributes"],
        "rename": {"amount": "total"},
    },
    "where, columns, cast (Spark SQL)": {
        "where": "quantity > -40000", "columns": {"total": "amount * quantity", "name": "upper(name)"},
        "cast": {"quantity": "bigint"},
    },
    "a function in Python": {"python": "bench.transforms:same"},
}  # fmt: skip


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def cost(place: ours.Workplace, rule: dict[str, Any]) -> measure.Figure:
    """A merge of the whole backlog with a rule."""
    sections: dict[str, Any] = {"transform_key": "a key for measurements"}
    if rule:
        sections["transforms"] = [{"tables": TABLE, **rule}]
    file = place.pipeline_file(relay=place.relay_log(), sections=sections)
    return place.merged("transforms", file, equal=False)


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    chosen = {name: rule for name, rule in KINDS.items() if not sys.argv[2:] or set(sys.argv[2:]) & {name}}
    warm.prepare_spark()
    with bench_log.running(scale) as log, scratch() as folder:
        place, least = ours.Workplace(log, folder, 1), 0.0
        for name, rule in chosen.items():
            figure = cost(place, rule)
            per_million = figure.cpu_s / figure.changes * 1e6
            least = least or per_million
            speed, share = figure.changes / figure.wall_s, per_million / least - 1
            print(f"{name}: {speed:,.0f}/s, {per_million:.1f} CPU-s per million, {share:+.0%}", flush=True)


if __name__ == "__main__":
    main()
