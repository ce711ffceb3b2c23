"""What a pipeline looks like at a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from penstock.commands.screen import (
    PARKED_SHOWN_MAX,
    TABLES_SHOWN_MAX,
    TABLES_SHOWN_MIN,
    screen,
    shown_first,
    summary_line,
    time_text,
)
from penstock.commands.terminal import console

PARKED = {
    "offset": 5,
    "reason": "The table has no primary key. " + "Why " * 40,
    "hint": "Add one, then unpark it.",
}


def table(number: int, **fields: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("resnapshot_pending", "catching_up", "parked", "last_change", "verified"))
    counts = {"chunks": {"placed": 0, "total": 0}, "rows_placed": 0, "rows_estimate": 0}
    quiet = {"status": "live", "snapshot": "done", **nothing, **counts}
    return {"table": f"shop.t{number:04d}", **quiet, **fields}


def status(tables: list[dict[str, Any]], **snapshot: Any) -> dict[str, Any]:
    quiet = {
        "chunks": 0,
        "chunks_placed": 0,
        "rows_placed": 0,
        "rows_left": 0,
        "done": True,
        "throttled": None,
    }
    return {
        "pipeline": "shop",
        "epoch": 7,
        "lag": {"seconds": 0.25, "bytes": 2048, "transactions": 3},
        "rates": {
            "log_bytes_per_s": 3 * 1024**2,
            "transactions_per_s": 1200,
            "changes_per_s": 3400,
            "snapshot_rows_per_s": snapshot.pop("rate", 0),
        },
        "snapshot": quiet | snapshot,
        "retrying": [],
        "tables": tables,
    }


def lines(document: dict[str, Any], *, height: int | None = None, width: int = 120) -> list[str]:
    out = console(file=io.StringIO(), width=width)
    out.print(screen(document, lines=height))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_a_few_tables_are_all_shown() -> None:
    tables = [table(number) for number in range(TABLES_SHOWN_MAX)]
    assert shown_first(tables) == tables


def test_tables_are_ordered_by_trouble() -> None:
    tables = [table(number) for number in range(1000)]
    tables[700] = table(700, snapshot="reading")
    tables[900] = table(900, status="parked", parked=PARKED)
    tables[950] = table(950, resnapshot_pending="a reason")
    shown = shown_first(tables)
    assert len(shown) == TABLES_SHOWN_MAX
    assert shown[:4] == [tables[900], tables[950], tables[700], tables[0]]


def test_parked_tables_leave_room_for_the_others_at_80_by_24() -> None:
    parked = [table(number, status="parked", parked=PARKED) for number in range(9)]
    shown = lines(status([*parked, *(table(number) for number in range(9, 40))]), height=24, width=80)
    assert len(shown) < 24 and max(map(len, shown)) <= 80
    assert shown[0].strip().endswith("9 of 40 tables parked")
    assert sum("│ shop.t" in line for line in shown) >= TABLES_SHOWN_MIN
    reasons = [line for line in shown if line.startswith("parked: ")]
    assert len(reasons) >= 3 and all(
        line.startswith("parked: shop.t") and line.endswith("…") for line in reasons
    )
    assert f"{9 - len(reasons)} more tables are parked" in shown[-1] and "penstock status FILE" in shown[-1]


def test_status_gives_whole_reasons_and_cures() -> None:
    text = " ".join(line.strip() for line in lines(status([table(1, status="parked", parked=PARKED)])))
    assert f"parked: shop.t0001: {PARKED['reason']} {PARKED['hint']}" in text


def test_a_name_is_never_broken_over_lines() -> None:
    name = "a_rather_long_database_name.and_a_table_with_a_long_name_too"
    change = {
        "version": 2,
        "committed": "2026-11-26T03:17:30.120+00:00",
        "what": "columns",
        "decision": "x" * 90,
    }
    shown = lines(status([table(1) | {"table": name, "last_change": change}]), width=100)
    assert any(name in line for line in shown)
    assert any(
        name in line
        for line in lines(status([table(1) | {"table": name, "last_change": change}]), height=24, width=100)
    )


def test_remarks_have_lines_below_their_row_where_their_column_would_be_narrow() -> None:
    change = {"version": 2, "committed": "2026-11-26T03:17:30.120+00:00", "what": "columns", "decision": "ok"}
    remark = "version 2 (2026-11-26 03:17:30 UTC): columns, ok"
    tables = [
        table(1) | {"table": "shop.order_positions_of_all_years", "last_change": change},
        table(2) | {"table": "shop.b"},
        table(3) | {"table": "shop.c", "last_change": change},
    ]
    shown = lines(status(tables), width=80)
    assert {len(line) for line in shown[2:]} == {80}
    rows = [line.strip(" │┃|") for line in shown[5:-1]]
    assert [row.split()[0] for row in rows if "shop." in row] == [one["table"] for one in tables]
    assert (rows[1], rows[4]) == (remark, remark) and len(rows) == 5
    assert any("shop.b" in line and "stream" in line for line in lines(status(tables[1:]), width=80))
    assert not any(line.strip(" │") == remark for line in lines(status(tables), width=120))


def test_a_table_that_got_its_rows_from_the_log_has_no_number_of_snapshot_rows() -> None:
    [row] = [line for line in lines(status([table(1)])) if "shop.t0001" in line]
    assert "0" not in row.replace("shop.t0001", "")


def test_a_snapshot_is_a_bar_with_its_share_its_speed_and_the_time_left() -> None:
    reading = table(
        1, snapshot="reading", rows_placed=250, rows_estimate=1000, chunks={"placed": 1, "total": 4}
    )
    counts = {"chunks": 4, "chunks_placed": 1, "rows_placed": 250, "rows_left": 750}
    shown = lines(status([reading], **counts, done=False, seconds_left=95, rate=8000))
    assert shown[0].strip() == "shop: epoch 7, lag 0.2 s (2.0 KiB, 3 transactions)"
    assert (
        shown[1].strip()
        == "log 3.0 MiB/s, 1,200 transactions/s, 3,400 changes written/s, snapshot 8,000 rows/s"
    )
    assert shown[2].startswith("snapshot ━") and "25 %" in shown[2] and "250 rows, 1/4 chunks" in shown[2]
    assert shown[2].rstrip().endswith("1 min 35 s left")
    [row] = [line for line in shown if "shop.t0001" in line]
    assert "snapshot + stream" in row and "1/4" in row and "250 of ~1,000" in row


def test_a_pipeline_that_only_streams_has_no_bar() -> None:
    shown = lines(status([table(1)], chunks=4, chunks_placed=4, rows_placed=1000))
    assert not any(line.startswith("snapshot") for line in shown) and "stream" in "".join(shown)


def test_a_snapshot_of_which_no_row_is_known_counts_chunks() -> None:
    shown = lines(status([table(1)], chunks=4, chunks_placed=2, done=False))
    assert "50 %" in shown[2] and "2/4 chunks" in shown[2]


def retry(table: str | None, reason: str, attempts: int = 2) -> dict[str, Any]:
    since = "2026-11-26T03:17:30.120+00:00"
    return {"what": "epoch", "table": table, "since": since, "attempts": attempts, "reason": reason}


def test_one_cause_that_concerns_many_tables_is_one_line() -> None:
    names = [f"shop.t{number}" for number in range(300)]
    document = status([table(1)]) | {
        "retrying": [
            *(retry(name, f"Changes of {name} were not taken.") for name in names),
            retry(None, "The disk is full.", 1),
        ]
    }
    since = "since 2026-11-26 03:17:30 UTC"
    many = f"epoch of shop.t0 and of 299 more tables {since} (2 attempts): Changes of shop.t0 were not taken."
    expected = [f"retrying {many}", f"retrying epoch {since} (1 attempt): The disk is full."]
    assert summary_line(document).split("; ")[2:] == expected
    shown = " ".join(line.strip() for line in lines(document))
    assert shown.endswith(" ".join(expected))


def test_a_line_for_logs_names_only_the_first_of_many_parked_tables() -> None:
    document = status([table(number, status="parked", parked=PARKED) for number in range(1000)])
    line = summary_line(document)
    assert line.count("shop.t") == PARKED_SHOWN_MAX and line.endswith("shop.t0009 and 990 more")


@pytest.mark.parametrize("height", [24, 40])
def test_the_screen_fits_the_terminal(height: int) -> None:
    document = status([table(number) for number in range(200)], chunks=9, chunks_placed=1, done=False)
    assert height - 6 <= len(lines(document, height=height)) < height


def test_a_low_terminal_still_shows_some_tables() -> None:
    assert len(shown_first([table(number) for number in range(200)], -3)) == TABLES_SHOWN_MIN


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (7325, "2 h 2 min")],
)
def test_a_time_left_has_two_units_at_most(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_tables_without_their_rows_are_counted_and_say_what_they_wait_for() -> None:
    waits = {"who": "operator", "tables": ["shop.parent"]}
    document = status([table(1, resnapshot_pending="a reason") | {"waits_for": waits}])
    document["lag"]["tables"] = 1
    shown = lines(document)
    assert shown[0].strip().endswith("transactions), 1 without their rows")
    assert any("waits for shop.parent" in line for line in shown)
