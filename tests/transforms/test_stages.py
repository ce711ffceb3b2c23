"""Rules of `transforms` without their SQL: what they do to batches."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from penstock.errors import InternalError, TableError
from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule, Transforms
from penstock.secret import Secret, lent
from penstock.transforms.stages import MATCHES, RESULT, ArrowStage, RowFailed, stages_of

TABLE = TableId("shop", "orders")
KEY = "a secret of the test"


def stage(**rule: Any) -> ArrowStage:
    return ArrowStage(TABLE, TransformRule(tables="shop.*", **rule), ("id",), Secret(KEY))


def latest(*rows: tuple[Any, ...], **more: Any) -> pa.RecordBatch:
    ids, names, gone = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(names, pa.string()),
            **{name: pa.array(values) for name, values in more.items()},
            "_penstock_deleted": pa.array(gone, pa.bool_()),
            "_sequence": pa.array(range(1, len(ids) + 1), pa.int64()),
        }
    )


def rows(made: Any) -> list[dict[str, Any]]:
    return [row for batch in made for row in batch.to_pylist()]


def one(made: Any) -> dict[str, Any]:
    [row] = rows(made)
    return dict(row)


def test_columns_are_chosen_renamed_and_keep_their_types() -> None:
    it = stage(select=["name", "ID"], rename={"name": "label"})
    batch = latest((1, "a", False), extra=[7])
    assert one(it([batch])) == {"label": "a", "id": 1, "_penstock_deleted": False, "_sequence": 1}
    assert it.columns(batch.schema).field("id").type == pa.int64()
    assert one(stage(exclude=["extra"])([batch])).keys() == {"id", "name", "_penstock_deleted", "_sequence"}


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        ("***", "***"),
        (None, None),
        ({"keep_last": 2}, "***34"),
        ({"keep_first": 1, "character": "x"}, "1xxxx"),
    ],
)
def test_a_mask_hides_what_it_says(mask: Any, shown: str | None) -> None:
    made = rows(stage(mask={"name": mask})([latest((1, "15534", False), (2, None, False))]))
    assert [row["name"] for row in made] == [shown, None]


def test_a_text_as_short_as_what_would_stay_is_hidden_whole() -> None:
    assert one(stage(mask={"name": {"keep_last": 4}})([latest((1, "1234", False))]))["name"] == "****"


def test_hashes_are_those_of_anybody_who_has_the_key() -> None:
    made = rows(stage(hash=["name"])([latest((1, "ä", False), (2, None, False), (3, "ä", False))]))
    expected = hmac.new(KEY.encode(), "ä".encode(), hashlib.sha256).hexdigest()
    assert [row["name"] for row in made] == [expected, None, expected]


def test_tokens_are_equal_for_equal_values_and_are_not_hashes() -> None:
    made = [row["name"] for row in rows(stage(tokenize=["name"])([latest((1, "a", False), (2, "a", False))]))]
    assert made[0] == made[1]
    assert made[0].startswith("tok_") and len(made[0]) == 30
    assert hmac.new(KEY.encode(), b"a", hashlib.sha256).hexdigest()[:4] not in made[0]


def test_a_row_that_does_not_match_is_a_deleted_one_with_its_key_alone() -> None:
    batch = latest((1, "a", False), (2, "b", False), (3, "c", True), **{MATCHES: [True, None, None]})
    made = rows(stage(where="true", rename={"id": "number"})([batch]))
    assert [(row["number"], row["name"], row["_penstock_deleted"], row["_sequence"]) for row in made] == [
        (1, "a", False, 1),
        (2, None, True, 2),
        (3, None, True, 3),
    ]


def changelog(*rows: tuple[int, str, bool]) -> pa.RecordBatch:
    ids, kinds, matches = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            MATCHES: pa.array(matches, pa.bool_()),
            "_change_type": pa.array(kinds, pa.string()),
            "_sequence": pa.array(range(len(ids)), pa.int64()),
            "_commit_timestamp": pa.nulls(len(ids), pa.timestamp("us", "UTC")),
        }
    )


def test_updates_that_enter_and_leave_are_inserts_and_deletes() -> None:
    batch = changelog(
        (1, "insert", True), (2, "insert", False),
        (1, "update_preimage", True), (1, "update_postimage", True),
        (1, "update_preimage", True), (1, "update_postimage", False),
        (1, "update_preimage", False), (1, "update_postimage", True),
        (1, "update_preimage", False), (1, "update_postimage", False),
        (1, "delete", True), (2, "delete", False),
    )  # fmt: skip
    for cuts in ([12], [3, 9], [1] * 12, [5, 2, 5]):
        start, batches = 0, []
        for count in cuts:
            batches.append(batch.slice(start, count))
            start += count
        made = [row["_change_type"] for row in rows(stage(where="true")(batches))]
        assert made == ["insert", "update_preimage", "update_postimage", "delete", "insert", "delete"], cuts


def test_sql_makes_no_column_of_ours() -> None:
    with pytest.raises(TableError, match="column `_sequence`"):
        stage().columns(latest((1, "a", False), **{RESULT + "c__sequence": [5]}).schema)


def test_computed_columns_take_the_place_of_those_they_replace() -> None:
    batch = latest((1, "a", False), **{RESULT + "c_NAME": ["A"], RESULT + "c_new": [2]})
    assert list(one(stage()([batch]))) == ["id", "name", "new", "_penstock_deleted", "_sequence"]
    assert one(stage()([batch]))["name"] == "A"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"exclude": ["id"]}, "leaves out `id`"),
        ({"select": ["name"]}, "leaves out `id`"),
        ({"mask": ["id"]}, "changes `id`"),
        ({"hash": ["id"]}, "changes `id`"),
        ({"exclude": ["nothing"]}, "names the column `nothing`"),
        ({"rename": {"name": "ID"}}, "two columns of one name"),
        ({"rename": {"name": "_Sequence"}}, "column `_Sequence`"),
        ({"python": f"{__name__}:makes_own_column"}, "column `_penstock_deleted`"),
        ({"mask": {"id2": {"keep_last": 1}}}, "only a text"),
        ({"python": "no.module:function"}, "cannot be imported"),
        ({"python": f"{__name__}:loses_rows"}, "as many rows"),
        ({"python": f"{__name__}:changes_key"}, "must not change `id`"),
    ],
)
def test_a_rule_that_does_not_fit_the_table_is_refused(rule: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError, match=why):
        list(stage(**rule)([latest((1, "a", False), id2=[5])]))


@pytest.mark.parametrize("rule", [{"columns": {"ID": "id + 1"}}, {"cast": {"id": "string"}}])
def test_sql_that_changes_the_key_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(TableError, match="part of the key"):
        stages_of(TABLE, [TransformRule(tables="shop.*", **rule)], ("id",), Secret(), str)


def test_a_python_function_makes_columns_and_sees_no_deleted_row() -> None:
    it = stage(python=f"{__name__}:doubles")
    batch = latest((1, "a", False), (2, "secret", True))
    assert it.columns(batch.schema).names == ["id", "name", "twice", "_penstock_deleted", "_sequence"]
    assert [row["twice"] for row in rows(it([batch]))] == [2, None]


def test_an_error_of_a_function_says_nothing_of_the_row() -> None:
    with pytest.raises(RowFailed, match="raised ValueError") as caught:
        list(stage(python=f"{__name__}:fails")([latest((1, "secret", False))]))
    assert "secret" not in str(caught.value)


def test_the_key_of_hashes_is_in_no_pickle(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        pickle.dumps(stage(hash=["name"]))
    with lent({"key": Secret(KEY)}, tmp_path) as secrets:
        it = ArrowStage(TABLE, TransformRule(tables="shop.*", hash=["name"]), ("id",), secrets["key"])
        pickled = pickle.dumps(it)
        assert KEY.encode() not in pickled
        batch = latest((1, "a", False))
        assert rows(pickle.loads(pickled)([batch])) == rows(stage(hash=["name"])([batch]))


def test_rules_give_targets_other_names() -> None:
    rules = [
        TransformRule(tables="shop.*", to="{database}_x.{table}"),
        TransformRule(tables="shop.b*", to="other.{table}s"),
    ]
    transforms = Transforms(rules)
    assert transforms.target(TableId("shop", "a")) == TableId("shop_x", "a")
    assert transforms.target(TableId("shop", "b{table}")) == TableId("other", "b{table}s")
    assert transforms.target(TableId("else", "a")) == TableId("else", "a")


def test_what_is_done_to_a_table_is_recognised() -> None:
    def digest(*rules: TransformRule) -> str:
        return Transforms(rules).digest(TABLE)

    one = TransformRule(tables="shop.*", exclude=["a"])
    assert digest() == digest(TransformRule(tables="other.*", exclude=["a"])) == ""
    assert digest(one) == digest(TransformRule(tables="shop.orders", exclude=["a"], on_error="dead_letter"))
    assert digest(one) != digest(TransformRule(tables="shop.*", exclude=["b"]))
    assert digest(one) != digest(one, one)


@pytest.mark.parametrize(
    "rule",
    [
        {"tables": "orders"},
        {"tables": []},
        {"tables": "a.*", "hash": ["x"], "mask": ["x"]},
        {"tables": "a.*", "select": ["x"], "exclude": ["y"]},
        {"tables": "a.*", "to": "table"},
        {"tables": "a.*", "python": "module"},
        {"tables": "a.*", "unknown": 1},
    ],
)
def test_a_rule_without_sense_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TransformRule(**rule)


# functions that rules name --------------------------------------------------------------------------------


def doubles(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert "secret" not in batch.column("name").to_pylist()
    return batch.append_column("twice", pc.multiply(batch.column("id"), 2))


def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        raise ValueError(batch.column("name")[0].as_py())
    return batch


def loses_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


def makes_own_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("_penstock_deleted", pa.array([True] * batch.num_rows))


def changes_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "id", pc.add(batch.column("id"), 1))


def test_penstocks_columns_get_their_names_when_a_rule_has_renamed_those_of_the_table() -> None:
    kinds = ["insert", "update_preimage", "update_postimage"]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [1, 2, 2],
            "_change_type": ["a", "b", "c"],
            "_sequence": [7, 8, 9],
            MATCHES: [True, True, False],
            "_penstock_change_type": kinds,
            "_penstock_sequence": [10, 20, 20],
            "_commit_timestamp": pa.nulls(3, pa.timestamp("us", "UTC")),
        }
    )
    [first] = stage(where="true", rename={"_sequence": "number"})([batch])
    names = ["id", "_change_type", "number", "_penstock_change_type", "_sequence", "_commit_timestamp"]
    assert first.schema.names == names, "the other one has a column of its name yet"
    [found] = stage(rename={"_change_type": "kind"})([first])
    assert found.schema.names == ["id", "kind", "number", "_change_type", "_sequence", "_commit_timestamp"]
    assert [tuple(row.values())[:5] for row in found.to_pylist()] == [
        (1, "a", 7, "insert", 10),
        (2, "b", 8, "delete", 20),
    ]
