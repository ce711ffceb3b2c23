"""What becomes of errors of functions and web servers. Deliveries are tested in `tests/sinks/conformance`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.base import Commit
from penstock.sinks.calls.options import HttpOptions, PythonOptions
from penstock.sinks.calls.sink import Changes
from penstock.sinks.rows import Newer, Rows

TABLE = TableId("shop", "a/b")


def opened(options: Any) -> Any:
    sink: Any = registry.open_sink(options, None, "p")  # type: ignore[arg-type]
    sink.check()
    sink.create(TableSchema(TABLE, (Column("id", "int"),), ("id",)), pa.schema([("id", pa.int64())]))
    return sink


def rows(count: int = 1) -> Rows:
    ids = list(range(count))
    batch = pa.RecordBatch.from_pydict({
        "id": ids, "_change_type": ["insert"] * count, "_sequence": ids,
        "_commit_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
    })  # fmt: skip

    def frame() -> Any:
        raise AssertionError

    return Rows(frame, Newer(lambda: iter([batch])))


class Web:
    """A web server that remembers requests. `answers`: its next codes; then 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], list[Any]]] = []
        self.answers: list[int] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                lines = [json.loads(line) for line in body.splitlines()]
                web.requests.append((self.path, dict(self.headers), lines))
                self.send_response(web.answers.pop(0) if web.answers else 200)
                self.send_header("Location", "/login")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{{database}}/{{table}}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_changes_are_posted_in_parts_with_keys_that_a_repetition_has_again(web: Web) -> None:
    options = HttpOptions(type="http", url=web.url, body_bytes=1024, headers={"X-Token": Secret("t")})
    assert opened(options).write_changes(TABLE, rows(50), Commit("p", 7))
    assert opened(options).write_changes(TABLE, rows(50), Commit("p", 7))
    half = len(web.requests) // 2
    assert half > 1
    keys = [headers["Idempotency-Key"] for _, headers, _ in web.requests]
    assert keys[:half] == keys[half:] and len(set(keys)) == half
    assert web.requests[0][0] == "/shop/a%2Fb" and web.requests[0][1]["X-Token"] == "t"
    assert [line["row"]["id"] for _, _, lines in web.requests[:half] for line in lines] == list(range(50))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (503, TransientError),
        (429, TransientError),
        (401, ConfigError),
        (422, TableError),
        # Followed, it would be a GET without the changes, which the server answers with 200.
        (302, TransientError),
        (307, TransientError),
    ],
)
def test_answers_say_who_must_act(web: Web, answer: int, kind: type[PenstockError]) -> None:
    sink = opened(HttpOptions(type="http", url=web.url))
    web.answers = [answer]
    with pytest.raises(kind, match=str(answer)):
        sink.write_changes(TABLE, rows(), Commit("p", 1))
    assert sink.write_changes(TABLE, rows(), Commit("p", 1)), "nothing was recorded"
    assert not sink.write_changes(TABLE, rows(), Commit("p", 1))


def test_a_server_that_is_away_is_waited_for() -> None:
    sink = opened(HttpOptions(type="http", url="http://127.0.0.1:1/"))
    with pytest.raises(TransientError):
        sink.write_changes(TABLE, rows(), Commit("p", 1))


RAISED: list[Exception] = []


def handle(changes: Changes) -> None:
    list(changes.batches)
    if RAISED:
        raise RAISED.pop()


def test_errors_of_a_function_say_who_must_act_and_show_no_value() -> None:
    sink = opened(PythonOptions(type="python", function=f"{__name__}:handle"))
    for error, kind in ((ConnectionError("secret"), TransientError), (KeyError("secret"), TableError)):
        RAISED.append(error)
        with pytest.raises(kind) as seen:
            sink.write_changes(TABLE, rows(), Commit("p", 1))
        assert "secret" not in str(seen.value) and type(error).__name__ in seen.value.message
    assert sink.write_changes(TABLE, rows(), Commit("p", 1))


def catches(changes: Changes) -> None:
    try:
        list(changes.batches)
    except Exception:
        return


def test_rows_that_could_not_be_made_are_not_taken_for_written_if_the_function_catches_the_error() -> None:
    sink = opened(PythonOptions(type="python", function=f"{__name__}:catches"))

    def broken() -> Iterator[pa.RecordBatch]:
        raise TransientError("the log is away")
        yield

    made = rows()
    failing = Rows(made.source, Newer(broken))
    with pytest.raises(TransientError, match="away"):
        sink.write_changes(TABLE, failing, Commit("p", 1))
    assert sink.write_changes(TABLE, made, Commit("p", 1)), "nothing was recorded"


async def later(changes: Changes) -> None:
    list(changes.batches)


def yields(changes: Changes) -> Iterator[int]:
    for batch in changes.batches:
        yield batch.num_rows


@pytest.mark.parametrize("name", ["later", "yields"])
def test_a_function_whose_call_does_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="would do nothing"):
        opened(PythonOptions(type="python", function=f"{__name__}:{name}"))


def test_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no_such_module"):
        opened(PythonOptions(type="python", function="no_such_module:f"))
    with pytest.raises(ValueError, match="module:function"):
        PythonOptions(type="python", function="nothing")
