"""The checks of captured tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from penstock.cascades.keys import parent_missing
from penstock.model.pattern import named_database, named_table
from penstock.model.schema import PASSIVE_RULES, CascadingKey, TableId, TableSchema
from penstock.sources.mysql import catalog
from penstock.sources.mysql.broken_tables import broken_reason, is_broken, refused_tables
from penstock.sources.mysql.connection import query
from penstock.sources.mysql.foreign_keys import read_cascading_keys
from penstock.sources.mysql.identifiers import add_key_sql, quote, quoted
from penstock.sources.mysql.preflight_source import Source, account_sql
from penstock.sources.mysql.versioned_tables import read_versioned_tables, versioned_reason
from penstock.sources.preflight import Finding
from penstock.sources.table_filter import TableFilter

_NAMES_SHOWN_MAX = 5
"""Tables that a finding names, so that it stays readable."""
_DENIED = (1142, 1143)
_FOREIGN_KEYS_MENDED = {(10, 6): 16, (10, 11): 6}
"""Releases of MariaDB's series in which its bug MDEV-30531 is mended: statements that wait for each other can
damage the index of a foreign key, and the server then leaves rows as they were that the key should change."""


def ensure_tables(source: Source) -> Iterator[Finding]:
    """Checks that patterns match tables, that the account may read them, and that all their changes are in
    the log."""
    tables = TableFilter(source.config.tables, fold_case=source.traits.fold_case)
    existing = catalog.list_tables(source.connection)
    captured = [table for table in existing if table in tables]
    yield from _patterns(source, tables, existing, captured)
    if not captured:
        return
    schemas = catalog.read_tables(source.connection, tables)
    count = "1 table is" if len(captured) == 1 else f"{len(captured):,} tables are"
    yield Finding("ok", "tables", _names(captured), f"{count} captured.")
    yield from _readable(source, captured)
    yield from _filters(source, captured)
    yield from _keys(source, schemas)
    yield from _engines(source, captured)
    yield from _versioned(source, captured)
    yield from _cascades(source, set(captured))


def _names(tables: Sequence[TableId]) -> str:
    shown = ", ".join(str(table) for table in tables[:_NAMES_SHOWN_MAX])
    more = len(tables) - _NAMES_SHOWN_MAX
    return shown + (f" and {more} more" if more > 0 else "")


def _patterns(
    source: Source, tables: TableFilter, existing: list[TableId], captured: list[TableId]
) -> Iterator[Finding]:
    # A table that is gone must not keep a pipeline, which already has others, from starting again.
    started = (source.config.state / "state.sqlite").exists()
    for pattern in tables.unmatched(existing):
        wild = named_table(pattern) is None
        level = "error" if not captured or not (wild or started) else "warning"
        database = named_database(pattern)
        view = _is_view(source, pattern)
        what = "is a view, and views have no changes in the log" if view else "matches no table"
        where = "in `tables`, or added by signal," if started else "in `tables`"
        message = (
            f"`{pattern}` {where} {what} of the source {source.name} that the account "
            f"{source.account} may see.{'' if view else _near(pattern, existing)}"
        )
        sql = ""
        if not view and not any(table.database == database for table in existing):
            message += f"{_visible(existing)} If it exists, the account lacks SELECT on it."
            sql = _grant(source, [database]) if database is not None else ""
        yield Finding(level, "tables", pattern, message, sql)  # type: ignore[arg-type]
    if not captured and not tables.unmatched(existing):
        yield Finding(
            "error", "tables", ", ".join(source.config.tables.exclude),
            f"tables.exclude leaves none of the {sum(1 for _ in existing)} tables of the source "
            f"{source.name}.",
        )  # fmt: skip


def _near(pattern: str, existing: Sequence[TableId]) -> str:
    names = [str(table) for table in existing]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(pattern.lower(), lowered, n=3, cutoff=0.6)
    if not near:
        database = named_database(pattern)
        near = [str(table).lower() for table in existing if table.database == database][:3]
    if not near:
        return ""
    return f" Near names: {', '.join(lowered[name] for name in near)}."


def _visible(existing: Sequence[TableId]) -> str:
    names = sorted({table.database for table in existing})
    more = len(names) - _NAMES_SHOWN_MAX
    shown = ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f" It sees tables in: {shown}." if names else " It sees no table."


def _is_view(source: Source, pattern: str) -> bool:
    table = named_table(pattern)
    return table is not None and bool(
        query(
            source.connection,
            "SELECT 1 FROM information_schema.VIEWS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (table.database, table.table),
        )
    )


def _grant(source: Source, databases: Iterable[str]) -> str:
    # In GRANT, `_` and `%` in a database name are wildcards unless escaped.
    return "\n".join(
        f"GRANT SELECT ON {quote(name.replace('_', chr(92) + '_').replace('%', chr(92) + '%'))}.* "
        f"TO {account_sql(source.account)};"
        for name in sorted(set(databases))
    )


def _readable(source: Source, captured: list[TableId]) -> Iterator[Finding]:
    """Asks the server whether it can open the tables, and whether the account may read the rows. This covers
    roles, partial revokes and grants on columns."""
    if source.config.snapshot.mode == "never":
        return
    refused = refused_tables(source.connection, captured)
    for table, error in refused.items():
        if is_broken(error):
            reason, hint = broken_reason(table, error)
            yield Finding(
                "warning", "broken", str(table),
                f"{reason} Its rows cannot be read; other tables are not affected. {hint}", parks=True,
            )  # fmt: skip
    denied = [table for table, error in refused.items() if error.args[0] in _DENIED]
    if denied:
        yield Finding(
            "error", "privileges", _names(denied),
            f"The account {source.account} may not read {_names(denied)}.",
            _grant(source, (table.database for table in denied)),
        )  # fmt: skip
    else:
        yield Finding("ok", "privileges", source.account, "SELECT is granted on every captured table.")


def _filters(source: Source, captured: list[TableId]) -> Iterator[Finding]:
    """Checks binlog_do_db and binlog_ignore_db, which leave whole databases out of the log."""
    if not source.binlog:
        return
    only = str(source.binlog.get("Binlog_Do_DB") or "")
    ignored = str(source.binlog.get("Binlog_Ignore_DB") or "")
    databases = sorted({table.database for table in captured})
    left_out = [name for name in databases if (only and not _lists(only, name)) or _lists(ignored, name)]
    for name in left_out:
        option = "binlog_ignore_db" if _lists(ignored, name) else "binlog_do_db"
        yield Finding(
            "error", "binlog_filter", name,
            f"The source {source.name} does not log the database {name} ({option}), so its tables cannot be "
            f"followed. Correct {option} in the server's option file, and restart the server.",
        )  # fmt: skip
    if not left_out:
        yield Finding("ok", "binlog_filter", ", ".join(databases[:_NAMES_SHOWN_MAX]), "No filter applies.")


def _lists(names: str, name: str) -> bool:
    """Whether a comma-separated list has this name, which may contain commas."""
    return f",{name}," in f",{names},"


def _keys(source: Source, schemas: dict[TableId, TableSchema]) -> Iterator[Finding]:
    without = [table for table, schema in schemas.items() if not schema.key]
    merging = source.config.sink_kind.keeps_tables
    for table in without if merging else []:
        names = {column.name.lower() for column in schemas[table].columns}
        yield Finding(
            "warning", "key", str(table),
            f"{table} has neither a primary key nor a unique index over columns that are NOT NULL, so its "
            f"rows cannot be identified in a target of type {source.config.sink.type}. It is parked, and "
            "stays so when it has one, until `penstock unpark`. Other tables are not affected.",
            f"{add_key_sql(table, names)};",
        )  # fmt: skip
    if not without:
        yield Finding("ok", "key", _names(list(schemas)), "Every table has a key.")


def _engines(source: Source, captured: list[TableId]) -> Iterator[Finding]:
    rows = source.ask(
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE ENGINE <> 'InnoDB'"
    )
    wanted = set(captured)
    for database, name, engine in sorted(rows):
        table = TableId(str(database), str(name))
        if table in wanted:
            yield Finding(
                "warning", "engine", str(table),
                f"{table} uses the engine {engine}, which has no consistent reads: a snapshot during writes "
                "may miss rows or read them twice.",
                f"ALTER TABLE {quoted(table)} ENGINE = InnoDB;",
            )  # fmt: skip


def _versioned(source: Source, captured: list[TableId]) -> Iterator[Finding]:
    for table in read_versioned_tables(source.connection, captured):
        reason, hint = versioned_reason(table)
        yield Finding(
            "warning", "versioning", str(table),
            f"{reason} It is parked; other tables are not affected. {hint}", parks=True,
        )  # fmt: skip


def _cascades(source: Source, captured: set[TableId]) -> Iterator[Finding]:
    """Checks for foreign keys whose changes are not in the log (before MySQL 9.6)."""
    if source.traits.logs_cascades:
        return
    if source.config.cascades == "apply":
        yield from _applied(source, captured)
        return
    parks = source.config.cascades == "park"
    for table, keys in sorted(read_cascading_keys(source.connection, captured).items()):
        follows = f"the target of {table} keeps rows that the source changed or deleted"
        if parks:
            follows = f"{table} is parked; other tables are not affected. `cascades` has other ways"
        for key in keys:
            rules = [
                f"ON {event} {rule}"
                for event, rule in (("UPDATE", key.on_update), ("DELETE", key.on_delete))
                if rule not in PASSIVE_RULES
            ]
            yield Finding(
                "warning", "cascade", str(table),
                f"Changes to {key.parent.table} reach {table} through the foreign key {key.name} "
                f"({', '.join(rules)}). "
                f"Before MySQL 9.6 such changes are not in the log, so {follows}. Let the application change "
                f"{table} itself, and remove the rules from the key.",
                _without_rules(table, key), parks=parks,
            )  # fmt: skip


def _applied(source: Source, captured: set[TableId]) -> Iterator[Finding]:
    """Checks foreign keys whose changes are computed. The log needs the changes of their parent tables."""
    found = sorted(read_cascading_keys(source.connection, captured).items())
    major, minor, patch = source.traits.version
    mended = _FOREIGN_KEYS_MENDED.get((major, minor), 0) if source.traits.mariadb else 0
    if found and patch < mended:
        yield Finding(
            "warning", "cascade", source.name,
            f"MariaDB {source.variable('version')} may damage indexes of foreign keys (MDEV-30531). It then "
            "does not change all rows that such a key should change, and targets differ from it. Update to "
            f"{major}.{minor}.{mended} or later. CHECK TABLE … EXTENDED says which tables are damaged.",
        )  # fmt: skip
    for table, keys in found:
        for key in keys:
            if key.parent in captured:
                text = f"Changes made by the foreign key {key.name} are computed from those of {key.parent}."
                yield Finding("ok", "cascade", str(table), text)
            else:
                reason, hint = parent_missing(table, key)
                yield Finding("warning", "cascade", str(table), f"{reason} {hint}")


def _without_rules(table: TableId, key: CascadingKey) -> str:
    columns, targets = (", ".join(map(quote, names)) for names in (key.columns, key.referenced))
    name = quote(key.name)
    return (
        f"ALTER TABLE {quoted(table)} DROP FOREIGN KEY {name};\n"
        f"ALTER TABLE {quoted(table)} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) "
        f"REFERENCES {quoted(key.parent)} ({targets});"
    )
