"""Real S3 servers behind a proxy that injects faults: what the network does may not change who wins, what is
read, or what is there afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.store.conftest import options

from penstock.store.base import Store
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing, StoreRefused, StoreUnavailable
from penstock.store.opening import open_store
from penstock.store.probe import check_conditions
from penstock.testing.faulty_proxy import Fault, FaultyProxy, Request, get, put

UNCLEAR = {
    "lost answer": Fault("lost answer"),
    "done, but 503": Fault("done, but answer", status=503, code="SlowDown"),
    "done, but 500": Fault("done, but answer", status=500, code="InternalError"),
}
"""The server does it, and the client cannot know."""
NOT_DONE = {
    "throttled": Fault("answer", status=503, code="SlowDown"),
    "too many requests": Fault("answer", status=429, code="TooManyRequests"),
    "server error": Fault("answer", status=500, code="InternalError"),
    "writes met": Fault("answer", status=409, code="ConditionalRequestConflict"),
    "reset in the middle of the body": Fault("reset in the middle"),
    "silent": Fault("silent"),
}
ALL = {**UNCLEAR, **NOT_DONE}
SOME = bytes(range(256)) * 64
"""More than one packet: it can be cut in the middle."""
BIG = bytes(range(256)) * 1024


def part(request: Request) -> bool:
    return request.method == "PUT" and "partNumber" in request.path


def completion(request: Request) -> bool:
    return request.method == "POST" and "uploadId" in request.path


def begin(request: Request) -> bool:
    return request.method == "POST" and "uploads" in request.path


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_whoever_put_the_absent_object_is_told_so(
    faulty_store: Store, proxy: FaultyProxy, fault: Fault
) -> None:
    proxy.plan(fault, when=put, times=1 if fault.kind == "silent" else 2)
    version = faulty_store.put_if_absent("one", SOME)
    assert proxy.faults_left <= 1, "an attempt that was done needs no second fault"
    proxy.forget()
    content = faulty_store.get("one")
    assert (content.data, content.info.version) == (SOME, version)
    with pytest.raises(ObjectExists):
        faulty_store.put_if_absent("one", SOME)


@pytest.mark.parametrize("fault", UNCLEAR.values(), ids=UNCLEAR)
def test_who_comes_second_is_told_so_though_answers_are_lost(
    faulty_store: Store, proxy: FaultyProxy, fault: Fault
) -> None:
    faulty_store.put_if_absent("one", b"same bytes")
    proxy.plan(fault, when=put)
    with pytest.raises(ObjectExists):
        faulty_store.put_if_absent("one", b"same bytes")
    assert proxy.faults_left == 0


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_whoever_replaced_the_object_is_told_so(
    faulty_store: Store, proxy: FaultyProxy, fault: Fault
) -> None:
    first = faulty_store.put("one", b"1")
    proxy.plan(fault, when=put)
    second = faulty_store.put_if_unchanged("one", b"2", seen=first)
    assert proxy.faults_left == 0
    assert faulty_store.get("one").info.version == second
    proxy.plan(fault, when=put)
    with pytest.raises(ObjectChanged):
        faulty_store.put_if_unchanged("one", b"3", seen=first)
    assert faulty_store.get("one").data == b"2"


def test_the_question_who_wrote_it_may_fail_too(faulty_store: Store, proxy: FaultyProxy) -> None:
    proxy.plan(Fault("lost answer"), when=put)
    proxy.plan(Fault("answer"), when=lambda request: request.method == "HEAD", times=2)
    version = faulty_store.put_if_absent("one", b"1")
    assert proxy.faults_left == 0
    assert faulty_store.stat("one").version == version


def test_a_put_that_arrives_after_its_call_has_ended_changes_nothing(
    faulty_store: Store, proxy: FaultyProxy
) -> None:
    proxy.plan(Fault("late", seconds=1.0), when=put)
    version = faulty_store.put_if_absent("one", b"1")
    second = faulty_store.put_if_unchanged("one", b"2", seen=version)
    deadline = time.monotonic() + 60
    while len([request for request in proxy.requests if put(request)]) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)  # the late one is with the server
    assert faulty_store.get("one").info.version == second


@pytest.mark.parametrize("kind", ["truncated", "lost answer", "answer", "silent"])
def test_a_read_gives_the_right_bytes_though_answers_are_cut(
    faulty_store: Store, proxy: FaultyProxy, kind: str
) -> None:
    faulty_store.put("one", SOME)
    reads: list[Callable[[], object]] = [
        lambda: faulty_store.get("one").data == SOME,
        lambda: bytes(faulty_store.get_range("one", 100, 10_000)) == SOME[100:10_000],
        lambda: [info.size for info in faulty_store.objects()] == [len(SOME)],
    ]
    for read in reads:
        proxy.plan(Fault(kind), when=get)  # type: ignore[arg-type]
        assert read()
    assert proxy.faults_left == 0


def test_deletes_are_repeated(faulty_store: Store, proxy: FaultyProxy) -> None:
    for key in ("one", "two", "three"):
        faulty_store.put(key, b"")
    proxy.plan(Fault("lost answer"), when=lambda request: request.method in ("DELETE", "POST"), times=2)
    faulty_store.delete("one")
    faulty_store.delete_many(["two", "three"])
    assert list(faulty_store.objects()) == []


@pytest.mark.parametrize("when", [begin, part, completion], ids=["begin", "part", "completion"])
@pytest.mark.parametrize("fault", [UNCLEAR["lost answer"], NOT_DONE["throttled"]], ids=["lost", "throttled"])
def test_an_upload_ends_well_though_any_of_its_requests_fails(
    faulty_store: Store, proxy: FaultyProxy, fault: Fault, when: Callable[[Request], bool]
) -> None:
    proxy.plan(fault, when=when)
    with faulty_store.upload("one") as upload:
        for _ in range(9):
            upload.write(BIG * 4)
    assert proxy.faults_left == 0
    assert faulty_store.get("one").data == BIG * 36
    assert faulty_store.stat("one").version == upload.finish()


def test_an_upload_that_the_server_refuses_at_the_end_is_no_success(proxy: FaultyProxy, url: str) -> None:
    store = open_store(url, options(proxy.url, attempts=3))
    proxy.plan(Fault("answer", status=200, code="InternalError"), when=completion, times=9)
    with pytest.raises(StoreUnavailable), store.upload("one") as upload:
        upload.write(bytes(9 << 20))
    proxy.forget()
    with pytest.raises(ObjectMissing):
        store.stat("one")


def test_retries_have_a_limit(proxy: FaultyProxy, url: str) -> None:
    store = open_store(url, options(proxy.url, attempts=4))
    proxy.plan(Fault("answer"), times=100)
    for act in (lambda: store.put("one", b""), lambda: store.get("one"), lambda: list(store.objects())):
        before = len(proxy.requests)
        with pytest.raises(StoreUnavailable) as error:
            act()
        assert len(proxy.requests) - before == 4
        assert "503 SlowDown" in str(error.value)
        assert url in str(error.value)


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [
        (403, "AccessDenied", "rights"),
        (403, "InvalidAccessKeyId", "key"),
        (403, "RequestTimeTooSkewed", "clock"),
        (404, "NoSuchBucket", "bucket"),
        (301, "PermanentRedirect", "region"),
        (400, "AuthorizationHeaderMalformed", "region"),
    ],
)
def test_what_the_operator_must_mend_is_said_at_once(
    faulty_store: Store, proxy: FaultyProxy, status: int, code: str, word: str
) -> None:
    for act in (
        lambda: faulty_store.get("one"),
        lambda: faulty_store.put("one", b""),
        lambda: faulty_store.put_if_absent("one", b""),
    ):
        proxy.forget()
        proxy.plan(Fault("answer", status=status, code=code))
        with pytest.raises(StoreRefused) as error:
            act()
        assert word in error.value.hint
        assert len(proxy.requests) == 1


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
def test_a_server_that_ignores_conditions_is_found_out(
    faulty_store: Store, proxy: FaultyProxy, header: str
) -> None:
    proxy.plan(Fault("without header", header=header), times=100)
    with pytest.raises(StoreRefused, match="ignores conditions"):
        check_conditions(faulty_store)
    assert list(faulty_store.objects()) == []


def test_each_call_is_one_request(faulty_store: Store, proxy: FaultyProxy) -> None:
    """Requests cost money, and time on the way."""
    version = faulty_store.put("one", b"1")
    acts: dict[str, Callable[[], object]] = {
        "PUT": lambda: faulty_store.put("one", b"1"),
        "PUT ": lambda: faulty_store.put_if_unchanged("one", b"2", seen=version),
        "PUT  ": lambda: faulty_store.put_if_absent("two", b"2"),
        "GET": lambda: faulty_store.get("one"),
        "GET ": lambda: faulty_store.get_ranges("one", [(0, 1), (0, 1), (1, 1)]),
        "HEAD": lambda: faulty_store.stat("one"),
        "GET  ": lambda: list(faulty_store.objects()),
        "POST": lambda: faulty_store.delete_many(["one", "two"]),
    }
    for method, act in acts.items():
        proxy.forget()
        act()
        assert [request.method for request in proxy.requests] == [method.strip()]
