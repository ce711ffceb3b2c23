"""What every store promises (`penstock.store.base`), on each kind of store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from penstock.errors import InternalError, PenstockError
from penstock.store.base import Store
from penstock.store.errors import KeyRefused, ObjectChanged, ObjectExists, ObjectMissing, ObjectShorter
from penstock.store.probe import check_conditions, check_listing

AWKWARD = [
    "a b", "50%", "a%20b", "%2e%2e", "é/ñ", "e\u0301", "日本/語", "\U0001f600", ".hidden/.file", "...", "a.",
    "~", "-rf", "$(x)`y`", "a#b?c&d=e+f", "a:b;c,d@e", "quote'\"", "back\\slash", "[x]{y}<z>|*^", "\u202etxt",
    "x" * 255, "/".join(["d" * 60] * 14),
]  # fmt: skip
REFUSED = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\nb", "a\0b", "a\x7f", "\ud800",
           "x" * 256, "/".join(["d" * 100] * 11), ".penstock/lock"]  # fmt: skip


def keys(store: Store, prefix: str = "", *, after: str = "") -> list[str]:
    return [info.key for info in store.objects(prefix, after=after)]


def together(count: int, act: Callable[[int], object]) -> list[object]:
    """What `act(0)` to `act(count - 1)` returned or raised, all begun at the same moment."""
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        try:
            return act(number)
        except PenstockError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def put_number_if_absent(store: Store, key: str, number: int) -> object:
    return store.put_if_absent(key, b"%d" % number)


def test_an_object_is_read_as_it_was_put(store: Store) -> None:
    version = store.put("folder/one", b"abc")
    content = store.get("folder/one")
    assert (content.data, content.info.key, content.info.size) == (b"abc", "folder/one", 3)
    assert content.info.version == version
    assert store.stat("folder/one") == content.info
    assert abs(content.info.modified - datetime.now(timezone.utc)) < timedelta(minutes=2)


@pytest.mark.parametrize(
    "data", [b"", bytearray(b"abc"), memoryview(b"xabc")[1:]], ids=["empty", "array", "view"]
)
def test_any_bytes_may_be_put(store: Store, data: bytes) -> None:
    store.put("one", data)
    assert store.get("one").data == bytes(data)
    assert store.stat("one").size == len(data)


def test_a_later_put_replaces_the_object_and_its_version(store: Store) -> None:
    first = store.put("one", b"1")
    assert store.put("one", b"2") != first
    assert store.get("one").data == b"2"


def test_what_is_not_there_is_missing(store: Store, flaws: frozenset[str]) -> None:
    store.put("folder/one", b"1")
    below = [] if "error 500 for a key below an object" in flaws else ["folder/one/more"]
    for key in ("none", "folder", *below):
        reads: list[Callable[[str], object]] = [
            store.get,
            store.stat,
            lambda key: store.get_range(key, 0, 1),
        ]
        for read in reads:
            with pytest.raises(ObjectMissing) as error:
                read(key)
            assert store.location.url(key) in str(error.value)


def test_ranges_are_exact(store: Store) -> None:
    store.put("one", bytes(range(200)))
    assert bytes(store.get_range("one", 0, 200)) == bytes(range(200))
    assert bytes(store.get_range("one", 5, 7)) == b"\x05\x06"
    assert bytes(store.get_range("one", 199, 200)) == b"\xc7"
    assert bytes(store.get_range("one", 7, 7)) == b""
    assert store.get_ranges("one", []) == []
    assert store.get_ranges("one", [(150, 152), (0, 1), (3, 3), (0, 2)]) == [
        b"\x96\x97",
        b"\0",
        b"",
        b"\0\x01",
    ]


@pytest.mark.parametrize("ranges", [(0, 201), (199, 300), (200, 201), (1000, 1001)])
def test_a_range_beyond_the_end_is_an_error_and_not_less_bytes(store: Store, ranges: tuple[int, int]) -> None:
    store.put("one", bytes(200))
    with pytest.raises(ObjectShorter):
        store.get_range("one", *ranges)
    with pytest.raises(ObjectShorter):
        store.get_ranges("one", [(0, 1), ranges])


def test_put_if_absent_writes_once(store: Store) -> None:
    version = store.put_if_absent("one", b"1")
    for data in (b"2", b"1"):
        with pytest.raises(ObjectExists) as error:
            store.put_if_absent("one", data)
        assert store.location.url("one") in str(error.value)
    assert store.get("one").info.version == version
    store.delete("one")
    store.put_if_absent("one", b"3")
    assert store.get("one").data == b"3"


def test_put_if_unchanged_replaces_only_the_version_that_was_seen(store: Store) -> None:
    first = store.put("one", b"1")
    second = store.put_if_unchanged("one", b"2", seen=first)
    with pytest.raises(ObjectChanged):
        store.put_if_unchanged("one", b"3", seen=first)
    assert store.get("one").data == b"2"
    assert store.get("one").info.version == second
    listed = next(iter(store.objects()))
    store.put_if_unchanged("one", b"4", seen=listed.version)
    store.delete("one")
    with pytest.raises(ObjectChanged):
        store.put_if_unchanged("one", b"5", seen=second)
    with pytest.raises(ObjectMissing):
        store.get("one")


def test_of_many_writers_one_puts_what_is_absent(store: Store) -> None:
    for number in range(3):
        key = f"log/{number}"
        outcomes = together(8, partial(put_number_if_absent, store, key))
        winners = [writer for writer, got in enumerate(outcomes) if not isinstance(got, ObjectExists)]
        assert len(winners) == 1, outcomes
        assert store.get(key).data == b"%d" % winners[0]
        assert store.get(key).info.version == outcomes[winners[0]]


def test_equal_bytes_do_not_make_two_winners(store: Store) -> None:
    outcomes = together(8, lambda writer: store.put_if_absent("lock", b""))
    assert [type(got) for got in outcomes].count(ObjectExists) == 7


def test_increments_by_many_writers_are_not_lost(store: Store, flaws: frozenset[str]) -> None:
    if (flaw := "If-Match is compared before the write, not with it") in flaws:
        pytest.skip(flaw)
    store.put("counter", b"0")

    def increment(writer: int) -> None:
        for _ in range(3):
            while True:
                content = store.get("counter")
                try:
                    store.put_if_unchanged(
                        "counter", b"%d" % (int(content.data) + 1), seen=content.info.version
                    )
                    break
                except ObjectChanged:
                    continue

    assert together(4, increment) == [None] * 4
    assert store.get("counter").data == b"12"


@pytest.mark.parametrize("key", AWKWARD)
def test_a_key_may_have_awkward_characters(store: Store, key: str, flaws: frozenset[str]) -> None:
    if len(key) == 255 and (flaw := "error 500 for a name of 255 bytes") in flaws:
        pytest.skip(flaw)
    version = store.put_if_absent(key, key.encode())
    store.put("another", b"")
    assert store.get(key).data == key.encode()
    store.put_if_unchanged(key, b"2", seen=version)
    with store.upload(f"{key[:100]}-up") as upload:
        upload.write(b"3")
    assert set(keys(store)) == {key, "another", f"{key[:100]}-up"}
    store.delete_many([key, f"{key[:100]}-up"])
    assert keys(store) == ["another"]


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_some_store_would_take_for_another_is_refused(store: Store, key: str) -> None:
    for act in (
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.stat(key),
        lambda: store.delete(key),
        lambda: store.upload(key),
    ):
        with pytest.raises(KeyRefused) as error:
            act()
        assert str(error.value).isprintable()


def test_a_listing_has_what_is_below_a_folder_in_the_order_of_bytes(
    store: Store, flaws: frozenset[str]
) -> None:
    names = ["a-b", "a.b", "a/b", "a/b-c", "a/c/d", "a0", "ab", "B", "é", "日", "\uff5e"]
    if "keys are ordered by UTF-16" not in flaws:
        names.append("\U0001f600")
    for name in names:
        store.put(name, name.encode())
    ordered = sorted(names, key=str.encode)
    assert keys(store) == ordered
    assert keys(store, "a") == ["a/b", "a/b-c", "a/c/d"]
    assert keys(store, "a/c") == ["a/c/d"]
    assert keys(store, "none") == []
    assert keys(store, "a/b") == [], "an object, not a folder"
    for after in (*names, "a", "a/", "0", "zz"):
        if after.endswith("/"):
            continue
        assert keys(store, after=after) == [name for name in ordered if name.encode() > after.encode()]
    assert keys(store, "a", after="a/b") == ["a/b-c", "a/c/d"]
    assert {info.key: info.size for info in store.objects()} == {name: len(name.encode()) for name in names}


def test_deleting_leaves_no_trace_and_may_be_repeated(store: Store) -> None:
    for key in ("folder/deep/one", "folder/two", "three"):
        store.put(key, b"1")
    store.delete("folder/deep/one")
    store.delete("folder/deep/one")
    assert keys(store) == ["folder/two", "three"]
    store.delete_many(iter(["never/was", "folder/two", "three"]))
    store.delete_many([])
    assert keys(store) == []
    store.put("folder", b"now an object")
    assert keys(store) == ["folder"]


def test_an_upload_appears_whole_when_it_is_finished(store: Store) -> None:
    piece = bytes(range(256)) * 4096 * 3
    with store.upload("folder/one") as upload:
        for _ in range(7):
            upload.write(piece)
        with pytest.raises(ObjectMissing):
            store.stat("folder/one")
    assert keys(store) == ["folder/one"]
    assert upload.finish() == store.stat("folder/one").version
    assert store.get("folder/one").data == piece * 7
    with pytest.raises(InternalError):
        upload.write(b"more")


def test_an_upload_may_be_empty_and_replaces_what_was_there(store: Store) -> None:
    store.put("one", b"old")
    with store.upload("one"):
        assert store.get("one").data == b"old"
    assert store.get("one").data == b""


def test_an_upload_that_is_given_up_leaves_nothing(store: Store) -> None:
    store.put("one", b"old")
    with pytest.raises(ZeroDivisionError), store.upload("one") as upload:
        upload.write(bytes(9 << 20))
        raise ZeroDivisionError
    upload.abort()
    given_up = store.upload("two")
    given_up.write(bytes(10))
    given_up.abort()
    assert [(info.key, info.size) for info in store.objects()] == [("one", 3)]
    with pytest.raises(InternalError):
        given_up.finish()


def test_conditional_puts_and_the_end_of_an_upload_exclude_each_other(store: Store) -> None:
    first = store.put("one", b"1")
    with store.upload("one") as upload:
        upload.write(b"2")
    with pytest.raises(ObjectChanged):
        store.put_if_unchanged("one", b"3", seen=first)


def test_the_store_proves_that_it_keeps_conditions(store: Store) -> None:
    check_conditions(store)
    check_listing(store)
    assert keys(store) == []


@pytest.mark.slow
def test_thousands_of_objects_are_listed_and_deleted(store: Store) -> None:
    names = [f"{number % 7}/{number:05d}" for number in range(2_500)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.put(name, b""), names))
    assert keys(store) == sorted(names)
    assert keys(store, "3") == sorted(name for name in names if name.startswith("3/"))
    assert len(keys(store, after="6/02000")) == len([name for name in names if name > "6/02000"])
    store.delete_many(info.key for info in store.objects())
    assert keys(store) == []
