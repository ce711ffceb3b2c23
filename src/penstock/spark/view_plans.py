"""What Spark's analysis says of a view's query: which rows of the result change if rows of its tables do.

A query can be maintained by keys if it consists of joins, filters, and at most one GROUP BY above them. Then
a row of the result changes only if a row of the join changes from which it is made, and such a row is made
from a changed row of some table. So all keys that are concerned are found by running the query with the
changed rows in place of one table: the earlier ones with the other tables as they were, and the new ones with
the other tables as they are. An outer join then finds more keys than necessary, since rows without a partner
stay, and never fewer.

That does not hold for an outer or anti join within the side of another one whose rows may be missing. With
fewer rows of one table, the inner join then has more rows, or other ones, and the outer one has fewer rows
without a partner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from penstock.errors import ConfigError

_SIMPLE = {"Project", "Filter", "Join", "SubqueryAlias", "View", "Generate", "Aggregate"}
_PASSING = {"Project", "Filter", "SubqueryAlias"}


@dataclass(frozen=True)
class ByKeys:
    """The result can be maintained by keys. `key`: the columns of the result. `made_as`: their names in the
    rows that `rows_before_having` returns. `unique`: the query itself makes sure that no two rows of the
    result have one key. Otherwise only the user says so."""

    key: tuple[str, ...]
    made_as: tuple[str, ...]
    unique: bool = True


@dataclass(frozen=True)
class Whole:
    """The result is always computed as a whole, because of `why`."""

    why: str


def way_of(frame: DataFrame, keys: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> ByKeys | Whole:
    """How a query is maintained. `keys`: of each table by its name in the query, the columns of its key.
    `wanted`: the columns that the user names as the key. Raises `ConfigError` for a query whose result is no
    function of the tables."""
    plan = _analyzed(frame)
    patterns = _jvm(frame).org.apache.spark.sql.catalyst.trees.TreePattern
    nodes = list(_walk(plan))
    if not all(node.deterministic() for node in nodes) or plan.containsPattern(patterns.CURRENT_LIKE()):
        raise ConfigError("Its result depends on the time or on chance, so it cannot be kept right.")
    names = [node.nodeName() for node in nodes]
    if "Sample" in names:
        raise ConfigError("Its result depends on chance, so it cannot be kept right.")
    if plan.containsPattern(patterns.PLAN_EXPRESSION()):
        return Whole("it has a query in an expression")
    if others := sorted(set(names) - _SIMPLE):
        return Whole(f"it has more than joins, filters and one GROUP BY ({', '.join(others)})")
    if any(_has_missing(side) for node in nodes for side in _may_miss(node)):
        return Whole("it has an outer join within the side of another one whose rows may be missing")
    used = [_name_of(node) for node in nodes if node.nodeName() == "View"]
    if sorted(used) != sorted(set(used)):
        return Whole("it reads a table twice")
    if "Aggregate" in names:
        return _grouped(plan, names, wanted)
    return _joined(frame, plan, nodes, keys, wanted)


def _may_miss(node: Any) -> list[Any]:
    """The sides of a join for which it matters that the other side may have no matching row."""
    if node.nodeName() != "Join":
        return []
    match str(node.joinType().sql()):
        case "LEFT OUTER" | "LEFT ANTI":
            return [node.right()]
        case "RIGHT OUTER":
            return [node.left()]
        case "FULL OUTER":
            return [node.left(), node.right()]
    return []


def _has_missing(plan: Any) -> bool:
    return any(_may_miss(node) for node in _walk(plan))


def rows_before_having(frame: DataFrame) -> DataFrame:
    """The rows of a query without the conditions on what it has grouped."""
    plan = _top_aggregate(_analyzed(frame))
    if plan is None:
        return frame
    dataset = _jvm(frame).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(frame.sparkSession._jsparkSession, plan), frame.sparkSession)


def _grouped(plan: Any, names: list[str], wanted: Sequence[str]) -> ByKeys | Whole:
    aggregate = _top_aggregate(plan)
    if aggregate is None or names.count("Aggregate") > 1:
        return Whole("it groups more than once, or before it joins")
    grouping = _seq(aggregate.groupingExpressions())
    if not grouping:
        return Whole("it does not group by anything")
    results = _results(plan)
    key, made_as = [], []
    for expression in grouping:
        for column in _seq(aggregate.aggregateExpressions()):
            value = column.child() if column.nodeName() == "Alias" else column
            shown = results.get(_id(column))
            if shown is not None and value.semanticEquals(expression):
                key.append(shown)
                made_as.append(column.name())
                break
        else:
            return Whole("its result lacks a column that it groups by")
    if wanted and {name.lower() for name in wanted} != {name.lower() for name in key}:
        return Whole("its `key` is not what it groups by")
    return ByKeys(tuple(key), tuple(made_as))


def _joined(
    frame: DataFrame,
    plan: Any,
    nodes: Sequence[Any],
    keys: Mapping[str, Sequence[str]],
    wanted: Sequence[str],
) -> ByKeys | Whole:
    if wanted:
        known = {name.lower(): name for name in frame.columns}
        if missing := [name for name in wanted if name.lower() not in known]:
            raise ConfigError(f"Its result has no column `{missing[0]}`, which `key` names.")
        key = tuple(known[name.lower()] for name in wanted)
        return ByKeys(key, key, unique=False)
    if any(node.nodeName() == "Generate" for node in nodes):
        return Whole("it makes several rows of one, and `key` does not say what identifies them")
    results = _results(plan)
    found: list[str] = []
    for view in (node for node in nodes if node.nodeName() == "View"):
        ids = {one.name().lower(): _id(one) for one in _seq(view.output())}
        if not keys[_name_of(view)]:
            return Whole(f"nothing says what identifies the rows of {_name_of(view)}")
        for name in keys[_name_of(view)]:
            shown = results.get(ids.get(name.lower(), ""))
            if shown is None:
                return Whole(f"its result lacks `{name}`, which is part of the key of {_name_of(view)}")
            found.append(shown)
    return ByKeys(tuple(found), tuple(found))


def _results(plan: Any) -> dict[str, str]:
    """The names of the result's columns, by the identifiers of the columns from which they are taken."""
    taken = {}
    for node in _walk(plan):
        if node.nodeName() == "Project":
            for column in _seq(node.projectList()):
                if column.nodeName() == "Alias" and column.child().nodeName() == "AttributeReference":
                    taken[_id(column)] = _id(column.child())
    found = {}
    for column in _seq(plan.output()):
        name, origin = column.name(), _id(column)
        found[origin] = name
        while origin in taken:
            origin = taken[origin]
            found[origin] = name
    return found


def _id(column: Any) -> str:
    return str(column.exprId().toString())


def _top_aggregate(plan: Any) -> Any | None:
    """The aggregate that nothing but filters and projections follow."""
    while plan.nodeName() in _PASSING:
        plan = plan.child()
    return plan if plan.nodeName() == "Aggregate" else None


def _walk(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, without what the tables are made of."""
    yield plan
    if plan.nodeName() != "View":
        for child in _seq(plan.children()):
            yield from _walk(child)


def _name_of(view: Any) -> str:
    return str(view.desc().identifier().table())


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _jvm(frame: DataFrame) -> Any:
    return frame.sparkSession._jvm


def _seq(values: Any) -> list[Any]:
    return [values.apply(number) for number in range(values.size())]
