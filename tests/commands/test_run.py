"""What `penstock run` shows of many tables."""

from __future__ import annotations

from typing import Any

from penstock.commands.run import TABLES_SHOWN_MAX, shown_first


def table(number: int, **fields: Any) -> dict[str, Any]:
    quiet = {"status": "live", "snapshot": "done", "resnapshot_pending": None, "catching_up": None}
    return {"table": f"shop.t{number:04d}", **quiet, **fields}


def test_a_few_tables_are_all_shown() -> None:
    tables = [table(number) for number in range(TABLES_SHOWN_MAX)]
    assert shown_first(tables) == tables


def test_of_many_those_that_somebody_waits_for_are_shown_in_their_order() -> None:
    tables = [table(number) for number in range(1000)]
    tables[700] = table(700, status="parked")
    tables[900] = table(900, snapshot="reading")
    tables[950] = table(950, resnapshot_pending="a reason")
    shown = shown_first(tables)
    assert len(shown) == TABLES_SHOWN_MAX
    assert shown[-3:] == [tables[700], tables[900], tables[950]]
    assert shown == sorted(shown, key=lambda one: str(one["table"]))
