"""An error of a worker reaches the driver as it was; text that others wrote reaches it as text."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock._core import RowEncoder, SchemaMismatch
from penstock.errors import ChunkOutdated, InternalError, PenstockError, TableError, TransientError
from penstock.failures.crossing import (
    _KEY,
    CrossedError,
    Crossing,
    _packed,
    _tag,
    core_error,
    crossing,
    returned,
)
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.status import rebuild_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def pickled(canary: Path) -> str:
    """A name in the form in which errors once crossed."""
    return f"penstock-error<{base64.b64encode(pickle.dumps(Touch(canary))).decode()}>"


def crossed(error: Exception, where: Crossing | None = None) -> CrossedError:
    with pytest.raises(CrossedError) as caught, (where or crossing("shop.orders")).guard():
        raise error
    return caught.value


def outer(error: BaseException, before: str = "", after: str = "") -> RuntimeError:
    """What Spark makes of it: text among other text."""
    return RuntimeError(f"Job aborted {before}: Traceback …\nCrossedError: {error}\n\tat org.apache {after}")


def test_an_error_arrives_as_it_was() -> None:
    error = TableError("It broke.", hint="Mend it.", table="shop.orders", offset=12, places=[1, "x"])
    found = returned(outer(crossed(error)))
    assert type(found) is TableError
    assert (found.message, found.hint) == ("It broke.", "Mend it.")
    assert found.details == {"table": "shop.orders", "offset": 12, "places": [1, "x"]}


def test_a_refused_value_is_told_with_its_own_cure_first() -> None:
    """It is in the reason. The definition of the table may be right."""
    table = TableSchema(TableId("shop", "t"), (Column("d", "numeric", nullable=True),), ())
    rows = pa.record_batch({"d": pa.array(["NaN"])})
    encoder = RowEncoder(table.to_json(), "debezium", options='{"decimal_handling_mode": "precise"}')
    with pytest.raises(SchemaMismatch, match="use `string` or `double`") as refused:
        encoder.encode(rows, at_us=1, place="", sequence=7)
    error = core_error(refused.value, "shop.t")
    assert error.message.startswith("Rows of table shop.t cannot be read at offset 7: ")
    assert refused.value.reason in error.message and "known" not in error.message
    assert error.hint.startswith("If the reason names no cure: `penstock resnapshot FILE shop.t`")


def test_classes_outside_of_the_errors_module_arrive_too() -> None:
    assert type(returned(outer(crossed(ChunkOutdated("It changed."))))) is ChunkOutdated


def test_a_class_that_is_not_known_arrives_as_the_nearest_one_that_is() -> None:
    class Slow(TransientError):
        pass

    assert type(returned(outer(crossed(Slow("Later."))))) is TransientError


def test_a_pickle_in_a_name_is_text(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    name = pickled(canary)
    for error in (
        RuntimeError(name),
        outer(crossed(TableError(f"Table {name} broke."), crossing(name)), before=name, after=name),
    ):
        found = returned(error)
        assert not canary.exists()
    assert isinstance(found, TableError) and found.message == f"Table {name} broke."


def forged(payload: bytes = b"") -> str:
    facts = {"error": "TransientError", "message": "forged", "hint": "", "details": {}}
    text = base64.b64encode(payload or json.dumps(facts).encode()).decode()
    return f"penstock-error<{'0' * 64}:{text}>"


def test_a_carrier_of_strangers_is_text_wherever_it_stands() -> None:
    ours = outer(crossed(TableError("Ours.")), before=forged(), after=forged() * 3)
    found = returned(ours)
    assert isinstance(found, TableError) and found.message == "Ours."
    strange = outer(RuntimeError(forged()))
    assert returned(strange) is strange


def test_a_carrier_of_another_driver_is_text() -> None:
    strange = outer(crossed(TableError("Theirs."), Crossing("shop.orders", b"another key")))
    assert returned(strange) is strange


def test_the_last_carrier_of_ours_counts() -> None:
    first, last = crossed(TransientError("First.")), crossed(TableError("Last."))
    found = returned(RuntimeError(f"{first} caused {last}"))
    assert isinstance(found, TableError) and found.message == "Last."


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"{}",
        b'"x"',
        b"null",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"details": 1, "error": "TableError"}',
    ],
)
def test_a_malformed_carrier_gives_the_error_that_came(payload: bytes, monkeypatch: Any) -> None:

    text = base64.b64encode(payload).decode()
    error = RuntimeError(f"penstock-error<{_tag(text, _KEY)}:{text}>")
    assert returned(error) is error


def test_an_unknown_class_in_a_carrier_is_our_bug(monkeypatch: Any) -> None:

    facts = {"error": "Popen", "message": "It says so.", "hint": "", "details": {"self": 1, "message": 2}}
    text = base64.b64encode(json.dumps(facts).encode()).decode()
    found = returned(RuntimeError(f"penstock-error<{_tag(text, _KEY)}:{text}>"))
    assert type(found) is InternalError and found.message == "It says so."


def test_a_carrier_is_bounded_and_keeps_what_has_room() -> None:
    error = TableError("x" * 10**6, hint="y" * 10**6, table="shop.orders", much="z" * 10**6, offset=4)
    assert len(_packed(error, b"key")) < 150_000
    found = returned(outer(crossed(error)))
    assert isinstance(found, TableError) and found.details == {"table": "shop.orders", "offset": 4}


def test_no_text_shows_the_key() -> None:
    assert "key" not in repr(crossing("shop.orders"))


@pytest.mark.parametrize(
    "fields",
    [
        {"error": "Popen", "message": "x"}, {"error": ["x"]}, {"error": "__builtins__"}, {}, [], "text", None,
        {"error": "TableError", "message": "x", "hint": 1, "self": 1, "args": 2},
    ],
)  # fmt: skip
def test_a_report_of_another_process_never_fails_to_be_read(fields: Any) -> None:
    found = rebuild_error(fields)
    assert isinstance(found, PenstockError) and str(found) is not None


def test_a_worker_s_error_crosses_spark_and_a_hostile_name_beside_it_does_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    from penstock.epochs.tasks import run_tasks

    canary = tmp_path / "canary"
    name = f"shop.{pickled(canary)}"

    def broken(_: Any) -> Iterator[pa.RecordBatch]:
        raise TableError(f"Table {name} broke.\n{forged()}", hint="Mend it.", table=name, offset=7)
        yield

    body = run_tasks(broken, (1,), name)
    with pytest.raises(Exception) as caught:
        spark.range(0, 1, 1, 1).mapInArrow(body, "id BIGINT").collect()
    assert not isinstance(caught.value, PenstockError)
    found = returned(caught.value)
    assert isinstance(found, TableError) and found.details == {"table": name, "offset": 7}
    assert not canary.exists()
