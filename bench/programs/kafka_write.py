"""Writes the whole relay log to Kafka as a pipeline does, in epochs. Arguments: relay-log schemas-file format
bootstrap, and the rules of `transforms` as JSON (optional). Timed from the first byte of the log to the
acknowledged commit of the last epoch. The CPU time is that of this process and of Spark's, if there are rules
with SQL, without the broker's.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any, cast

import psutil
from pyspark.sql import SparkSession

from penstock.epochs.log_epochs import LogEpochs
from penstock.model.offset import LogRange
from penstock.model.plan import ApplyEvents, EpochPlan, TablePlan
from penstock.model.schema import EXACT_TYPES, TableSchema
from penstock.model.transforms import TransformRule, Transforms
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.secret import Secret
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.sink import KafkaSink
from penstock.spark.transformed_log import TransformedLog

EPOCH_BYTES = 64 * 1024**2


class _State:
    """What `LogEpochs` asks of a state store."""

    def __init__(self) -> None:
        self.uuid = str(uuid.uuid4())


def transformed(sink: KafkaSink, rules: list[dict[str, Any]], folder: Path) -> TransformedLog:
    made = Transforms(TransformRule.model_validate(rule) for rule in rules)
    spark = cast(Any, None)
    if any(rule.uses_sql for rule in made.rules):
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
        spark.range(10).toArrow()
    return TransformedLog(sink, made, spark, Secret("a key for measurements"), letters=folder / "letters")


def cpu_s() -> float:
    """Of this process and of those that it has started, which still run."""
    times = [one.cpu_times() for one in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(one.user + one.system for one in times)


def main() -> None:
    folder, schemas_file, format, bootstrap, *rules = sys.argv[1:]
    options = {"tombstones.on.delete": False} if format == "debezium" else {}
    state = _State()
    section = {"type": "kafka", "bootstrap": bootstrap, "format": format, "options": options}
    kafka = KafkaSink(KafkaOptions.model_validate(section), state.uuid)
    sink = transformed(kafka, json.loads(rules[0]), Path(folder)) if rules else kafka
    sink.begin(0)
    schemas = [TableSchema.from_json(line) for line in Path(schemas_file).read_text().splitlines()]
    for schema in schemas:
        sink.create(schema, cast(Any, None))  # a pipeline does this once, too
    log = RelayLog.open(folder)
    nothing = cast(Any, None)
    epochs = LogEpochs(sink, cast(Any, state), LogPlace(Path(folder)), nothing, nothing, EXACT_TYPES)
    began, cpu_began = time.monotonic(), cpu_s()
    number, at = 0, log.start
    while at < log.end:
        reach = LogRange(at, min(log.cut(at, EPOCH_BYTES), log.end))
        tables = tuple(TablePlan(schema, (ApplyEvents((), "changes", 0),)) for schema in schemas)
        number, at = number + 1, reach.end
        epochs.run(EpochPlan(number, reach, tables), is_first=True)
    report = {"wall_s": time.monotonic() - began, "cpu_s": cpu_s() - cpu_began}
    print(json.dumps({**report, "epochs": number, "topics": [str(one.table) for one in schemas]}), flush=True)
    sink.close()


if __name__ == "__main__":
    main()
