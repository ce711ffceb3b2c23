"""Changes read from a relay log without Spark, while a receiver writes it. The judge is the source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.receiving import Receiving, receiving

from penstock.changes.opening import follow
from penstock.changes.reader import ChangeBatch, ChangeReader, Committed, Definitions, Item, TableChanged
from penstock.errors import ConfigError, LogPurged, TableError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.consumers import registered
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.testing import oracle
from penstock.testing.servers import MySqlServer

ROOT = Path(__file__).parents[2]
ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")

Source = tuple[MySqlServer, Receiving]


@pytest.fixture
def source(emptied_mysql: Callable[..., MySqlServer], tmp_path: Path) -> Iterator[Source]:
    server = emptied_mysql()
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(12, 2))",
        "CREATE TABLE shop.others (id BIGINT UNSIGNED PRIMARY KEY, at DATETIME(6))",
    )
    with receiving(server, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        yield server, receiver


def until_now(source: Source, tables: list[str], **options: Any) -> ChangeReader:
    """Reads what the source has written so far."""
    _, receiver = source
    receiver.wait_until_level()
    return follow(receiver.file, tables, until=receiver.log.end, **options)


def rows_after(items: Iterable[Item], table: TableId) -> list[dict[str, Any]]:
    """What the changes leave of a table that was empty, by its column `id`."""
    rows: dict[Any, dict[str, Any]] = {}
    for item in items:
        if not isinstance(item, ChangeBatch) or item.table != table:
            continue
        for row in item.batch.to_pylist():
            kind = row["_change_type"]
            if kind in ("update_preimage", "delete"):
                del rows[row["id"]]
            else:
                assert row["id"] not in rows
                rows[row["id"]] = {name: value for name, value in row.items() if name[0] != "_"}
    return list(rows.values())


def assert_like_source(server: MySqlServer, items: Iterable[Item], table: TableId) -> None:
    columns = oracle.columns_of(server, str(table))
    actual = oracle.canonical_rows(rows_after(items, table), columns)
    oracle.assert_same_rows(oracle.rows_of(server, str(table)), actual)


def write(server: MySqlServer) -> None:
    server.execute(
        "INSERT INTO shop.orders VALUES (1, 'one', 1.5), (2, 'two', NULL), (3, NULL, -0.01)",
        "INSERT INTO shop.others VALUES (18446744073709551615, '2024-02-29 23:59:59.123456')",
        "UPDATE shop.orders SET note = 'zwei' WHERE id = 2",
        "UPDATE shop.orders SET id = 30 WHERE id = 3",
        "DELETE FROM shop.orders WHERE id = 1",
    )


def test_the_changes_of_the_chosen_tables_add_up_to_what_the_source_holds(source: Source) -> None:
    server, _ = source
    write(server)
    with until_now(source, ["shop.*"], start="earliest") as changes:
        items = list(changes)
    assert_like_source(server, items, ORDERS)
    assert_like_source(server, items, OTHERS)
    with until_now(source, ["shop.orders"], start="earliest") as changes:
        assert {item.table for item in changes if isinstance(item, ChangeBatch)} == {ORDERS}


def test_a_change_arrives_while_it_is_waited_for(source: Source) -> None:
    server, receiver = source
    with follow(receiver.file, ["shop.orders"]) as changes:
        waiting = iter(changes)
        for number in range(3):
            server.execute(f"INSERT INTO shop.orders VALUES ({number}, 'now', 1)")
            batch = next(item for item in waiting if isinstance(item, ChangeBatch))
            assert batch.batch.column("id").to_pylist() == [number]
            committed = next(waiting)
            assert committed == Committed(changes.offset)


def test_reading_again_from_a_committed_offset_gives_what_followed_it(source: Source) -> None:
    server, receiver = source
    ends = {receiver.log.end}
    for number in range(20):
        server.execute(f"INSERT INTO shop.orders VALUES ({number}, 'x', {number})")
        receiver.wait_until_level()
        ends.add(receiver.log.end)
    with until_now(source, ["shop.orders"], start="earliest") as changes:
        items = list(changes)
    rows = [row for item in items if isinstance(item, ChangeBatch) for row in item.batch.to_pylist()]
    assert len(rows) == 20
    assert len(ends) == 21
    for end in ends:
        with until_now(source, ["shop.orders"], start=end) as changes:
            again = [r for item in changes if isinstance(item, ChangeBatch) for r in item.batch.to_pylist()]
        assert again == [row for row in rows if row["_sequence"] > end]


def test_a_changed_definition_is_told_between_batches_that_have_each_its_own(source: Source) -> None:
    server, receiver = source
    with follow(receiver.file, ["shop.*"]) as changes:
        begin = changes.offset
        server.execute(
            "INSERT INTO shop.orders VALUES (1, 'before', 1)",
            "ALTER TABLE shop.orders RENAME COLUMN note TO remark, ADD COLUMN more INT DEFAULT 7 FIRST",
            "INSERT INTO shop.orders VALUES (8, 2, 'after', 2)",
            "INSERT INTO shop.others VALUES (1, NULL)",
            "ALTER TABLE shop.orders DROP COLUMN more",
            "UPDATE shop.orders SET remark = 'late'",
        )
        receiver.wait_until_level()
        end, items = receiver.log.end, []
        for item in changes:
            items.append(item)
            if item == Committed(end):
                break
    said = [item for item in items if isinstance(item, TableChanged)]
    assert [(one.table, one.unseen, one.truncated) for one in said] == [(ORDERS, "", False)] * 2
    assert [list(map(str, one.schema.columns[0].name.split())) for one in said if one.schema] == [
        ["more"], ["id"]
    ]  # fmt: skip
    names = [[c for c in item.batch.schema.names if c[0] != "_"] for item in items
             if isinstance(item, ChangeBatch) and item.table == ORDERS]  # fmt: skip
    assert names == [["id", "note", "amount"], ["more", "id", "remark", "amount"], ["id", "remark", "amount"]]
    inserted = [item.batch.to_pylist() for item in items if isinstance(item, ChangeBatch)]
    assert {row.get("remark", row.get("note")) for rows in inserted for row in rows if "amount" in row} == {
        "before", "after", "late"
    }  # fmt: skip
    # The same with definitions that are carried from the start on.
    definitions = Definitions(begin, {ORDERS: _orders()})
    again = list(ChangeReader(receiver.log_path, definitions, start=begin, until=end))
    assert [i.batch for i in again if isinstance(i, ChangeBatch)] == [
        i.batch for i in items if isinstance(i, ChangeBatch) and i.table == ORDERS
    ]
    late = ChangeReader(receiver.log_path, definitions, start=end)
    assert [column.name for column in late.schemas[ORDERS].columns] == ["id", "remark", "amount"]


def _orders() -> TableSchema:
    columns = (
        Column("id", "int", nullable=False),
        Column("note", "varchar", length=40, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
        Column("amount", "decimal", precision=12, scale=2),
    )
    return TableSchema(ORDERS, columns, ("id",), charset="utf8mb4", collation="utf8mb4_0900_ai_ci", unique=())


def test_a_start_before_a_change_of_definition_is_refused_where_the_old_one_is_not_known(
    source: Source,
) -> None:
    server, _ = source
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 1)", "ALTER TABLE shop.orders DROP COLUMN note")
    with pytest.raises(ConfigError, match=r"The definition of shop\.orders changed at offset"):
        until_now(source, ["shop.orders"], start="earliest")
    with until_now(source, ["shop.others"], start="earliest") as changes:
        assert all(isinstance(item, Committed) for item in changes)


def test_a_start_that_is_refused_is_told_where_the_last_change_of_a_definition_ends(source: Source) -> None:
    server, _ = source
    server.execute("ALTER TABLE shop.orders ADD a INT", "ALTER TABLE shop.others ADD b INT")
    server.execute("INSERT INTO shop.others VALUES (7, NULL, 1)", "TRUNCATE shop.others")
    with pytest.raises(ConfigError, match=r"The definition of shop\.others changed at offset") as refused:
        until_now(source, ["shop.*"], start="earliest", name="cache")
    found = re.search(r"Start at (\d+) or later", refused.value.hint)
    assert found is not None
    # The name is free again.
    with until_now(source, ["shop.*"], start=int(found[1]), name="cache") as changes:
        items = [item for item in changes if not isinstance(item, Committed)]
    assert [type(item) for item in items] == [ChangeBatch, TableChanged]
    assert isinstance(items[1], TableChanged) and items[1].truncated


def test_rows_that_no_event_tells_of_are_said_and_the_table_is_left(source: Source) -> None:
    server, receiver = source
    server.execute("CREATE DATABASE rest", "CREATE TABLE rest.t (id INT PRIMARY KEY)")
    receiver.wait_until_level()
    with follow(receiver.file, ["shop.orders", "rest.t"]) as changes:
        server.execute(
            "SET binlog_format = 'STATEMENT'",
            "UPDATE shop.orders SET amount = 0",
            "SET binlog_format = 'ROW'",
            "INSERT INTO rest.t VALUES (5)",
        )
        told = next(item for item in changes if isinstance(item, TableChanged))
        assert (told.table, told.schema) == (ORDERS, None)
        assert "statement format" in told.unseen
        batch = next(item for item in changes if isinstance(item, ChangeBatch))
        assert batch.table == TableId("rest", "t")
        assert ORDERS not in changes.schemas


def test_a_statement_inside_of_a_transaction_is_no_place_to_begin_at(source: Source) -> None:
    server, receiver = source
    server.execute("CREATE DATABASE rest", "CREATE TABLE rest.t (id INT PRIMARY KEY)")
    receiver.wait_until_level()
    with follow(receiver.file, ["shop.*", "rest.t"]) as changes:
        server.execute(
            "SET binlog_format = 'STATEMENT'", "BEGIN", "UPDATE shop.orders SET amount = 0",
            "UPDATE shop.others SET at = NULL", "COMMIT", "SET binlog_format = 'ROW'",
            "INSERT INTO rest.t VALUES (5)",
        )  # fmt: skip
        receiver.wait_until_level()
        end, committed, left = receiver.log.end, list[int](), list[TableId]()
        for item in changes:
            if isinstance(item, Committed):
                committed.append(item.offset)
                if item.offset >= end:
                    break
            elif isinstance(item, TableChanged) and item.unseen:
                left.append(item.table)
    assert left == [ORDERS, OTHERS]
    for offset in committed:
        follow(receiver.file, ["rest.t"], start=offset).close()


def test_dropped_truncated_and_made_anew_is_told_in_order(source: Source) -> None:
    server, receiver = source
    with follow(receiver.file, ["shop.orders"]) as changes:
        server.execute(
            "TRUNCATE TABLE shop.orders",
            "DROP TABLE shop.orders",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, other TEXT)",
            "INSERT INTO shop.orders VALUES (1, 'new')",
        )
        found: list[Item] = []
        for item in changes:
            found.append(item)
            if isinstance(item, ChangeBatch):
                break
    said = [(one.truncated, one.schema is None) for one in found if isinstance(one, TableChanged)]
    assert said == [(True, False), (False, True), (False, False)]
    assert_like_source(server, found, ORDERS)


def test_a_statement_is_read_in_the_character_set_of_the_client_that_sent_it(source: Source) -> None:
    server, receiver = source
    table = TableId("shop", "größe")
    server.execute("CREATE TABLE shop.größe (id INT PRIMARY KEY)", "INSERT INTO shop.größe VALUES (1)")
    with follow(receiver.file, ["shop.*"]) as changes:
        with closing(server.connect(charset="latin1")) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE TABLE shop.größe")
        server.execute("INSERT INTO shop.größe VALUES (2)")
        items = iter(changes)
        said = next(item for item in items if isinstance(item, TableChanged))
        assert (said.table, said.truncated) == (table, True)


def test_a_definition_that_does_not_fit_the_log_is_an_error_that_names_the_place(source: Source) -> None:
    server, receiver = source
    begin = receiver.log.end
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 1)")
    receiver.wait_until_level()
    wrong = TableSchema(ORDERS, (*_orders().columns[:2], Column("amount", "bigint")), ("id",))
    reader = ChangeReader(
        receiver.log_path, Definitions(begin, {ORDERS: wrong}), start=begin, until=receiver.log.end
    )
    with pytest.raises(TableError, match=r"Rows of table shop\.orders cannot be read at offset"):
        list(reader)


def test_only_transaction_ends_that_are_held_can_be_started_from(source: Source) -> None:
    with pytest.raises(ConfigError, match="cannot start at 'newest'"):
        until_now(source, ["shop.orders"], start="newest")
    server, receiver = source
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 1)")
    receiver.wait_until_level()
    end = receiver.log.end
    for offset, why in ((end - 1, "not the end of a transaction"), (end + 1, "is not in the relay log")):
        with pytest.raises(ConfigError, match=why):
            follow(receiver.file, ["shop.orders"], start=offset)
    with pytest.raises(ConfigError, match="matches no table"):
        follow(receiver.file, ["shop.order"])


def test_a_reader_goes_on_where_a_loss_of_power_took_the_last_newline_of_the_index(source: Source) -> None:
    server, receiver = source
    write(server)
    receiver.wait_until_level()
    server.execute("INSERT INTO shop.orders VALUES (9, 'after', 9)")
    receiver.wait_until_level()
    end = receiver.log.end
    receiver.kill()
    log = receiver.log
    path = log.path / list_segments(log.path)[-1].index
    lines = path.read_bytes().splitlines()
    last = next(at for at, line in enumerate(lines) if json.loads(line[:-9])["committed"] >= end)
    path.write_bytes(b"\n".join(lines[: last + 1]))
    assert RelayLog.open(log.path).end < end
    with ThreadPoolExecutor(1) as aside:
        opened = aside.submit(follow, receiver.file, ["shop.orders"], start=end)
        receiver.start()
        with opened.result(60) as changes:
            assert changes.offset == end


def test_what_a_named_reader_has_not_acknowledged_is_kept(source: Source) -> None:
    server, receiver = source
    with follow(receiver.file, ["shop.orders"], name="cache") as changes:
        begin = changes.offset
        server.execute("INSERT INTO shop.orders VALUES (1, 'a', 1)")
        committed = next(item for item in changes if isinstance(item, Committed))
        [known] = registered(receiver.log_path)
        assert (known.name, known.id, known.offset) == ("cache", changes.consumer_id, begin)
        changes.acknowledge(committed.offset)
        assert [one.offset for one in registered(receiver.log_path)] == [committed.offset]


def test_a_slow_reader_without_a_name_is_told_that_its_log_was_deleted(
    emptied_mysql: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, x TEXT)")
    with receiving(server, tmp_path, start="latest", segment_size="1MiB") as receiver:
        receiver.wait_until_level()
        with follow(receiver.file, ["shop.t"], start="earliest") as changes:
            for number in range(60):
                server.execute(f"INSERT INTO shop.t VALUES ({number}, REPEAT('x', 60000))")
            server.execute("FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (100, 'x')")
            receiver.wait_until_level()
            items = iter(changes)
            next(items)
            segments = list_segments(receiver.log_path)[:-1]
            assert len(segments) > 1
            for one in segments:  # as retention does
                (receiver.log_path / one.index).unlink()
                (receiver.log_path / one.file).unlink()
            with pytest.raises(LogPurged, match=r"deleted.* `name`"):
                list(items)


@pytest.mark.slow
def test_a_slow_reader_is_told_so_after_the_retention_of_an_archive(
    emptied_mysql: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, x TEXT)")
    options = {"archive": str(tmp_path / "archive"), "cache_size": "64KiB"}
    with (
        receiving(
            server, tmp_path / "state", start="latest", segment_size="64KiB", keep_age="1s", **options
        ) as receiver,
        opened_once_level(receiver, start="earliest") as changes,
        opened_once_level(receiver, name="other") as other,
    ):
        for number in range(60):
            server.execute(f"INSERT INTO shop.t VALUES ({number}, REPEAT('x', 20000))")
        receiver.wait_until_level()
        items = iter(changes)
        next(items)
        other.acknowledge(receiver.log.end)
        seen: set[Path] = set()

        def deleted() -> bool:
            there = set(tmp_path.glob("archive/segments/*"))
            seen.update(there)
            return bool(seen - there) and len(there) <= 4  # two files each

        receiver.wait_for(deleted, "retention")
        with pytest.raises(LogPurged, match=r"deleted.* `name`"):
            list(items)


def opened_once_level(receiver: Receiving, **options: Any) -> ChangeReader:
    receiver.wait_until_level()
    return follow(receiver.file, ["shop.t"], **options)


def test_a_reader_that_comes_back_under_its_name_is_the_same_and_two_at_once_are_refused(
    source: Source,
) -> None:
    server, receiver = source
    with follow(receiver.file, ["shop.orders"], name="cache") as changes:
        begin, first = changes.offset, changes.consumer_id
        with pytest.raises(ConfigError, match="A follower named cache is already running"):
            follow(receiver.file, ["shop.orders"], name="cache")
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 1)")
    receiver.wait_until_level()
    with follow(receiver.file, ["shop.orders"], name="cache") as changes:
        assert changes.consumer_id == first
        [known] = registered(receiver.log_path)
        assert known.alive and known.offset == begin < changes.offset, "kept until it acknowledges"
        changes.acknowledge(changes.offset)
        assert [one.offset for one in registered(receiver.log_path)] == [changes.offset]
    with follow(receiver.file, ["shop.orders"], name="cache", consumer_id="another") as changes:
        assert {one.id for one in registered(receiver.log_path)} == {first, "another"}


def test_the_example_of_the_page_runs(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    server, receiver = source
    write(server)
    receiver.wait_until_level()
    page = (ROOT / "docs" / "changes.md").read_text("utf-8")
    example, _ = re.findall(r"```python\n(.*?)```", page, re.S)
    code = example.replace('"shop.yaml"', repr(str(receiver.file)))
    code = code.replace('start="earliest"', f'start="earliest", until={int(receiver.log.end)}')
    exec(compile(code, "docs/changes.md", "exec"), {})
    assert "shop.orders" in capsys.readouterr().out
