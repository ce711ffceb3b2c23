"""Who is known as a reader of a relay log, and what is kept for each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.relaylog.conftest import AT_ONCE

from penstock.errors import ConfigError, TransientError
from penstock.model.offset import Offset
from penstock.relaylog import consumers, retention
from penstock.relaylog.consumers import Consumer, registered, remove
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments


def offsets(folder: Path) -> dict[str, int]:
    return {one.id: one.offset for one in registered(folder)}


def test_two_pipelines_of_one_name_do_not_delete_what_the_other_has_not_read(folder: Path) -> None:
    end = RelayLog.open(folder).end
    slow = Consumer(folder, "shop", needs=Offset(0), id="state-1", kind="pipeline")
    slow.close()
    fast = Consumer(folder, "shop", needs=end, id="state-2", kind="pipeline")
    fast.needs(end)
    assert offsets(folder) == {"state-1": 0, "state-2": end}
    assert retention.apply(folder, AT_ONCE) == []
    remove(folder, "state-1")
    assert retention.apply(folder, AT_ONCE) != []
    assert len(list_segments(folder)) == 1
    fast.close()


def test_a_name_that_lives_is_refused_and_one_that_does_not_is_free(tmp_path: Path) -> None:
    pipeline = Consumer(tmp_path, "shop", needs=Offset(5), id="u1", kind="pipeline", place="/data/shop")
    with pytest.raises(
        ConfigError, match="A pipeline named shop, whose state is /data/shop, is already running"
    ):
        Consumer(tmp_path, "shop", needs=Offset(9))
    with pytest.raises(ConfigError, match="already running with the id"):
        Consumer(tmp_path, "other", needs=Offset(9), id="u1")
    pipeline.close()
    Consumer(tmp_path, "shop", needs=Offset(9)).close()
    assert [(one.name, one.kind, one.alive) for one in registered(tmp_path)] in (
        [("shop", "pipeline", False), ("shop", "follower", False)],
        [("shop", "follower", False), ("shop", "pipeline", False)],
    )


HOLDS = """
import sys, time
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer
held = Consumer(sys.argv[1], "shop", needs=Offset(7), id="u1", kind="pipeline")
print("held", flush=True)
time.sleep(600)
"""


def test_a_consumer_that_is_killed_is_not_alive_any_more_and_keeps_its_log(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="running"):
            Consumer(tmp_path, "shop", needs=Offset(9), id="u2")
        with pytest.raises(ConfigError, match="Stop it first"):
            remove(tmp_path, "shop")
        process.send_signal(signal.SIGSTOP)  # it lives all the same
        assert registered(tmp_path)[0].alive
    finally:
        process.kill()
        process.wait()
    [one] = registered(tmp_path)
    assert (one.alive, one.offset) == (False, 7)
    again = Consumer(tmp_path, "shop", needs=Offset(9), id="u1", kind="pipeline")
    assert offsets(tmp_path) == {"u1": 7}, "until it says otherwise"
    again.needs(Offset(9))
    assert offsets(tmp_path) == {"u1": 9}


def test_of_many_that_register_one_name_at_once_exactly_one_is_taken(tmp_path: Path) -> None:
    taken: list[Consumer] = []
    refused: list[str] = []
    start = threading.Barrier(8)

    def register(number: int) -> None:
        start.wait()
        try:
            taken.append(Consumer(tmp_path, "shop", needs=Offset(number), id=f"u{number}"))
        except ConfigError as error:
            refused.append(error.message)

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(taken), len(refused)) == (1, 7)
    assert offsets(tmp_path) == {taken[0].id: int(taken[0].id[1:])}


def old_file(folder: Path, name: str, offset: int) -> None:
    """As versions without ids wrote it."""
    (folder / "consumers").mkdir(exist_ok=True)
    (folder / "consumers" / f"{name}.json").write_text(json.dumps({"offset": offset, "updated": 1.5}))


def test_a_file_without_id_is_taken_over_by_the_owner_of_its_name_and_holds_log_until_then(
    folder: Path,
) -> None:
    end = RelayLog.open(folder).end
    old_file(folder, "shop", 100)
    stranger = Consumer(folder, "shop", needs=end, id="new", kind="pipeline", owns_name=False)
    assert offsets(folder) == {"shop": 100, "new": end}
    assert retention.apply(folder, AT_ONCE) == []
    stranger.close()
    owner = Consumer(folder, "shop", needs=end, id="old", kind="pipeline")
    assert offsets(folder) == {"old": 100, "new": end}
    owner.needs(end)
    assert retention.apply(folder, AT_ONCE) != []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"offset": ' + b"9" * 4000 + b"}",
        b'{"offset": true}',
        b'{"offset": 1e999}',
        b'{"offset": -5}',
        b'{"offset": 9223372036854775807}',
        b'{"offset": "12"}',
        b"null",
        b'{"id": "x", "name": "x", "kind": "pipeline", "offset": 99999999}',
        b'{"id": "bad", "name": "a/b", "kind": "pipeline", "offset": 99999999}',
        b'{"id": "bad", "name": "\\u001b[31m", "kind": "pipeline", "offset": 99999999}',
        b" " * 70_000 + b'{"offset": 99999999}',
    ],
    ids=range(14),
)
def test_what_a_consumer_file_holds_never_deletes_log_and_never_stops_retention(
    folder: Path, content: bytes
) -> None:
    end = RelayLog.open(folder).end
    good = Consumer(folder, "good", needs=end)
    good.needs(end)
    (folder / "consumers" / "bad.json").write_bytes(content)
    assert retention.apply(folder, AT_ONCE) == []
    assert len(registered(folder)) == 2
    remove(folder, "bad")
    assert retention.apply(folder, AT_ONCE) != []


def test_what_stands_in_place_of_a_consumer_file_never_stops_retention(folder: Path, tmp_path: Path) -> None:
    end = RelayLog.open(folder).end
    Consumer(folder, "good", needs=end).needs(end)
    place = folder / "consumers"
    secret = tmp_path / "elsewhere.json"
    secret.write_text(json.dumps({"offset": int(end)}))
    os.mkfifo(place / "fifo.json")
    (place / "folder.json").mkdir()
    (place / "link.json").symlink_to(secret)
    (place / "\x1b[2J.json").write_text("{}")
    assert retention.apply(folder, AT_ONCE) == []
    assert sorted(one.offset for one in registered(folder)) == [0, 0, 0, 0, end]


def test_retention_rests_while_somebody_registers_and_a_returned_hold_is_never_overtaken(
    folder: Path,
) -> None:
    log = RelayLog.open(folder)
    consumer = Consumer(folder, "shop", needs=log.end)
    consumer.needs(log.end)
    with consumers.exclusive(folder / "consumers") as alone:
        assert alone
        assert retention.apply(folder, AT_ONCE) == []
    second = list_segments(folder)[1].base
    consumer.protect(second)
    assert [name.base for name in list_segments(folder)][1:] != []
    retention.apply(folder, AT_ONCE)
    assert list_segments(folder)[0].base == second
    consumer.needs(log.end)
    retention.apply(folder, AT_ONCE)
    assert len(list_segments(folder)) == 1


def test_a_hold_waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(tmp_path, "shop", needs=Offset(9))
    monkeypatch.setattr(consumers, "LOCK_SECONDS_MAX", 0.05)
    with (
        consumers.exclusive(tmp_path / "consumers"),
        pytest.raises(TransientError, match="Another process has held"),
    ):
        consumer.protect(Offset(3))


def test_of_two_with_one_name_an_id_says_which_to_remove(tmp_path: Path) -> None:
    for number in (1, 2):
        Consumer(tmp_path, "shop", needs=Offset(number), id=f"u{number}").close()
    with pytest.raises(ConfigError, match="2 consumers are named 'shop'") as caught:
        remove(tmp_path, "shop")
    assert "u1, u2" in caught.value.hint
    remove(tmp_path, "u1")
    assert remove(tmp_path, "shop").id == "u2"
    with pytest.raises(ConfigError, match="has no consumer"):
        remove(tmp_path, "shop")
    assert list((tmp_path / "consumers").iterdir()) == [tmp_path / "consumers" / "lock"]
