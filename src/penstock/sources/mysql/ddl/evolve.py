"""ALTER TABLE applied to a definition, in the server's order (sql_table.cc, mysql_prepare_alter_table).

1. Existing columns are dropped, changed or left as they are, whatever the order of the actions.
2. New columns are added and others are moved, in the order written.
3. Existing keys lose dropped columns and follow renamed ones. New keys are added after them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from penstock.model.schema import Column, KeyPart, TableId
from penstock.sources.mysql.ddl import charsets
from penstock.sources.mysql.ddl.build import (
    CannotApply,
    Keys,
    make_column,
    primary_not_null,
    timestamps,
    with_default,
)
from penstock.sources.mysql.ddl.change import Origin
from penstock.sources.mysql.ddl.column import ColumnSpec, IndexSpec, PeriodSpec
from penstock.sources.mysql.ddl.conversion import silent_changes
from penstock.sources.mysql.ddl.definition import ColumnDefinition, Key, TableDefinition
from penstock.sources.mysql.ddl.options import ENGINES_WITH_ROWS, SHOWN, TableOptions
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.statement import (
    AddElement,
    After,
    AlterColumn,
    AlterTable,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropKey,
    ExchangeRows,
    First,
    LosesRows,
    NoChange,
    Partitioning,
    Position,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetOptions,
    UnknownAction,
    Versioning,
)
from penstock.sources.mysql.ddl.types import SPATIAL, size_class, text_bytes


@dataclass(frozen=True)
class Evolved:
    """The definition after the actions, with its old name. The caller handles `renamed` and `exchanged`."""

    definition: TableDefinition
    origins: tuple[Origin, ...]
    silent: tuple[str, ...]
    renamed: TableId | None
    exchanged: tuple[ExchangeRows, ...]


@dataclass
class _Sorted:
    """The actions of a statement, by kind."""

    added: list[AddElement] = field(default_factory=list)
    changed: dict[str, ChangeColumn] = field(default_factory=dict)
    order: list[ChangeColumn | AddElement] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    altered: dict[str, list[AlterColumn]] = field(default_factory=dict)
    drop_keys: list[DropKey] = field(default_factory=list)
    rename_keys: dict[str, str] = field(default_factory=dict)
    convert: ConvertCharset | None = None
    options: list[TableOptions] = field(default_factory=list)
    partitioned: bool | None = None
    versioned: bool | None = None
    silent: list[str] = field(default_factory=list)
    rename_to: TableId | None = None
    exchanged: list[ExchangeRows] = field(default_factory=list)


def evolve(
    table: TableDefinition, statement: AlterTable, server: Server, *, database: tuple[str, str]
) -> Evolved:
    """Applies the actions. Raises `CannotApply` if they do not fit the definition, or if one is not
    understood."""
    todo = _sort(table, statement)
    charset = _charset(table, todo, server, database)
    columns, origins = _columns(table, todo, server, charset)
    keys = _keys(table, todo, server, columns, origins)
    options = _merged(table, todo.options)
    engine = dict(options).get("ENGINE", "")
    keys.keys = _parts_that_remain(keys.keys, columns)
    settled = keys.settled(columns, engine)
    final = primary_not_null(columns, settled)
    silent = [*todo.silent, *_silent(table, final, origins, todo, server)]
    if statement.ignore:
        silent.append("ALTER IGNORE drops rows that offend a new unique index")
    definition = replace(
        table,
        columns=final,
        keys=settled,
        foreign_keys=keys.settled_foreign_keys(columns, engine),
        checks=tuple(keys.checks),
        charset=charset[0] if table.charset or todo.convert or _names_charset(todo) else None,
        collation=charset[1] if table.charset or todo.convert or _names_charset(todo) else None,
        partitioned=table.partitioned if todo.partitioned is None else todo.partitioned,
        versioned=table.versioned if todo.versioned is None else todo.versioned,
        options=options,
    )
    definition = replace(definition, keys=definition.sorted_keys())
    return Evolved(
        definition, tuple(origins), tuple(dict.fromkeys(silent)), todo.rename_to, tuple(todo.exchanged)
    )


def _sort(table: TableDefinition, statement: AlterTable) -> _Sorted:
    todo = _Sorted()
    for action in statement.actions:
        match action:
            case (
                ChangeColumn(old=name, if_exists=True) | RenameColumn(old=name, if_exists=True)
                | DropColumn(name=name, if_exists=True) | AlterColumn(name=name, if_exists=True)
            ) if table.find(name) is None:  # fmt: skip
                continue
            case AddElement(element=element, if_not_exists=known):
                if isinstance(element, ColumnSpec) and known and _has(table, todo, element.name):
                    continue
                if isinstance(element, IndexSpec) and element.if_not_exists and _has_index(table, element):
                    continue
                todo.added.append(action)
                todo.order.append(action)
                if isinstance(element, PeriodSpec) and element.system:
                    todo.silent.append("a period of system time is added")
            case ChangeColumn(old=old):
                if old.lower() in todo.changed:
                    raise CannotApply(f"column {old} is changed twice")
                todo.changed[old.lower()] = action
                todo.order.append(action)
            case RenameColumn(old=old, new=new):
                todo.renamed[old.lower()] = new
            case DropColumn(name=name):
                todo.dropped.add(name.lower())
            case AlterColumn(name=name):
                todo.altered.setdefault(name.lower(), []).append(action)
            case DropKey():
                todo.drop_keys.append(action)
            case RenameKey(old=old, new=new):
                todo.rename_keys[old.lower()] = new
            case RenameTo(table=new_name):
                todo.rename_to = new_name
            case ConvertCharset():
                todo.convert = action
            case SetOptions(options=options):
                todo.options.append(options)
                _engine(options, todo)
            case Partitioning(on=on):
                todo.partitioned = on
            case LosesRows(what=what):
                todo.silent.append(what)
            case ExchangeRows():
                todo.exchanged.append(action)
                todo.silent.append(action.what)
            case Versioning(on=on):
                todo.versioned = on
                todo.silent.append("system versioning begins" if on else "system versioning ends")
            case NoChange():
                pass
            case UnknownAction(what=what):
                raise CannotApply(what)
    return todo


def _has(table: TableDefinition, todo: _Sorted, name: str) -> bool:
    lowered = name.lower()
    added = any(
        isinstance(one.element, ColumnSpec) and one.element.name.lower() == lowered for one in todo.added
    )
    return added or (table.find(name) is not None and lowered not in todo.dropped)


def _has_index(table: TableDefinition, index: IndexSpec) -> bool:
    if any(key.name.lower() == index.known_as.lower() for key in table.keys):
        return True
    if index.kind == "unique" and not table.indexes_known:
        raise CannotApply("whether it has an index of that name is not known")
    return False


def _engine(options: TableOptions, todo: _Sorted) -> None:
    engine = options.get("ENGINE")
    if engine is not None and engine.upper() not in ENGINES_WITH_ROWS:
        todo.silent.append(f"the table moves to the engine {engine}")
    if options.union is not None:
        todo.silent.append("the tables under a MERGE table change")


def _names_charset(todo: _Sorted) -> bool:
    return any(options.charset or options.collation for options in todo.options)


def _charset(
    table: TableDefinition, todo: _Sorted, server: Server, database: tuple[str, str]
) -> tuple[str, str]:
    """The character set and collation of the table, which new columns inherit."""
    charset = (table.charset, table.collation) if table.charset and table.collation else database
    for options in todo.options:
        if options.charset or options.collation:
            charset = table_charset(options.charset, options.collation, server, database)
    if todo.convert is not None:
        charset = table_charset(todo.convert.charset, todo.convert.collation, server, database)
    elif not table.charset and not _names_charset(todo) and _needs_charset(todo):
        raise CannotApply("the table's character set is not known")
    return charset


def _needs_charset(todo: _Sorted) -> bool:
    specs = [one.element for one in todo.added if isinstance(one.element, ColumnSpec)]
    specs += [one.column for one in todo.changed.values()]
    return any(
        spec.type.charset is None
        and spec.collation is None
        and (spec.type.kind in ("char", "varchar", "enum", "set") or spec.type.kind.endswith("text"))
        for spec in specs
    )


def table_charset(
    charset: str | None, collation: str | None, server: Server, database: tuple[str, str]
) -> tuple[str, str]:
    """The character set and collation from the table's CHARACTER SET and COLLATE. `default`: those of the
    database."""
    if charset == "default":
        return charsets.settle(server, None, collation, inherited=database)
    return charsets.settle(server, charset, collation, inherited=database)


def _columns(
    table: TableDefinition, todo: _Sorted, server: Server, charset: tuple[str, str]
) -> tuple[list[ColumnDefinition], list[Origin]]:
    for name in (*todo.changed, *todo.dropped, *todo.renamed, *todo.altered):
        if table.find(name) is None:
            raise CannotApply(f"it has no column {name}")
    made = _specified(todo, server, charset)
    entries: list[tuple[ColumnDefinition, Origin]] = []
    for old in table.columns:
        name = old.name.lower()
        change = todo.changed.get(name)
        if name in todo.dropped:
            continue
        if change is None:
            column = _after(old, todo, server, charset)
        else:  # MariaDB takes both for one column
            column = _altered(made[id(change)], todo.altered.get(name, ()), server)
            made[id(change)] = column
        entries.append((column, Origin(old.name)))
    for action in todo.order:
        if isinstance(action, AddElement):
            if isinstance(action.element, ColumnSpec):
                column = made[id(action)]
                if _is_renamed(column.name, todo, server):
                    column = _altered(column, todo.altered.get(column.name.lower(), ()), server)
                _insert(entries, column, Origin(None), action.position)
        elif action.position is not None:
            old_column = table.find(action.old)
            assert old_column is not None
            entries = [entry for entry in entries if entry[1].before != old_column.name]
            _insert(entries, made[id(action)], Origin(old_column.name), action.position)
    names = [column.name.lower() for column, _ in entries]
    if len(set(names)) < len(names):
        raise CannotApply("it has a column of that name already")
    if not entries:
        raise CannotApply("no column would be left")
    return [column for column, _ in entries], [origin for _, origin in entries]


def _specified(todo: _Sorted, server: Server, charset: tuple[str, str]) -> dict[int, ColumnDefinition]:
    """The columns that the statement defines, by the identity of their actions."""
    actions = [
        one for one in todo.order if isinstance(one, ChangeColumn) or isinstance(one.element, ColumnSpec)
    ]
    specs = [one.column if isinstance(one, ChangeColumn) else one.element for one in actions]
    columns = [
        make_column(spec, inherited=charset, server=server) for spec in specs if isinstance(spec, ColumnSpec)
    ]
    timestamps([spec for spec in specs if isinstance(spec, ColumnSpec)], columns, server)
    return {id(action): column for action, column in zip(actions, columns, strict=True)}


def _altered(column: ColumnDefinition, actions: Iterable[AlterColumn], server: Server) -> ColumnDefinition:
    for action in actions:
        if action.invisible is not None:
            column = replace(column, column=replace(column.column, invisible=action.invisible))
        elif action.default is not None or not (_keeps_current_timestamp(server) and _is_now(column)):
            column = with_default(column, action.default, server)  # MariaDB does not drop this default
    return column


def _after(
    old: ColumnDefinition, todo: _Sorted, server: Server, charset: tuple[str, str]
) -> ColumnDefinition:
    name = old.name.lower()
    column = old
    if not _is_renamed(name, todo, server):
        column = _altered(old, todo.altered.get(name, ()), server)
    if name in todo.renamed:
        column = replace(column, column=replace(column.column, name=todo.renamed[name]))
    return _converted(column, charset, server) if todo.convert is not None else column


def _is_renamed(name: str, todo: _Sorted, server: Server) -> bool:
    """Whether MariaDB renames the column before ALTER COLUMN, which then means a new column of that name."""
    return server.mariadb and name.lower() in todo.renamed


def _keeps_current_timestamp(server: Server) -> bool:
    return server.mariadb and server.version < (11, 4, 0)


def _is_now(column: ColumnDefinition) -> bool:
    return column.column.default_is_expression and (column.column.default or "").startswith("current_timest")


def _converted(column: ColumnDefinition, charset: tuple[str, str], server: Server) -> ColumnDefinition:
    """Applies CONVERT TO CHARACTER SET to every character column. A text type grows if as many characters as
    before would not fit."""
    old = column.column
    if old.charset is None or old.charset == "binary":
        return column
    kind, text = old.type, old.column_type
    size = text_bytes(kind)
    if size is not None:
        characters = size // charsets.bytes_max(old.charset)
        kind = text = size_class(characters * charsets.bytes_max(charset[0]))
    elif kind == "varchar" and (old.length or 0) * charsets.bytes_max(charset[0]) > 65_535:
        kind = text = size_class((old.length or 0) * charsets.bytes_max(charset[0]))
    elif charset[0] == "binary" and kind in ("char", "varchar"):
        raise CannotApply("a conversion to binary is left to the server")
    length = old.length if kind == old.type else None
    new = replace(
        old, type=kind, column_type=text if kind != old.type else old.column_type, length=length,
        charset=charset[0], collation=charset[1],
    )  # fmt: skip
    return replace(column, column=new, data_type=kind if kind != old.type else column.data_type)


def _insert(
    entries: list[tuple[ColumnDefinition, Origin]],
    column: ColumnDefinition,
    origin: Origin,
    position: Position,
) -> None:
    match position:
        case First():
            entries.insert(0, (column, origin))
        case After(column=name):
            at = next((i for i, (one, _) in enumerate(entries) if one.name.lower() == name.lower()), None)
            if at is None:
                raise CannotApply(f"it has no column {name}")
            entries.insert(at + 1, (column, origin))
        case None:
            entries.append((column, origin))


def _keys(
    table: TableDefinition,
    todo: _Sorted,
    server: Server,
    columns: list[ColumnDefinition],
    origins: list[Origin],
) -> Keys:
    keys = list(table.keys)
    foreign = list(table.foreign_keys)
    checks = list(table.checks)
    for action in todo.drop_keys:
        name = action.name.lower()
        if "key" in action.kinds:
            wanted = "primary" if name == "primary" else None
            keys = [key for key in keys if key.name.lower() != name and key.kind != wanted]
        if "foreign" in action.kinds:
            foreign = [key for key in foreign if key.name.lower() != name]
        if "check" in action.kinds:
            checks = [check for check in checks if check.lower() != name]
    if not table.keys_known and (todo.drop_keys or todo.rename_keys):
        raise CannotApply("its keys are not known")
    keys = [replace(key, name=todo.rename_keys.get(key.name.lower(), key.name)) for key in keys]
    gathered = Keys(
        table.table,
        server,
        keys=_followed(keys, table, columns, origins, server),
        foreign_keys=foreign,
        checks=checks,
    )
    for spelt in todo.order:
        if isinstance(spelt, AddElement):
            gathered.add(spelt.element)
        else:
            gathered.add_column_keys(spelt.column)
    return gathered


def _followed(
    keys: list[Key],
    table: TableDefinition,
    columns: list[ColumnDefinition],
    origins: list[Origin],
    server: Server,
) -> list[Key]:
    """Returns the keys with the new columns. A part gets the first column that had its name before or that is
    added with this name, or is removed (sql_table.cc, mysql_prepare_alter_table)."""
    heirs: dict[str, tuple[ColumnDefinition, Origin]] = {}
    for column, origin in zip(columns, origins, strict=True):
        heirs.setdefault((origin.before or column.name).lower(), (column, origin))
    followed = []
    for key in keys:
        parts = []
        for part in key.parts:
            old, heir = table.find(part.column or ""), heirs.get((part.column or "").lower())
            if part.column is None or (old is None and heir is not None):
                parts.append(part)
            elif heir is not None and old is not None:
                parts.append(KeyPart(heir[0].name, part.length or _prefix_after(old.column, *heir, server)))
        if parts:
            followed.append(replace(key, parts=tuple(parts)))
    return followed


_STORED_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8, "float": 4, "double": 8}


def _prefix_after(old: Column, heir: ColumnDefinition, origin: Origin, server: Server) -> int | None:
    """Returns the prefix of a key part whose column was replaced, or changed from ENUM or SET to a text."""
    if old.type in ("enum", "set"):
        if heir.column.type in ("enum", "set") or (server.mariadb and origin.before is not None):
            return None
        labels, width = old.labels or (), charsets.bytes_max(old.charset or "")
        size = (1 if len(labels) < 256 else 2) if old.type == "enum" else (len(labels) + 7) // 8
        shown = max(map(len, labels), default=0) if old.type == "enum" else len(",".join(labels))
        whole = origin.before is not None and shown * width == size
        return None if whole else size // width or None
    if origin.before is not None:
        return None
    return old.length or _STORED_BYTES.get(old.type)


def _parts_that_remain(keys: list[Key], columns: list[ColumnDefinition]) -> list[Key]:
    """Removes prefixes that the column's new type does not allow."""
    kinds = {one.name.lower(): one.column.type for one in columns}
    return [
        replace(
            key,
            parts=tuple(
                KeyPart(
                    part.column,
                    None if _takes_no_prefix(kinds.get((part.column or "").lower())) else part.length,
                )
                for part in key.parts
            ),
        )
        for key in keys
    ]


def _takes_no_prefix(kind: str | None) -> bool:
    if kind is None or kind in SPATIAL:
        return False
    return text_bytes(kind) is None and kind not in ("char", "varchar", "binary", "varbinary")


def _silent(
    table: TableDefinition,
    columns: tuple[ColumnDefinition, ...],
    origins: list[Origin],
    todo: _Sorted,
    server: Server,
) -> list[str]:
    pairs = [
        (None if origin.before is None else table.find(origin.before), column)
        for column, origin in zip(columns, origins, strict=True)
    ]
    reasons = silent_changes(pairs, server, statement=True)
    for before, column in pairs:
        if before is None and table.find(column.name) is not None and column.name.lower() in todo.dropped:
            reasons.append(f"column {column.name} is dropped and added again")
    return reasons


def _merged(table: TableDefinition, changes: list[TableOptions]) -> tuple[tuple[str, str], ...]:
    merged = dict(table.options)
    for options in changes:
        merged.update((name, value) for name, value in options.others if name in SHOWN)
    return tuple(merged.items())
