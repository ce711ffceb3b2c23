"""Finds the message and the hint for a stack trace. Pure.

Each rule recognises one kind of failure by the text that Java, Spark or Python gives it. The first rule that
matches any cause wins, so specific rules come before general ones. A rule shows only text that its own
pattern has matched: names of classes, hosts, files and options, never row values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.failures.catalog_rules import DATABASE_RULES, GLUE_RULES, HIVE_RULES, REST_RULES, S3_RULES
from penstock.failures.rule import rule
from penstock.failures.trace import Cause, causes, decisive

SPARK_VERSION = "4.1"
CAUSES_MAX = 30
"""Number of innermost causes that the rules are matched against: the innermost ones name what failed, and a
chain of wrappers may be long. The outermost cause is matched too."""
LINES_MAX, LINE_LENGTH_MAX = 300, 1000
"""Lines of a text, and characters of each, that the rules are matched against, so that a huge log or line
does not take long."""
SHOWN_MAX = 300
"""Maximum length of one matched text in a message, in characters, so that the message stays one paragraph."""


@dataclass(frozen=True)
class Advice:
    """Message and hint for one failure. `lasting`: a retry cannot succeed."""

    message: str
    hint: str
    lasting: bool = True


RULES = (
    # Python of the workers
    rule(
        r"\[PENSTOCK_OTHER_PYTHON\] (\d+\.\d+) instead of (\d+\.\d+)",
        "The worker has Python {1}, the driver has Python {2}.",
        "Install Python {2} on the workers. If it is not on their PATH, set spark.pyspark.python in "
        "`spark.conf` to its path there.",
    ),
    rule(
        "PYTHON_VERSION_MISMATCH|Python in worker has different version",
        "The workers run another Python version than the driver.",
        "Give the workers the driver's Python version. If it is not on their PATH, set spark.pyspark.python "
        "in `spark.conf` to its path there.",
    ),
    rule(
        r"No module named '(penstock|pyarrow|pyspark)[\w.]*'",
        "The Python of Spark's workers lacks the package {1}.",
        "Remove `spark.environment: none`, so that Penstock brings its packages, or install penstock into "
        "the workers' Python.",
    ),
    rule(
        'Cannot run program "([^"]*)"',
        "Spark cannot run {1}.",
        "Install it on every worker, or set spark.pyspark.python in `spark.conf` to the path of a "
        "Python there.",
    ),
    # starting the JVM and Spark
    rule(
        r"^(?:builtins\.)?(?:ConnectionRefusedError|ConnectionResetError)|Py4JNetworkError|"
        "JAVA_GATEWAY_EXITED|Answer from Java side is empty",
        "Spark's JVM has exited.",
        "",  # the JVM's log has the reason
        lasting=False,
    ),
    rule(
        "No such file or directory: '([^']*spark-submit)'",
        "{1} does not exist.",
        "Unset SPARK_HOME: PySpark then uses its own Spark.",
    ),
    rule(
        "Master must either be yarn|HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
        "`spark.master` is not valid.",
        "Use local[*], spark://host:7077, k8s://https://…, or yarn (with HADOOP_CONF_DIR set).",
    ),
    rule(
        r"(Invalid (?:maximum|initial) heap size: \S+)",
        "Java refused its memory setting: {1}.",
        "Check `spark.driver_memory`: a number and a unit, such as 2g.",
    ),
    rule(
        "Could not reserve enough space|insufficient memory for the Java|"
        "Cannot allocate memory|exceeds the maximum representable size",
        "The machine does not have as much memory as `spark.driver_memory` asks for.",
        "Lower `spark.driver_memory`, or run on a machine with more memory.",
    ),
    rule(
        r"(Unrecognized (?:VM )?option:? \S+)",
        "Java refused an option: {1}.",
        "Check spark.driver.extraJavaOptions in `spark.conf`, and JAVA_TOOL_OPTIONS.",
    ),
    rule(
        r"INVALID_DRIVER_MEMORY\] System memory (\d+) must be at least (\d+)",
        "Spark has {1} bytes of memory and needs at least {2}.",
        "Give Spark more memory: `spark.driver_memory`, for example 2g.",
    ),
    rule(
        "OutOfMemoryError: (Java heap space|GC overhead limit exceeded|Metaspace)|OutOfMemoryError()",
        "Spark's JVM ran out of memory.",
        "Give Spark more memory: `spark.driver_memory`, for example 2g.",
    ),
    rule(
        r"(?:BindException|Address already in use).*?[Ss]ervice '(\w+)' failed",
        "Spark's service {1} cannot bind its port or address.",
        "Choose a free port, or an address of this machine, in `spark.conf` (such as "
        "spark.driver.port, spark.ui.port, spark.driver.bindAddress), or let Spark try more ports "
        "(spark.port.maxRetries).",
    ),
    rule(
        r"Could not parse Master URL: '?([^'\n]*?)'?(?:\s|$)",
        "Spark does not understand the master {1}.",
        "Check `spark.master`: local[*], spark://host:7077, yarn or k8s://host:443.",
    ),
    rule(
        "All masters are unresponsive",
        "No Spark master answered at `spark.master`.",
        "Check the address, and that the master is running.",
    ),
    rule(
        r"Master removed our application: (\w+)",
        "The cluster ended the application ({1}): its workers could not start executors.",
        "A worker's log shows the reason. Check that executors fit on the workers (spark.executor.memory, "
        "spark.executor.cores in `spark.conf`).",
    ),
    # classes
    rule(
        "(?:NoSuchMethodError|NoSuchFieldError|AbstractMethodError|"
        "IncompatibleClassChangeError|UnsupportedClassVersionError|VerifyError|"
        "IllegalAccessError)",
        "Jars on Spark's class path are not compatible with each other or with this Java ({name}).",
        "Penstock works with Spark 4.1 (Scala 2.13). Remove jars for other versions from "
        "spark.jars, spark.jars.packages and spark.driver.extraClassPath in `spark.conf`, "
        "and unset SPARK_HOME.",
    ),
    rule(
        "(?:ClassNotFoundException: (?:Class )?|NoClassDefFoundError: (?:Could not initialize class )?|"
        r"Missing )((?:org[./]apache[./]hadoop[./]fs[./](?:s3a|azure\w*|gs)|software[./]amazon|"
        "com[./]amazonaws|org[./]apache[./]iceberg[./](?:aws|gcp|azure)|"
        r"com[./]google[./]cloud)[\w./$]*)",
        "Spark lacks a class for the target's store: {1}.",
        "With a section `sink.catalog`, set its `storage`: Penstock then adds what S3 needs. Otherwise add "
        "the store's jars to `spark.conf`. For s3a:// paths: hadoop-aws of Spark's own Hadoop version "
        "and the AWS bundle that it names, in spark.jars. For S3FileIO: iceberg-aws-bundle of Iceberg 1.12.",
    ),
    rule(
        r"No FileSystem for scheme \"?([\w-]+)\"?",
        "Spark knows no file system for {1}:// paths.",
        "For S3 write s3a://… or use S3FileIO, and add the store's jars to `spark.conf`. For s3a:// paths: "
        "hadoop-aws of Spark's own Hadoop version and the AWS bundle that it names, in spark.jars. For "
        "S3FileIO: iceberg-aws-bundle of Iceberg 1.12.",
    ),
    rule(
        r"Cannot find catalog plugin class for catalog '?([\w-]+)'?: ([\w.$]+)",
        "Spark does not find the class {2} of the catalog {1}.",
        "Check its spelling in `spark.conf`, and add its jar to spark.jars (or "
        "spark.driver.extraClassPath) there.",
    ),
    rule(
        "(?:ClassNotFoundException: (?:Class )?|"
        r"NoClassDefFoundError: (?:Could not initialize class )?|Missing )([\w./$]+)",
        "Spark does not find the class {1}.",
        "Check its spelling in `spark.conf`, and add its jar to spark.jars (or "
        "spark.driver.extraClassPath) there.",
    ),
    rule(
        r"No suitable driver found for jdbc:(\w+)|No suitable driver()",
        "Spark has no JDBC driver for jdbc:{1} addresses.",
        "Check the address (jdbc:{1}://host/database). For a database whose driver Penstock does not bring, "
        "add the driver's jar to spark.driver.extraClassPath (and spark.jars on a cluster) in `spark.conf`.",
    ),
    # disks and files
    rule(
        "No space left on device|Disk quota exceeded|ENOSPC",
        "A disk is full.",
        "Free space at the target, in the `state` directory and in Spark's scratch space "
        "(spark.local.dir). Nothing is lost.",
        lasting=False,
    ),
    rule(
        "Read-only file system",
        "A file system is read-only.",
        "Mount it writable, or move `sink.path` (or the catalog's warehouse) and `state` to another one.",
    ),
    rule(
        r"AccessDeniedException: (?<![^\s:'])(/\S+)|"
        r"(?:FileNotFoundException: )?(?<![^\s:'])(/\S+) \(Permission denied\)|"
        "Permission denied: '(/[^']*)'|Permission denied()",
        "This account is not allowed to write {1}{2}{3}.",
        "Grant it write access, or choose another directory for `sink.path` or the catalog's warehouse.",
    ),
    rule(
        r"Failed to create directory (?<![^\s:'])(/\S+)|"
        r"Mkdirs failed to create (?<![^\s:'])(/\S+)|Failed to create local dir in (?<![^\s:'])(/\S+?)\.?$",
        "The directory {1}{2}{3} cannot be created.",
        "Check that the file system is writable and that this account may write to it.",
    ),
    rule(
        r"(?<![^\s:'])(/\S+): Not a directory|(?<![^\s:'])(/\S+) \(Not a directory\)|"
        r"Not a directory: '(/[^']*)'|"
        r"ParentNotDirectoryException: (?:Parent path is not a directory: )?(?<![^\s:'])(/\S+)",
        "{1}{2}{3}{4} cannot be used: a part of its path is a file, not a directory.",
        "Give `sink.path` (or the catalog's warehouse) a directory of its own.",
    ),
    # catalogs and their stores
    *REST_RULES,
    *GLUE_RULES,
    *S3_RULES,
    *DATABASE_RULES,
    # services
    rule(
        r"UnknownHostException: ([\w.-]+)",
        "The host name {1} cannot be resolved.",
        "Check the address and the network, and that the service is running. The pipeline "
        "continues from where it is.",
        lasting=False,
    ),
    rule(
        r"Connect to (\S+?) (?:\[[^\]]*\] )?failed: (Connection refused|\w+ timed out)|"
        r"(?:Connection refused|timed out): (?:\S+?)?(/[\d.:]+)",
        "A service that Spark needs cannot be reached: {1}{3}.",
        "Check the address and the network, and that the service is running. The pipeline "
        "continues from where it is.",
        lasting=False,
    ),
    *HIVE_RULES,
    rule(
        "Connection refused|ConnectException|SocketTimeoutException|NoRouteToHostException",
        "A service that Spark needs cannot be reached.",
        "Check the address and the network, and that the service is running. The pipeline "
        "continues from where it is.",
        lasting=False,
    ),
)


def advise(text: str, *, rows: bool) -> Advice | None:
    """Returns the advice for an error with a stack trace, or None if the text contains no error. If no rule
    matches, the advice is the most informative message of the trace, without a hint. `rows`: rows were being
    processed, so such a message may contain row values and only Spark's name of the error is shown."""
    chain = causes(text)
    searched = [
        f"{cause.kind}: {cause.message}" for cause in reversed(chain[:1] + chain[1:][-CAUSES_MAX:])
    ] or text.splitlines()[:LINES_MAX]
    cause = decisive(text)
    return _by_rule(searched) or (None if cause is None else _unknown(cause, rows=rows))


_OF_ONE_TABLE = re.compile(
    "(?:Analysis|Parse|Validation|IllegalArgument|UnsupportedOperation|NullPointer|ClassCast|"
    "IndexOutOfBounds|Arithmetic|NumberFormat|DateTime|NoSuchElement|NoSuchTable|AlreadyExists|"
    "Match|Assertion|Value|Type|Key|"
    r"Index|Attribute|NotImplemented|(?:Spark|Delta|PySpark)\w+)(?:Exception|Error)$|"
    r"^Arrow(?:Invalid|\w*Error)$|"
    "InvariantViolation|ConvertNotSupported"
)
"""Classes of errors that depend on a definition, a statement or values."""
_OF_THE_PLACE = re.compile(
    "IO|Socket|Timeout|Connect|UnknownHost|NoRoute|SSL|S3|Sdk|Storage|REST|Service|Thrift|Transport|Meta|SQL|"
    "OutOfMemory|StackOverflow|Lost|FetchFailed|Interrupted|Rejected|Cancel|Commit|Concurrent"
)
"""Classes of errors that depend on where something runs, and when."""


def concerns_one_table(text: str) -> bool:
    """Whether an error with a stack trace, which came while a table was written, depends on that table, so
    that each attempt fails. False: that is not known."""
    cause, names = decisive(text), [one.name for one in causes(text)]
    if cause is None or not _OF_ONE_TABLE.search(cause.name) or any(map(_OF_THE_PLACE.search, names)):
        return False
    if not cause.condition and re.search(r"catalog|warehouse|\buri\b", cause.message, re.IGNORECASE):
        return False  # of an option
    return advise(text, rows=True) == _unknown(cause, rows=True)


def advise_log(text: str) -> Advice | None:
    """Returns the advice for the end of a log file, or None if no rule matches one of its last lines."""
    lines = [line for line in text.splitlines() if not re.match(r"\s", line)]
    return _by_rule(lines[-LINES_MAX:])


def _by_rule(searched: Sequence[str]) -> Advice | None:
    for known in RULES:
        for said in searched:
            if match := known.pattern.search(said[:LINE_LENGTH_MAX]):
                return Advice(
                    _filled(known.message, match, said), _filled(known.hint, match, said), known.lasting
                )
    return None


def _filled(template: str, match: re.Match[str], said: str) -> str:
    groups = {str(number): (value or "").rstrip(".") for number, value in enumerate(match.groups(), 1)}
    name = said.partition(":")[0].rpartition(".")[2]
    text = re.sub(r"\{(\w+)\}", lambda found: groups.get(found[1], name)[:SHOWN_MAX], template)
    return " ".join(text.split()).replace(" .", ".").replace(":.", ".").replace(" ()", "")


def without_secrets(text: str) -> str:
    """Returns the text with passwords, keys and tokens in addresses and options replaced by `***`."""
    return _SECRET_OPTION.sub(r"\1***", re.sub(r"(\w+://[^\s/@:]*):[^\s/@]*@", r"\1:***@", text))


_SECRET_OPTION = re.compile(
    r"\b([\w.-]*(?:password|passwd|secret|token|credential|access-?key)[\w.-]*\s*[=:]\s*)[^\s&;,]+",
    re.IGNORECASE,
)


def _unknown(cause: Cause, *, rows: bool) -> Advice:
    said = cause.condition if rows else without_secrets(cause.message).rstrip(".")
    return Advice(f"{cause.name}{': ' if said else ''}{said}.", "", lasting=False)
