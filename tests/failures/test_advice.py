"""From real stack traces to a sentence and its cure. The texts are what Spark 4.1, Iceberg 1.12 and Java 17
say when these things happen (shortened)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, InternalError, SparkFailed
from penstock.failures.advice import RULES, advise, advise_log, concerns_one_table, without_secrets
from penstock.failures.log_format import shortened
from penstock.failures.messages import advice_of, explained
from penstock.failures.trace import TEXT_MAX, causes, decisive, without_traces

TEXTS = Path(__file__).with_name("texts")
NAMES = sorted(path.stem for path in TEXTS.glob("*.txt"))


def text(name: str) -> str:
    return (TEXTS / name).read_text()


@pytest.mark.parametrize(
    ("name", "said", "hinted"),
    [
        ("catalog-class", "does not find the class org.nonsense of the catalog lake.", "spark.jars"),
        ("catalog-impl", "does not find the class org.nonsense.Cat.", "spark.jars"),
        ("catalog-type", "Unknown catalog type: nonsense.", ""),
        ("catalog-no-warehouse", "warehousePath must not be null or empty.", ""),
        ("catalog-no-type", "Hive metastore", "a `type`"),
        ("hive-refused", "Hive metastore", "uri"),
        ("rest-refused", "cannot be reached: http://127.0.0.1:", "address"),
        ("jdbc-nodriver", "no JDBC driver for jdbc:sqlite addresses.", "spark.driver.extraClassPath"),
        ("hive-columns", "compares them by their position.", "disallow.incompatible.col.type.changes=false"),
        ("hive-name", "only letters, digits and _ in names, and so no database a.b.", "`namespace`"),
        ("rest-path", "no Iceberg catalog there.", "without, `/v1`"),
        ("rest-html", "does not answer as an Iceberg catalog does.", "`uri`"),
        ("rest-branch", "The catalog has no branch v1.", "`/v1` is not part"),
        ("rest-warehouse", "The catalog has no warehouse nope.", "`warehouse`"),
        ("rest-login", "does not accept the login.", "`credential` (ID:SECRET)"),
        ("rest-no-tokens", "does not hand out tokens itself.", "`oauth2-server-uri`"),
        ("s3-key", "S3 refuses access (403).", "put and delete objects"),
        ("s3-secret", "S3 does not accept the secret key.", "s3.secret-access-key"),
        ("s3-bucket", "The bucket does not exist.", "`warehouse`"),
        ("s3-object-gone", "is missing: s3://lake/w/shop/t/metadata/00001-adb2fa28-", "--recreate"),
        ("s3-no-region", "There is no region for S3.", "client.region"),
        ("s3-no-keys", "There are no credentials for S3.", "AWS_ACCESS_KEY_ID"),
        ("s3-https", "does not speak TLS.", "http://"),
        ("s3-refused", "cannot be reached: http://127.0.0.1:9.", "address"),
        ("jdbc-password", "does not accept the account root.", "`password`"),
        ("jdbc-database", "The catalog's database x does not exist.", "`uri`"),
        ("jdbc-refused", "The catalog's database cannot be reached.", "host and port"),
        ("jdbc-sqlite", "The SQLite database of the catalog cannot be opened", "directory must exist"),
        ("io-impl", "org.apache.iceberg.aws.s3.S3FileIO", "iceberg-aws-bundle"),
        ("s3a", "org.apache.hadoop.fs.s3a.S3AFileSystem", "hadoop-aws"),
        ("s3", "no file system for s3:// paths", "s3a://"),
        ("wh-file", "a part of its path is a file", "directory of its own"),
        ("wh-ro", "/data/disk/", "writable"),
        ("worker-full", "A disk is full.", "Free space"),
        ("memory-300m", "304087040 bytes of memory and needs at least 471859200", "driver_memory"),
        ("driver-port", "service sparkDriver", "spark.driver.port"),
        ("bind", "service sparkDriver", "spark.driver.bindAddress"),
        ("master-k8s", "cannot be reached: /127.0.0.1:", "address"),
    ],
)
def test_a_stack_trace_becomes_one_sentence_with_the_cure(name: str, said: str, hinted: str) -> None:
    found = advise(text(f"{name}.txt"), rows=False)
    assert found is not None and said in found.message and hinted in found.hint, found
    assert "\n" not in found.message and "\tat" not in found.message and len(found.message) < 500


@pytest.mark.parametrize(
    ("name", "log", "said", "hinted"),
    [
        ("memory-10m", "memory-10m.spark.stderr", "ran out of memory", "driver_memory"),
        ("memory-word", "memory-word.spark.stderr", "-Xmxplenty", "driver_memory"),
        ("memory-huge", "memory-huge.spark.stderr", "as much memory", "Lower `spark.driver_memory`"),
        ("master-yarn", "master-yarn.spark.stderr", "`spark.master`", "HADOOP_CONF_DIR"),
        ("master-word", "master-word.spark.stderr", "`spark.master`", "local[*]"),
        ("master-nobody", "master-nobody.spark_log", "No Spark master answered", "running"),
        ("ui-port", "ui-port.spark_log", "service SparkUI", "spark.ui.port"),
    ],
)
def test_what_the_jvm_told_only_its_log_is_found_there(name: str, log: str, said: str, hinted: str) -> None:
    found = advice_of(text(f"{name}.txt"), text(log), rows=False)
    assert found is not None and said in found.message and hinted in found.hint, found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_stack_trace_is_left(name: str) -> None:
    for left in (without_traces(text(f"{name}.txt")), shortened(f"it failed: {text(f'{name}.txt')}")):
        assert left and "\n" not in left
        assert (
            "Traceback" not in left
            and "\tat " not in left
            and " at org." not in left
            and 'File "' not in left
        )


CAST = (
    "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'CANARY123' of the "
    "type "
    '"STRING" cannot be cast to "INT" because it is malformed. SQLSTATE: 22018\n'
    "\tat org.apache.X.y(X.scala:1)\n"
)


def test_row_values_in_messages_are_not_shown_where_rows_are_at_work() -> None:
    failed = (
        "An error occurred while calling o88.collect.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 "
        "(TID 9) "
        f"(10.0.0.7 executor 2): {CAST}\nDriver stacktrace:\n\tat a.b.C.d(C.scala:1)\nCaused by: {CAST}"
    )
    for known in (CAST, failed):
        found = advise(f": {known}" if known is CAST else known, rows=True)
        assert found is not None
        assert found.message == "SparkNumberFormatException: CAST_INVALID_INPUT."
    assert "CANARY123" not in shortened(f"attempt 1 failed:\n{failed}")
    python = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: bad row CANARY123\n'
    found = advise(python, rows=True)
    assert found is not None and found.message == "ValueError."


def test_the_innermost_cause_that_says_something_decides() -> None:
    found = decisive(
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.x.\n"
        ": java.lang.RuntimeException: outer\n"
        "\tat a.b(C.java:1)\nCaused by: java.io.IOException: inner\nand more of it\n\tat a.b(C.java:1)\n"
        "\t... 3 more\n"
        "Caused by: java.lang.reflect.InvocationTargetException\n\tat a.b(C.java:1)\n"
    )
    assert found is not None and (found.name, found.message) == ("IOException", "inner and more of it")


def test_what_jars_of_other_versions_do_is_named() -> None:
    for thrown in (
        "NoSuchMethodError: 'void a.B.c()'",
        "AbstractMethodError",
        "UnsupportedClassVersionError: X",
    ):
        found = advise(f": java.lang.{thrown}\n\tat a.B.c(D.java:1)\n", rows=True)
        assert found is not None and "not compatible" in found.message and found.lasting
        assert thrown.split(":")[0] in found.message and "Spark 4.1" in found.hint


def test_passwords_in_addresses_and_options_are_not_shown() -> None:
    shown = without_secrets(
        "jdbc:postgresql://me:hunter2@h/db?user=u&password=hunter2; "
        "s3.secret-access-key=hunter2 token: hunter2"
    )
    assert "hunter2" not in shown and "user=u" in shown and "@h/db" in shown


WORDS = st.sampled_from(
    ["Caused by: ", ": ", "\tat a.b.C(D.java:1)", "Traceback (most recent call last):", '  File "x", line 1',
     "java.io.IOException", "ValueError: ",
     "most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (h executor 1): ",
     "\n", "\n\n", "(", ")", "'", "/a/b", "org.apache.hadoop.fs.s3a.X", "OutOfMemoryError",
     "[A_B]", "é\x1b[31m\0"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=400), st.lists(WORDS, max_size=60).map("".join)))
def test_any_text_becomes_one_line_without_a_trace(said: str) -> None:
    assert "\n" not in without_traces(said)
    for found in (advise(said, rows=True), advise(said, rows=False), advise_log(said)):
        if found is not None:
            assert found.message and "\n" not in found.message and len(found.message) < 1500
    for cause in causes(said):
        assert "\n" not in cause.message and cause.kind


def test_the_longest_texts_take_no_time() -> None:
    line = "Caused by: java.io.IOException: " + "a/" * 2000
    text = ("\n".join([line, "\tat a.b.C(D.java:1)"]) + "\n") * 200
    assert len(text) > TEXT_MAX
    assert advise(text, rows=True) is not None and advise_log(text + ": " * 100_000) is None
    assert advise("x" * 1_000_000, rows=True) is None


def test_every_rule_says_a_sentence_and_a_cure() -> None:
    for rule in RULES:
        assert rule.message.endswith(".") and (rule.hint.endswith(".") or not rule.hint), rule


def test_what_a_block_leaves_is_an_error_of_ours(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "spark.stderr").write_text(text("memory-10m.spark.stderr"))
    said = "It stopped: Spark's JVM ran out of memory"
    with pytest.raises(SparkFailed, match=said), explained("It stopped", tmp_path):
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(InternalError, match="bug in Penstock"), explained("It stopped", tmp_path):
        raise RuntimeError("CANARY123")
    for ours in (ConfigError("No."), OSError(28, "No space left on device")):
        with pytest.raises(type(ours)) as left, explained("It stopped", tmp_path):
            raise ours
        assert left.value is ours


@pytest.mark.parametrize("file", sorted(TEXTS.glob("*.txt")), ids=lambda file: file.stem)
def test_what_is_wrong_with_the_place_is_not_taken_for_an_error_of_one_table(file: Path) -> None:
    assert not concerns_one_table(file.read_text())


@pytest.mark.parametrize(
    "said",
    [
        "org.apache.spark.sql.AnalysisException: [NULLABLE_ROW_ID_ATTRIBUTES] Row ID attributes",
        "java.lang.IllegalArgumentException: Provided metadata schema is incompatible with expected schema",
        "java.lang.NullPointerException",
        (
            "org.apache.spark.SparkException: Writing job aborted\n\tat a.b(C.scala:1)\n"
            "Caused by: org.apache.iceberg.exceptions.ValidationException: Cannot find field"
        ),
    ],
)
def test_what_is_wrong_with_a_definition_is_an_error_of_one_table(said: str) -> None:
    assert concerns_one_table(f"An error occurred while calling o88.sql.\n: {said}\n\tat a.b(C.scala:1)\n")
