"""Names, commits, and what `open` says, without Spark."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import ConfigError, TableError
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.lake.delta.commits import commit_of, transaction_version
from penstock.sinks.lake.iceberg.commits import last_commit
from penstock.sinks.names import catalog_name, directory_name, namespace_levels, refuse_columns
from penstock.sinks.refusals import check_directory, is_recorded

names = st.text(min_size=1, max_size=64)


@given(names)
@example("..")
@example("_x")
@example("\\" * 64)
@example("…" * 64)
@example("日" * 64)
def test_a_directory_name_is_one_visible_path_component(name: str) -> None:
    component = directory_name(name)
    assert len(Path("/root", component).parts) == 3
    assert component[0] not in "._"
    assert not set(component) & set("/:%#?*{}[]\\'\"` ,=")
    assert len(component.encode()) <= 255


@given(st.lists(names, min_size=2, max_size=2, unique=True))
@example(["@0020", " "])
@example(["a.b", "a@002eb"])
@example(["\ue0001", "\U000e0001"])
@example([":" * 63 + "a", ":" * 63 + "b"])
def test_different_names_give_different_targets(two: list[str]) -> None:
    assert directory_name(two[0]) != directory_name(two[1])
    assert catalog_name(two[0]) != catalog_name(two[1])


def test_a_catalog_name_is_no_location_that_iceberg_cuts() -> None:
    assert catalog_name("a#b?c") == "a@0023b@003fc"


@given(names)
@example("..")
def test_a_catalog_name_never_leaves_its_directory(name: str) -> None:
    assert len(Path("/root", catalog_name(name)).resolve().parts) == 3
    assert len(catalog_name(name).encode()) <= 255


@given(
    st.text(alphabet=string.ascii_letters + string.digits + "_", min_size=1).filter(
        lambda name: name[0] != "_"
    )
)
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert directory_name(name) == catalog_name(name) == name


def test_dots_of_the_template_part_levels_and_dots_of_names_do_not() -> None:
    assert namespace_levels("raw.{database}_cdc", TableId("a.b", "t")) == ("raw", "a.b_cdc")


def test_a_commit_survives_its_text() -> None:
    commit = Commit("0b6f7e34-aaaa", 2**40, 7)
    assert Commit.parse(str(commit)) == commit


def test_recorded_means_this_step_or_a_later_one() -> None:
    last = Commit("p", 5, 2)
    assert [is_recorded(Commit("p", *place), last) for place in [(4, 9), (5, 2), (5, 3), (6, 0)]] == [
        True,
        True,
        False,
        False,
    ]
    assert not is_recorded(Commit("p", 0, 0), None)


@given(st.integers(0, 2**46), st.integers(0, 2**16 - 1))
def test_delta_versions_grow_with_epoch_and_step_and_give_them_back(epoch: int, step: int) -> None:
    version = transaction_version(Commit("p", epoch, step))
    assert commit_of("p", version) == Commit("p", epoch, step)
    assert transaction_version(Commit("p", epoch + 1, 0)) > version
    assert version < 2**63


@pytest.mark.parametrize(
    ("recorded", "ancestry", "found"),
    [
        pytest.param(None, [], None, id="new table"),
        pytest.param(None, [(1, "p/3/0")], 3, id="killed before the property was written"),
        pytest.param("p/3/0@1", [(2, "p/4/0")], 4, id="snapshot newer than the property, killed in between"),
        pytest.param("p/4/0@2", [(2, "p/4/0")], 4, id="both agree"),
        pytest.param("p/4/0@2", [(9, None), (2, "p/4/0")], 4, id="compacted by someone"),
        pytest.param("p/5/0@2", [(2, "p/4/0")], 5, id="a step without a snapshot"),
        pytest.param("p/5/0@0", [], 5, id="columns added to an empty table"),
        pytest.param("p/4/0@2", [(9, None), (2, "expired")], 4, id="compacted and expired"),
        pytest.param("p/4/0@2", [(9, None), (3, "expired")], 4, id="compacted twice and expired"),
        pytest.param("p/4/0@2", [(1, "p/3/0")], 3, id="rolled back"),
        pytest.param("p/4/0@2", [(1, None)], None, id="rolled back to before our first"),
    ],
)
def test_the_last_commit_of_an_iceberg_table(
    recorded: str | None, ancestry: list[tuple[int, str | None]], found: int | None
) -> None:
    assert last_commit(recorded, ancestry) == (None if found is None else Commit("p", found, 0))


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        check_directory(tmp_path / "file")
    with pytest.raises(ConfigError, match="is a file"):
        check_directory(tmp_path / "file" / "below")


def test_a_path_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    for entry in ("notes.txt", "_delta_log/0.json", "metadata/v1.metadata.json", "_penstock.json"):
        root = tmp_path / entry.replace("/", "-")
        (root / entry).parent.mkdir(parents=True)
        (root / entry).write_text("x")
        with pytest.raises(ConfigError, match="holds something else"):
            check_directory(root)


def test_a_path_of_table_directories_is_accepted_and_a_missing_one_made(tmp_path: Path) -> None:
    (tmp_path / "shop" / "metadata").mkdir(parents=True)
    check_directory(tmp_path)
    check_directory(tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place").is_dir()


@pytest.mark.parametrize("database", ["_delta_log", "_penstock.json", "metadata", "data"])
@pytest.mark.parametrize("table", ["v1.metadata.json", "_delta_log", "metadata", "_staging"])
def test_a_target_may_have_the_name_of_a_control_file(database: str, table: str, tmp_path: Path) -> None:
    for path in (tmp_path / database / table / "metadata", tmp_path / table / "data"):
        path.mkdir(parents=True)
        (path / "v1.metadata.json").touch()
    check_directory(tmp_path)


def test_the_directory_of_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").touch()
    with pytest.raises(ConfigError):
        check_directory(tmp_path)
    (tmp_path / "other" / "metadata").mkdir(parents=True)
    (tmp_path / "other" / "metadata" / "v1.metadata.json").touch()
    with pytest.raises(ConfigError):
        check_directory(tmp_path / "other")


@pytest.mark.parametrize(
    "names",
    [
        ["id", "_sequence"], ["id", "_Change_Type"], ["id", "_penstock_next_x"], ["id", "_PENSTOCK_x"],
        ["s", "\u017f"], ["k", "\u212a"], ["i", "\u0130"], ["i", "\u0131"], ["straße", "STRA\u1e9eE"],
    ],
)  # fmt: skip
def test_columns_that_no_target_can_have_are_refused_with_their_name(names: list[str]) -> None:
    with pytest.raises(TableError) as caught:
        refuse_columns(TableId("shop", "orders"), names)
    assert names[1] in caught.value.message and caught.value.details["table"] == "shop.orders"


def test_other_columns_are_not() -> None:
    refuse_columns(TableId("shop", "orders"), ["id", "é", "e\u0301", "e", "sequence", "_x", "ss", "ß", "日"])
