"""Canal's rules for topics and partitions, with Canal's own results: `canal.mq.dynamicTopic` and
`canal.mq.partitionHash`. Pure.

A list of rules is separated by commas or semicolons, and the first rule that fits counts. A rule without a
character of regular expressions is a name. Names and expressions ignore case, and an expression must fit the
whole name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.model.schema import TableId

_SPECIAL = frozenset("*?+|(){}[]\\$^")
KEY_COLUMNS = "$pk$"


@dataclass(frozen=True)
class PartitionRule:
    """A rule for partitions. `columns`: those that decide. None: the table's name decides. Empty: the key
    decides."""

    columns: tuple[str, ...] | None


def dynamic_topic(rules: str, table: TableId) -> str | None:
    """The topic that the rules give to a table. None: they give none."""
    for name in (f"{table.database}.{table.table}", table.database):
        for rule in _split(rules):
            topic, colon, pattern = rule.partition(":")
            if not colon:
                topic, pattern = name.lower(), rule
            if _topic_fits(pattern.strip() if colon else pattern, name):
                return topic.strip().replace(".", "_") if colon else topic.replace(".", "_")
    return None


def partition_rule(rules: str, table: TableId) -> PartitionRule | None:
    """The rule for a table. None: its messages go into the first partition."""
    for pattern, columns in partition_rules(rules):
        if _fits(pattern, f"{table.database}.{table.table}"):
            return PartitionRule(columns)
    return None


def check(rules: str) -> None:
    """Checks rules for topics. Raises `ValueError` for an invalid expression."""
    for rule in _split(rules):
        topic, colon, pattern = rule.partition(":")
        _checked(pattern.strip() if colon else topic)


def check_partitions(rules: str) -> None:
    """Raises `ValueError` if a rule of partitions cannot be understood."""
    for pattern, columns in partition_rules(rules):
        _checked(pattern)
        if columns == () and not any(rule.lower().endswith(KEY_COLUMNS) for rule in _split(rules)):
            raise ValueError(f"`{pattern}:` names no columns: write `{pattern}:id^name` or `{pattern}:$pk$`")


def java_hash(text: str) -> int:
    """`String.hashCode`."""
    found = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    return found - 0x100000000 if found & 0x80000000 else found


def table_partition(table: TableId, partitions: int) -> int:
    """The partition of a table whose rule has no columns."""
    return abs(java_hash(table.table)) % partitions


def _split(rules: str) -> Iterator[str]:
    return (rule for rule in re.split("[,;]", rules) if rule)


def partition_rules(rules: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Pattern and columns of each rule. None: the table's name decides. Empty: the columns of the key do."""
    for rule in _split(rules):
        at = rule.rfind(":")
        if at <= 0:
            yield rule, None
        elif rule[at + 1 :].lower() == KEY_COLUMNS:
            yield rule[:at], ()
        else:
            yield rule[:at], tuple(name for name in rule[at + 1 :].split("^") if name)


def _topic_fits(pattern: str, name: str) -> bool:
    """An expression with `\\.` is about tables, one without about databases."""
    if _SPECIAL.isdisjoint(pattern):
        return pattern.lower() == name.lower()
    return ("\\." in pattern) == ("." in name) and _fits(pattern, name)


def _fits(pattern: str, name: str) -> bool:
    if _SPECIAL.isdisjoint(pattern):
        return pattern.lower() == name.lower()
    return re.fullmatch(pattern, name.lower(), re.IGNORECASE | re.DOTALL) is not None


def _checked(pattern: str) -> None:
    if _SPECIAL.isdisjoint(pattern):
        return
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"`{pattern}` is no regular expression: {error}") from None
