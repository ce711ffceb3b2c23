"""The Spark session of a pipeline: every option with its reason. It writes no files outside the given
directories."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pyspark import InheritableThread, SparkConf, SparkContext
from pyspark.sql import SparkSession

import penstock
from penstock.artifacts.maven import java
from penstock.config import SinkOptions, SparkConfig
from penstock.config.sections import FIXED_OF_SPARK
from penstock.disk.directory import PRIVATE
from penstock.errors import ConfigError, PenstockError
from penstock.failures.messages import spark_failed, tail
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.jars import jars
from penstock.spark import cluster, environment, jvm
from penstock.spark.classes import java_options
from penstock.steps import step

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {pattern}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXX}} %p %c{{1}}: %enc{{%m}}{{CRLF}}%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 4
"""

TASK_ATTEMPTS_MAX = 4
"""Attempts at a task on a local master, the default of clusters."""
START_SECONDS = 120.0
"""Limit for reaching a cluster, if the caller gives none: the default of `spark.start_timeout`."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_EXECUTOR_VARIABLE = "spark.executorEnv."

_MERGED = (
    "spark.jars",
    "spark.archives",
    "spark.executorEnv.PYTHONPATH",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.sql.extensions",
)
"""Options to which a user's `spark.conf` is added instead of replacing them."""

_SEPARATORS = {
    "spark.executorEnv.PYTHONPATH": os.pathsep,
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
}
"""Separators in the values of such options. Others use commas."""


def build_session(
    spark_config: SparkConfig,
    sink: SinkOptions,
    state: Path,
    *,
    variables: Mapping[str, Secret] = MappingProxyType({}),
) -> SparkSession:
    """Starts Spark for one pipeline. Its log is `state/logs/spark.log`, its scratch space `state/tmp`.
    `variables`: of the environment of executors on other machines (`config.executor_variables`).

    The JVM's own output goes to `state/logs/spark.stderr`; errors reach the user as Python exceptions.
    Raises `ConfigError` if Java is missing or too old, jars cannot be fetched, Spark refuses to start, or
    the workers of a cluster lack something; `SparkFailed` for other failures of Spark.
    """
    seconds = spark_config.start_timeout / 1000
    options = session_options(spark_config, [sink], state)
    options |= {f"{_EXECUTOR_VARIABLE}{name}": value.reveal() for name, value in variables.items()}
    spark = start(options, spark_config.master, state, seconds=seconds)
    if not is_local(spark_config.master):
        try:
            cluster.check_workers(spark, seconds, state, spark_config.environment)
            fit_shuffles(spark, options)
        except BaseException:
            spark.stop()
            raise
    return spark


def fit_shuffles(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Gives shuffles two partitions for each core of a cluster of fixed size. Spark's default is 200, and
    streams cannot put small ones together: on three cores, a MERGE of few rows would take a minute."""
    fixed = options.get("spark.dynamicAllocation.enabled", "false") == "false"
    if fixed and SHUFFLE_PARTITIONS not in options:
        spark.conf.set(SHUFFLE_PARTITIONS, str(2 * spark.sparkContext.defaultParallelism))


def start(
    options: dict[str, str], master: str, state: Path, *, seconds: float = START_SECONDS
) -> SparkSession:
    """Starts the JVM with these options. Refused while another session exists in this process."""
    if SparkContext._active_spark_context is not None:
        raise ConfigError(
            "A Spark session is already running in this process, and a pipeline needs its own options.",
            hint="Stop it first (spark.stop()), or run the pipeline in a process of its own.",
        )
    step("starting Spark")
    java()
    cluster.refuse_missing_jars(options)
    # On a local master, executors run in this process's JVM, so they use this interpreter and not the
    # `python3` of the PATH.
    python = sys.executable if is_local(master) else options[environment.PYTHON]
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(options.items()))
    said, log = state / "logs" / "spark.stderr", state / "logs" / "spark.log"
    log_start = log.stat().st_size if log.exists() else 0
    try:
        if SparkContext._gateway is None:
            with said.open("wb") as file:
                first = SparkConf(loadDefaults=False).setAll(list(at_launch(options).items()))
                gateway = jvm.launch(first, file)
            SparkContext._ensure_initialized(gateway=gateway)
        cluster.check_master(SparkContext._jvm, master, seconds)
        with environment.tasks_run(python):
            context = SparkContext(conf=conf)
        _keep_from_tasks(context)
        spark = SparkSession(context)
        cluster.check_options(spark)
        cluster.check_version(spark)
    except PenstockError:
        raise
    except Exception as error:
        logs = f"{tail(said)}\n{tail(log, start=log_start)}"
        raise spark_failed(error, "Spark did not start", state, rows=False, logs=logs) from error
    return spark


_SECRET = re.compile(
    r"secret|password|passwd|token|credential|authorization|api[.-]?key|access[.-]?key|://[^/\s]*:[^/\s]*@",
    re.IGNORECASE,
)


def at_launch(options: Mapping[str, str]) -> dict[str, str]:
    """The options in the arguments of the JVM's process. Every account of the machine can read these, so
    options that may contain a secret are left out. They are passed later, with the Spark context."""
    return {
        name: value
        for name, value in options.items()
        if not (name.startswith("spark.sql.catalog.") or _SECRET.search(name) or _SECRET.search(value))
    }


def _keep_from_tasks(context: SparkContext) -> None:
    """Keeps PySpark from sending the variables of executors with each task: block managers store tasks in
    files. On a cluster, the executors' processes have the variables already."""
    if is_local(str(context.master)):
        return
    for name in [one for one in context.environment if _SECRET.search(one)]:
        del context.environment[name]


def warm_up(spark: SparkSession) -> None:
    """Starts the Python workers and runs a first small job, in its own thread. This only saves time, while
    the rest of the start waits for the network and the source. Its failure is ignored."""
    from penstock.epochs.tasks import first_imports

    slots = spark.sparkContext.defaultParallelism

    def run() -> None:
        with contextlib.suppress(Exception):
            spark.range(0, slots, 1, slots).mapInArrow(first_imports, "id BIGINT").collect()

    InheritableThread(target=run, name="warm-up", daemon=True).start()


_UNSEEN = {
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}
"""Limits of what Spark remembers for its web page, while the page is off. By default it keeps a thousand
jobs and stages, with plans and tasks."""


def session_options(
    spark_config: SparkConfig,
    sinks: Sequence[SinkOptions],
    state: Path,
    *,
    jars_of: Sequence[SinkOptions] | None = None,
) -> dict[str, str]:
    """All options of the session. The user's `spark.conf` wins; lists of Penstock are put before the
    user's. `jars_of`: the sinks whose jars are on the class path, if these are others than `sinks`."""
    state = state.absolute()
    options = {
        "spark.master": with_retries(spark_config.master),
        "spark.app.name": spark_config.app_name,
        "spark.driver.memory": spark_config.driver_memory,
        **_files(state),
        **_execution(spark_config.master),
        **_python(spark_config.master),
    }
    paths = [str(path) for path in jars(sinks if jars_of is None else jars_of)]
    # On the driver's class path, because Hadoop needs the local file system before `spark.jars` is loaded.
    options["spark.driver.extraClassPath"] = os.pathsep.join(paths)
    options["spark.driver.extraJavaOptions"] += " " + java_options([Path(path) for path in paths])
    if not is_local(spark_config.master):
        options["spark.jars"] = ",".join(paths)
        options |= environment.options(spark_config, own_scratch(state))
    for sink in sinks:
        _merge(options, registry.kind(sink.type).spark_options(sink, spark_config.conf, state))
    if spark_config.conf.get("spark.ui.enabled", "false") == "false":
        options |= _UNSEEN
    _merge(options, spark_config.conf)
    return options


def is_local(master: str) -> bool:
    return master.startswith("local")


def with_retries(master: str) -> str:
    """The master with retries of tasks, as on a cluster. So a dead Python worker does not end the job."""
    cores = local_cores(master)
    if cores is None or "cluster" in master or "," in master:
        return master
    return f"local[{cores},{TASK_ATTEMPTS_MAX}]"


def local_cores(master: str) -> int | None:
    """Number of task slots of a local master; None on a cluster."""
    if not is_local(master):
        return None
    match = re.match(r"local\[(\d+|\*)", master)
    if match is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def own_scratch(state: Path) -> Path:
    """The scratch space of this process's session."""
    return state / "tmp" / f"spark-{os.getpid()}"


def _files(state: Path) -> dict[str, str]:
    logs = state / "logs"
    scratch = state / "tmp"
    # Spark creates files in these directories with the mode of its umask, so the directories are private.
    state.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    for folder in (logs, scratch):
        folder.mkdir(exist_ok=True, mode=PRIVATE)
    _sweep(scratch)
    own = own_scratch(state)
    own.mkdir(exist_ok=True, mode=PRIVATE)
    # Spark splits its directory at commas, also the JVM's one for temporary files. A path with a comma would
    # become two directories, one of them in the current directory.
    has_comma = "," in str(own)
    local = {} if has_comma else {"spark.local.dir": str(own)}
    # Native libraries of codecs, and directories of Spark: whoever is killed leaves them.
    temporary = "" if has_comma else f'"-Djava.io.tmpdir={own}" '
    log4j = logs / "log4j2.properties"
    log = str(logs / "spark.log")
    log4j.write_text(_LOG4J.format(log=log, pattern=log.replace("%", "%%")), encoding="utf-8")
    return {
        **local,
        "spark.sql.warehouse.dir": str(state / "spark-warehouse"),
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log4j.as_uri()}" '
        f'{temporary}"-Dderby.system.home={own}" -XX:-UsePerfData',
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        # The default implementation uses Hadoop's AbstractFileSystem, which is the slow one.
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
        "checkpointing.FileSystemBasedCheckpointFileManager",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }


def _sweep(scratch: Path) -> None:
    """Removes what killed sessions left behind. A session that ends normally removes its own files."""
    for left in scratch.glob("spark-*"):
        pid = left.name.removeprefix("spark-")
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


def _execution(master: str) -> dict[str, str]:
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        **FIXED_OF_SPARK,
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Which options Spark hides in its event log and on its web page. Its own pattern does not know
        # OAuth2 credentials, nor passwords in addresses.
        "spark.redaction.regex": f"(?i){_SECRET.pattern}",
    }
    cores = local_cores(master)
    if cores is not None:
        options |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # On one machine, more partitions than slots only add task starts.
            SHUFFLE_PARTITIONS: str(cores),
            "spark.default.parallelism": str(cores),
            # Saves planning one stage per small job. There are already as few partitions as possible.
            "spark.sql.adaptive.enabled": "false",
        }
    return options


def _python(master: str) -> dict[str, str]:
    options = {
        "spark.python.daemon.module": "penstock.spark.daemon",
        # A worker whose task was cancelled does nothing useful: it is killed at once, not after two seconds.
        "spark.python.task.killTimeout": "200ms",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
        # The same value as for tasks without SQL (those that read chunks). Workers with another environment
        # get a daemon of their own, which takes half a CPU second to start.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    }
    if is_local(master):
        home = str(Path(penstock.__file__).parent.parent)
        inherited = os.environ.get("PYTHONPATH", "")
        options["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(part for part in (home, inherited) if part)
    return options


def _merge(options: dict[str, str], more: dict[str, str]) -> None:
    for name, value in more.items():
        if name in _MERGED and options.get(name):
            separator = _SEPARATORS.get(name, ",")
            if value not in options[name].split(separator):
                value = options[name] + separator + value
        options[name] = value
