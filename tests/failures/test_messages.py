"""An error that knows a table by the name of its target, told to people who know the one at the source."""

from __future__ import annotations

from penstock.errors import ConfigError, TableError
from penstock.failures.messages import of_one_table


def test_commands_name_the_table_as_the_source_does_and_everything_else_as_the_target() -> None:
    error = TableError(
        "The target shop.new refuses a row.",
        hint="Look at shop.new and shop.newer, then run `penstock unpark FILE shop.new`: it goes on. Or run "
        "`penstock resnapshot --recreate FILE shop.new`. Not `penstock unpark FILE shop.newer`.",
        table="shop.new",
        offset=7,
    )
    found = of_one_table(error, "shop.old", None, shown="shop.new")
    assert found is not None and found.message == error.message
    assert found.hint == (
        "Look at shop.new and shop.newer, then run `penstock unpark FILE shop.old`: it goes on. Or run "
        "`penstock resnapshot --recreate FILE shop.old`. Not `penstock unpark FILE shop.newer`."
    )
    assert found.details == {"table": "shop.old", "offset": 7}


def test_a_configuration_error_about_the_target_is_one_of_its_table() -> None:
    error = ConfigError("shop.new is taken.", hint="Drop it.", table="shop.new")
    assert of_one_table(error, "shop.old", None) is None
    found = of_one_table(error, "shop.old", None, shown="shop.new")
    assert isinstance(found, TableError) and found.details["table"] == "shop.old"
