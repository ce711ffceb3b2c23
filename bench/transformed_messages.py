"""What transforms cost in front of Kafka: `python -m bench.transformed_messages [SCALE [NAME…]]`.

The backlog of the table `orders` (960,000 changes at scale 1) is written as messages of the format `json`
without transforms, and then with each kind of them, in one run. CPU seconds are those of the driver and of
its JVM, without the broker's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from bench import log as bench_log
from bench import measure, ours
from bench.kafka import JVM
from bench.place import scratch
from penstock.testing import servers

TABLE = "*.orders"
KINDS: Mapping[str, dict[str, Any]] = {
    "no transforms": {},
    "rename, exclude": {"rename": {"amount": "total"}, "exclude": ["attributes"]},
    "mask in part": {"mask": {"name": {"keep_first": 1}}},
    "hash": {"hash": ["note"]},
    "where (Spark SQL)": {"where": "quantity > -40000"},
    "where, columns, cast (Spark SQL)": {
        "where": "quantity > -40000", "columns": {"total": "amount * quantity", "name": "upper(name)"},
        "cast": {"quantity": "bigint"},
    },
    "a function in Python": {"python": "bench.transforms:same"},
}  # fmt: skip


def cost(place: ours.Workplace, rule: dict[str, Any]) -> dict[str, Any]:
    """One run over the whole backlog with a rule."""
    rules = [json.dumps([{"tables": TABLE, **rule}])] if rule else []
    with servers.kafka(jvm=JVM) as brokers:
        program = measure.program(
            "bench.programs.kafka_write",
            place.relay_log(),
            place.schemas_file,
            "json",
            brokers.bootstrap,
            *rules,
        )
        return dict(measure.run(program, timeout_s=1200).report)


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    chosen = {name: rule for name, rule in KINDS.items() if not sys.argv[2:] or set(sys.argv[2:]) & {name}}
    with bench_log.running(scale) as log, scratch() as folder:
        place, least = ours.Workplace(log, folder, 1), 0.0
        changes = log.counts.changes
        for name, rule in chosen.items():
            report = cost(place, rule)
            per_million = report["cpu_s"] / changes * 1e6
            least = least or per_million
            speed = changes / report["wall_s"]
            print(
                f"{name}: {speed:,.0f}/s, {per_million:.1f} CPU-s per million, {per_million - least:+.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
