"""What the log has said of tables. It is compared with the catalog when the log describes a table again, and
from time to time.

It is stored in a file beside the log, after what it says is durable there. So after a crash it may be older
than the log. Then a change is said twice, which has no effect the second time, or a table is read once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from penstock._core import pg_column, pg_relation
from penstock.disk.replace import replace_file
from penstock.errors import START_OVER, RelayLogCorrupt
from penstock.model.schema import TableId
from penstock.sources.postgresql.catalog import PgColumn, PgLeaf, PgTable, read_tables
from penstock.sources.postgresql.known_tables import KnownTables
from penstock.sources.postgresql.log_position import moment
from penstock.sources.postgresql.table_changes import Statement, changes, definition

FILE = "tables.json"
SentColumn = tuple[str, bool, int, int]
"""A column as the log describes it (`pg_relation`)."""
Catalog = dict[int, PgTable | None]
"""Tables by their numbers, as the catalog has them now. None: there is none."""
_RENEWS_PARTITIONS = 150_000
"""The version from which on a connection notices which tables are partitions."""
_ROOT = "SELECT pg_catalog.pg_partition_root(%s::oid)::int8"


@dataclass(frozen=True)
class Look:
    """What the catalog had. Everything that made it so is in the log before `end`. `number`: looks are
    counted. `keeps_partitions`: as of `FollowedTables.awaits_session`."""

    tables: dict[int, PgTable]
    end: int
    number: int
    keeps_partitions: bool = False


@dataclass(frozen=True)
class Described:
    """A table as the log will have it from here on, and what has happened to it before. `text_only`: columns
    whose binary form is not known. `root`: as of `PgTranslator.describe`."""

    definition: str
    said: list[tuple[str, str]]
    text_only: list[str]
    root: tuple[int, str, str, list[int]] | None = None


class FollowedTables:
    """`folder`: that of the relay log."""

    def __init__(self, folder: Path, publication: str) -> None:
        self._path = folder / FILE
        self._publication = publication
        self._tables = KnownTables()
        self._looked: dict[int, int] = {}
        """The number of the look that a table is from."""
        self._number = 0
        self._stored = True
        self._parts: dict[int, int | None] = {}
        """Tables that the log has described, and those that they are partitions of."""
        self._ahead: Catalog = {}
        self._renewed: dict[int, tuple[PgLeaf, ...]] | None = None
        """The partitions of tables for which `awaits_session` was true the last time."""
        self._leaves: dict[int, tuple[PgTable | None, PgTable, list[int]]] = {}
        """By table: what it was before and after its last description, and the numbers of the partitions that
        it had or has."""

    def begin(self, database: psycopg.Connection[Any]) -> None:
        """Takes the tables of a new log, before it has anything. `database`: in a transaction that shows what
        is before the log."""
        self._tables = KnownTables(read_tables(database, self._publication))
        self._stored = False
        self.store()

    def load(self) -> None:
        try:
            said = json.loads(self._path.read_text())["tables"]
            self._tables = KnownTables(PgTable.from_json(one) for one in said)
        except FileNotFoundError:
            raise RelayLogCorrupt(
                f"{self._path} is missing. Without it, changes of definitions since then are not noticed.",
                hint=f"To go on, {START_OVER}",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise RelayLogCorrupt(
                f"{self._path} is damaged: {type(error).__name__}.", hint=f"To go on, {START_OVER}"
            ) from None

    def store(self) -> None:
        """To be called when all that was said is durable in the log."""
        if not self._stored:
            text = json.dumps({"tables": [one.to_json() for one in self._tables]})
            replace_file(self._path, text.encode(), durable=True)
            self._stored = True

    def look(self, database: psycopg.Connection[Any]) -> Look:
        self._number += 1
        tables = {one.number: one for one in read_tables(database, self._publication)}
        keeps = database.info.server_version < _RENEWS_PARTITIONS
        return Look(tables, moment(database).end, self._number, keeps)

    def awaits_session(self, look: Look) -> bool:
        """Whether a new session has to begin before what a look has found is said.

        Before version 15, a session does not notice that a table has become a partition, and sends none of
        its rows. Nor does it notice that a table is no partition any more, and sends its rows as those of
        the partitioned table."""
        if not look.keeps_partitions:
            return False
        moved = {
            number: table.leaves
            for number, table in look.tables.items()
            if _has_moved(self._tables.get(number), table)
        }
        if not moved or moved == self._renewed:
            return False
        self._renewed = moved
        return True

    def adopt(self, database: psycopg.Connection[Any]) -> tuple[int, int]:
        """Takes the tables of a server that `pg_upgrade` has made, where other transactions wrote the
        catalog. Returns how many are the same, and how many are not. These stay as they were known, so that
        the next look finds what they have become."""
        tables = {one.number: one for one in read_tables(database, self._publication)}
        same = [one for one in self._tables if _is_upgraded(one, tables.get(one.number))]
        count = len(self._tables.numbers)
        for one in same:
            self._set(one.number, tables[one.number])
        self.store()
        return len(same), count - len(same)

    def reached(self, look: Look) -> list[Statement]:
        """What has happened to tables up to a look. The log has reached its end."""
        news = {
            number: (look.tables.get(number), True)
            for number in self._tables.numbers | look.tables.keys()
            if self._looked.get(number, 0) <= look.number  # else the log has described it since
        }
        return self._take(news)

    def moved(self) -> list[int]:
        """Tables that the log has described which have become partitions since, or are none any more."""
        roots = self._tables.roots
        return [number for number, root in self._parts.items() if roots.get(number) != root]

    @contextmanager
    def read_ahead(
        self, database: psycopg.Connection[Any], messages: Sequence[tuple[int, str, str, bytes]]
    ) -> Iterator[None]:
        """Reads the tables at once that messages describe. Within it, `described` gets them one by one."""
        numbers = {number for number, *_ in messages if number not in self._tables.roots}
        if len(numbers) > 1:
            found = {one.number: one for one in read_tables(database, self._publication, numbers=numbers)}
            self._ahead = {number: found.get(number) for number in numbers}
        try:
            yield
        finally:
            self._ahead = {}

    def described(
        self, database: psycopg.Connection[Any], messages: Sequence[tuple[int, str, str, bytes]]
    ) -> list[tuple[bytes, Described]]:
        """What the messages are about that describe tables (`PgTranslator.unknown`)."""
        self._number += 1
        # As it was known before the first of these messages.
        roots = dict(self._tables.roots) if len(messages) > 1 else self._tables.roots
        found, read = list[tuple[bytes, Described]](), dict[int, Catalog]()
        for number, schema, name, message in messages:
            root = self._root_of(database, number, roots)
            table = TableId(schema, name) if root is None else None
            described = self._described(database, root or number, table, pg_relation(message), read)
            if described is None:  # a partition of a table that is not followed
                described = self._described(
                    database, number, TableId(schema, name), pg_relation(message), read
                )
            assert described is not None
            self._parts[number] = described.root and described.root[0]
            found.append((message, described))
        return found

    def _root_of(
        self, database: psycopg.Connection[Any], number: int, roots: Mapping[int, int]
    ) -> int | None:
        """The table of which this one is a partition: as the log has known it up to here, or if it has not,
        as the catalog has it now. None: it is none."""
        if number in self._tables or number in roots:
            return roots.get(number)
        row = database.execute(_ROOT, (number,)).fetchone()
        return None if row is None or row[0] in (None, number) else int(row[0])

    def _described(
        self,
        database: psycopg.Connection[Any],
        number: int,
        table: TableId | None,
        columns: list[SentColumn],
        read: dict[int, Catalog],
    ) -> Described | None:
        """`table`: its name in the message; None: the message is about a partition. `read`: the catalog, as
        far as it was read for other messages. Returns None if the partitioned table is not followed."""
        before = self._tables.get(number)
        if number not in read:
            # A table may have thousands of partitions. The next look finds what has changed besides.
            as_known = table is None and before is not None and _fits(before, None, columns)
            read[number] = {number: before} if as_known else self._read(database, number, table)
        now = read[number]
        known = now.get(number) or before
        if table is None and (known is None or not known.published):
            return None
        after, certain = self._as_sent(number, table, columns, now.get(number))
        said = list[Statement]()
        if before is not None or now.get(number) is not None:  # else it is gone, or a partition
            said = self._take({other: (now[other], True) for other in now} | {number: (after, certain)})
        identity = frozenset(column for column, is_key, *_ in columns if is_key)
        sent = [name for name, *_ in columns]
        is_ordered = sent == [one.name for one in after.columns]
        return Described(
            json.dumps(definition(after, identity, None if is_ordered else sent)),
            [(database_name, json.dumps(one)) for database_name, one in said],
            [one.name for one in after.columns if not one.reads_binary],
            None
            if table
            else (number, after.table.database, after.table.table, self._parts_of(before, after)),
        )

    def _parts_of(self, before: PgTable | None, after: PgTable) -> list[int]:
        """The numbers of the partitions that a table had or has. A table may have thousands of them, each of
        which is described."""
        told = self._leaves.get(after.number)
        if told is None or told[0] is not before or told[1] is not after:
            parts = {leaf.number for one in (before, after) if one is not None for leaf in one.leaves}
            told = self._leaves[after.number] = (before, after, sorted(parts))
        return told[2]

    def _read(self, database: psycopg.Connection[Any], number: int, table: TableId | None) -> Catalog:
        """A table as it is now, and those that are known by its name or by one of theirs: they have other
        names now, or are gone."""
        wanted, names = {number}, {table} if table is not None else set[TableId]()
        keeps = database.info.server_version < _RENEWS_PARTITIONS
        if number in self._ahead:
            found = self._ahead.pop(number)
            if not self._tables.named(names | ({found.table} if found else set())) - wanted:
                return {number: self._as_known(found) if keeps and found else found}
        while True:
            holders = self._tables.named(names) - wanted
            read = read_tables(database, self._publication, numbers=wanted | holders)
            wanted |= holders
            names |= {one.table for one in read}
            if not self._tables.named(names) - wanted:
                by_number = {one.number: self._as_known(one) if keeps else one for one in read}
                return {other: by_number.get(other) for other in wanted}

    def _as_known(self, table: PgTable) -> PgTable:
        """With the partitions that are known, if others can only be said in a later session."""
        before = self._tables.get(table.number)
        return replace(table, leaves=before.leaves) if before and _has_moved(before, table) else table

    def _as_sent(
        self, number: int, table: TableId | None, columns: list[SentColumn], now: PgTable | None
    ) -> tuple[PgTable, bool]:
        """The table as the log describes it, and whether that is all of what the catalog has now."""
        before = self._tables.get(number)
        if now is not None and _fits(now, table, columns):
            return now, True
        if before is not None and _fits(before, table, columns):
            return before, True  # the catalog is ahead of the log, which will say more
        return _between(number, table, columns, before, now), False

    def _take(self, news: Mapping[int, tuple[PgTable | None, bool]]) -> list[Statement]:
        """Takes what tables are now, and whether that is all. Returns what has happened to them, in such an
        order that no table gets a name which another one still has."""
        said, waiting = list[Statement](), dict[int, tuple[PgTable | None, bool]]()
        for number, (after, certain) in sorted(news.items()):
            self._looked[number] = self._number
            if after is None:
                said += changes(self._tables.get(number), None)
                self._set(number, None)
            else:
                waiting[number] = after, certain
        while waiting:
            held = {self._tables[number].table: number for number in waiting if number in self._tables}
            free = [n for n, (after, _) in waiting.items() if after and held.get(after.table, n) == n]
            for number in free:
                after, certain = waiting.pop(number)
                said += changes(self._tables.get(number), after, certain=certain)
                self._set(number, after)
            if not free:  # tables have exchanged their names: one begins again
                number = min(waiting)
                said += changes(self._tables[number], None)
                self._set(number, None)
        return said

    def _set(self, number: int, table: PgTable | None) -> None:
        if self._tables.get(number) == table:
            return
        self._stored = False
        self._tables.set(number, table)


def _has_moved(before: PgTable | None, now: PgTable) -> bool:
    """Whether partitions have come that had rows before, or have gone."""
    if before is None or before.leaves == now.leaves:
        return False
    had = {leaf.number: leaf.since for leaf in before.leaves}
    has = {leaf.number: leaf for leaf in now.leaves}
    gone = had.keys() - has.keys()
    return bool(gone) or any(
        not leaf.is_born and had.get(number) != leaf.since for number, leaf in has.items()
    )


def _is_upgraded(before: PgTable, now: PgTable | None) -> bool:
    """Whether it is the same table, with the same rows."""
    if now is None or len(before.columns) != len(now.columns):
        return False
    columns = tuple(
        replace(one, changed=was.changed) for was, one in zip(before.columns, now.columns, strict=True)
    )
    leaves = [tuple(leaf._replace(is_born=False, since="") for leaf in one.leaves) for one in (before, now)]
    return leaves[0] == leaves[1] and before == replace(
        now, columns=columns, leaves=before.leaves, membership=before.membership
    )


def _fits(known: PgTable, table: TableId | None, columns: list[SentColumn]) -> bool:
    """Whether the log describes the table as it is known. A partition (None) may have the columns in another
    order."""
    sent = [(name, declared, modifier) for name, _, declared, modifier in columns]
    defined = [(c.name, c.declared, c.modifier) for c in known.columns]
    return sorted(sent) == sorted(defined) if table is None else (known.table, defined) == (table, sent)


def _between(
    number: int,
    table: TableId | None,
    columns: list[SentColumn],
    before: PgTable | None,
    now: PgTable | None,
) -> PgTable:
    """A table that was defined as the log says at some time between what is known and now. Its columns are
    known by names and types only."""
    known = {
        (one.name, one.declared, one.modifier): one
        for other in (before, now)
        if other is not None
        for one in other.columns
    }
    found = list[PgColumn]()
    for name, _, declared, modifier in columns:
        one = known.get((name, declared, modifier))
        if one is None:
            said = json.loads(pg_column(name, str(declared), modifier, True, ""))
            one = PgColumn(0, name, declared, modifier, "", str(declared), None, False, None, said)
        found.append(one)
    names = {one.name for one in found}
    like = now or before
    key = tuple(like.key) if like is not None and set(like.key) <= names else ()
    if like is None:
        assert table is not None
        key = tuple(name for name, is_key, *_ in columns if is_key)
        like = PgTable(number, table, "r", "p", "d", None, True, "", None, 0, key, ())
    return replace(like, table=table or like.table, key=key, columns=tuple(found))
