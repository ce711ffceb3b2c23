"""Checks a cluster before anything is planned on it: does a master answer, do the workers have what
Penstock's tasks need, do the jars exist. Each check is limited by `spark.start_timeout`."""

from __future__ import annotations

import json
import platform
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import py4j.java_gateway
import py4j.protocol
import pyarrow as pa
import pyspark
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.failures import error_log
from penstock.failures.messages import advice_of, text_of
from penstock.failures.trace import without_traces

_PROBE = "penstock-probe"
_DEFAULT_PORT = 7077
"""The port of a standalone master whose address names none."""
_CURES = {
    "packed": (
        "Install Python {python} on the workers. If it is not on their PATH, set spark.pyspark.python in "
        "`spark.conf` to its path there. Penstock brings its packages itself, for machines with {machine} "
        "and glibc 2.28 or newer."
    ),
    "none": (
        "Remove `spark.environment: none`, so that Penstock brings its packages. Or install the same release "
        "(pip install penstock=={version}) into the workers' Python {python}, and set spark.pyspark.python "
        "in `spark.conf` to its path there."
    ),
}
"""Cures for missing packages, for each value of `spark.environment`."""

Facts = dict[str, str]


def missing_jars(options: Mapping[str, str]) -> list[str]:
    """Local files that options put on Spark's class path and that do not exist. Spark only logs this and
    continues without them."""
    named = [one.strip() for one in options.get("spark.jars", "").split(",")]
    named += options.get("spark.driver.extraClassPath", "").split(":")
    local = [urlsplit(one).path if one.startswith("file:") else one for one in named]
    return [one for one in local if one.startswith("/") and "*" not in one and not Path(one).exists()]


def refuse_missing_jars(options: Mapping[str, str]) -> None:
    if missing := missing_jars(options):
        raise ConfigError(
            f"{missing[0]} does not exist, but Spark's class path names it.",
            hint="Check spark.jars and spark.driver.extraClassPath in `spark.conf`.",
        )


def masters(master: str) -> list[tuple[str, int]]:
    """Host and port of each master of a standalone cluster; none for other kinds of `spark.master`."""
    if not master.startswith("spark://"):
        return []
    found = []
    for one in master.removeprefix("spark://").split(","):
        host, _, port = one.strip().rpartition(":")
        found.append((host, int(port)) if host and port.isdigit() else (one.strip(), _DEFAULT_PORT))
    return found


def check_master(jvm: Any, master: str, seconds: float) -> None:
    """Raises `ConfigError` if no master of the cluster can be reached. Spark itself would try for a minute
    and then report something else. The JVM makes the connection, because it is the JVM that needs it later.
    """
    addresses = masters(master)
    reasons = [_refuses(jvm, host, port, seconds / len(addresses)) for host, port in addresses]
    if reasons and all(reasons):
        raise ConfigError(
            f"No Spark master answers at {master}: {reasons[0]}.",
            hint="Check `spark.master` and the network, and that the master runs (its web page shows the "
            "address).",
        )


def _refuses(jvm: Any, host: str, port: int, seconds: float) -> str:
    """Why no connection is possible; empty: it is possible."""
    connection = jvm.java.net.Socket()
    try:
        connection.connect(jvm.java.net.InetSocketAddress(host, port), max(1, int(seconds * 1000)))
    except Exception as error:  # whatever the JVM says
        found = re.search(r"java\.(?:net|io|nio)\.[\w.]*?(\w+): ?(.*)", text_of(error))
        return f"{found[2] or found[1]}" if found else "it cannot be reached"
    finally:
        connection.close()
    return ""


def worker_facts(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """The Python of a worker, and what it has installed. Runs in a worker."""
    facts = {"host": socket.gethostname(), **own_facts()}
    for batch in batches:
        yield pa.record_batch({"facts": pa.array([json.dumps(facts)] * batch.num_rows, pa.string())})


def own_facts() -> Facts:
    """The Python of this process, and what it has installed."""
    import penstock
    import penstock._core  # what a worker may lack although the Python part is there

    python = platform.python_version_tuple()
    return {
        "penstock": penstock.__version__,
        "core": str(bool(penstock._core.__name__)),
        "python": f"{python[0]}.{python[1]}",
        "pyspark": pyspark.__version__,
    }


def differences(workers: Sequence[Facts], own: Facts) -> list[str]:
    """How workers differ from the driver, one part of a sentence for each host. Pure."""
    found = []
    for facts in workers:
        other = [
            f"{name} {facts.get(name) or 'missing'} instead of {own[name]}"
            for name in ("penstock", "python", "pyspark")
            if facts.get(name) != own[name]
        ]
        if other:
            found.append(f"{facts.get('host', 'a worker')} has {', '.join(other)}")
    return list(dict.fromkeys(found))


def check_workers(spark: SparkSession, seconds: float, state: Path, environment: str) -> None:
    """Runs one small task per slot that imports the core. Raises `ConfigError` if no executor runs it
    within the limit, or if a worker's Python lacks something. `environment`: the option of this name."""
    own = own_facts()
    cure = _CURES[environment].format(
        version=own["penstock"], python=own["python"], machine=platform.machine()
    )
    answer, error = _within(lambda: _ask(spark), spark, seconds)
    if error is not None:
        raise _workers_lack(error, cure, state) from error
    if answer is None:
        raise ConfigError(
            f"The cluster has run no task of ours within {seconds:.0f} s (`spark.start_timeout`).",
            hint="Check that it has workers with free cores and memory (spark.executor.memory and "
            "spark.cores.max in `spark.conf`), and that they reach this host (spark.driver.host). A cluster "
            "that has to start machines first needs a longer `spark.start_timeout`.",
        )
    if found := differences(answer, own):
        raise ConfigError(f"The workers' Python is not the driver's: {'; '.join(found[:3])}.", hint=cure)


def _ask(spark: SparkSession) -> list[Facts]:
    spark.sparkContext.setJobGroup(_PROBE, "what the workers' Python has", interruptOnCancel=True)
    slots = max(1, min(spark.sparkContext.defaultParallelism, 64))
    rows = spark.range(0, slots, 1, slots).mapInArrow(worker_facts, "facts STRING").collect()
    return [json.loads(row[0]) for row in rows]


def _within(
    ask: Callable[[], list[Facts]], spark: SparkSession, seconds: float
) -> tuple[list[Facts] | None, Exception | None]:
    """The answer, or the error, or neither if the time is up; then the job is cancelled."""
    answers: list[list[Facts]] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = InheritableThread(target=run, name=_PROBE, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        threading.Thread(target=spark.sparkContext.cancelJobGroup, args=(_PROBE,), daemon=True).start()
        return None, None
    return (answers[0] if answers else None), (errors[0] if errors else None)


def _workers_lack(error: Exception, cure: str, state: Path) -> ConfigError:
    text = text_of(error)
    host = re.search(r"Lost task \S+ in stage \S+ \(TID \d+\) \(([^\s)]+)", text)
    advice = advice_of(text, rows=False)
    said = advice.message if advice is not None else without_traces(text)[:300]
    kept = error_log.keep(error, state)
    return ConfigError(
        f"A Spark worker{f' on {host[1]}' if host else ''} cannot run our tasks: {said}",
        hint=cure + (f" Details are in {kept}." if kept else ""),
        **({"log": str(kept)} if kept else {}),
    )


def check_options(spark: SparkSession) -> None:
    """Makes Spark read its SQL options now. If one has an unusable value, PySpark recurses without end: to
    show the error it asks for an option, which fails in the same way. So py4j converts the errors here."""
    converting = py4j.java_gateway.get_return_value
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    try:
        spark._jsparkSession.sessionState().conf()
    finally:
        py4j.java_gateway.get_return_value = converting


def check_version(spark: SparkSession) -> None:
    """Raises `ConfigError` if Spark's jars have another version than PySpark, because SPARK_HOME names
    others."""
    if spark.version.split("-")[0] != pyspark.__version__.split(".dev")[0]:
        raise ConfigError(
            f"Spark's jars are of version {spark.version}, PySpark is {pyspark.__version__}.",
            hint="Unset SPARK_HOME: PySpark then uses its own jars.",
        )
