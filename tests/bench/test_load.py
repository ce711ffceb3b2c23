"""The benchmark of a large table, on a small one: what counts as measured, what becomes of the figures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench.load import ours, plot, run, table, tasks
from bench.measure import Figure, NotRun, RunFailed
from bench.programs.lag import Epochs

from bench import goals, report

ROWS = 2_000


def figure(system: str, task: str, *, wall_s: float = 2.0, cpu_s: float = 1.0, rss_mb: float = 200) -> Figure:
    return Figure(system, "1", task, 1_000_000, wall_s, cpu_s, rss_mb, cpu_s)


@pytest.mark.slow
def test_every_way_of_ours_reads_all_rows_of_the_table_with_each_number_of_connections(
    tmp_path: Path,
) -> None:
    with table.running(ROWS) as load:
        found = [*ours.figures(load, tmp_path, 1), *ours.memory_figures(load, tmp_path)]
    assert [outcome for outcome in found if isinstance(outcome, NotRun)] == []
    by_task = {(one.task, one.system): one.changes for one in found if isinstance(one, Figure)}
    whole = {(task, system): ROWS for task in tasks.LOADS for system in tasks.OURS}
    shares = {(tasks.memory(divisor), tasks.STAGED): ROWS // divisor for divisor in tasks.SHARES}
    assert by_task == {**whole, **shares}
    assert list(tmp_path.iterdir()) == []


def test_a_run_replaces_what_it_measures_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    assert run.known(path, 1_000_000) == []
    first, second = (figure(tasks.STAGED, tasks.load(number)) for number in (1, 2))
    report.write_json(report.Results([first, second]), path)
    assert run.known(path, 2_000) == [], "those are of another table"
    outcomes = run.known(path, 1_000_000)
    assert outcomes == [first, second]
    newer = NotRun(tasks.STAGED, "1", tasks.load(1), "it failed")
    other = figure(tasks.CONNECTORX, tasks.load(1))
    run.put(outcomes, newer)
    run.put(outcomes, other)
    assert outcomes == [newer, second, other]


def test_whoever_has_not_read_all_rows_has_no_figure() -> None:
    with pytest.raises(RunFailed, match="read 1,999 rows, the server has 2,000"):
        ours.check_rows("Reader", 1_999, 2_000)
    ours.check_rows("Reader", 2_000, 2_000)


def test_the_goals_compare_speed_with_connectorx_and_cpu_with_the_most_frugal_peer() -> None:
    task = tasks.load(2)
    results = report.Results(
        [
            figure(tasks.TO_ARROW, task, wall_s=2.0, cpu_s=1.5),
            figure(tasks.STAGED, task, wall_s=4.0, cpu_s=3.5),
            figure(tasks.CONNECTORX, task, wall_s=3.0, cpu_s=4.0),
            figure(tasks.FLINK_CDC, task, wall_s=30.0, cpu_s=3.0),
        ]
    )
    assert [(goal.text, goal.reached) for goal in goals.check(results)] == [
        (f"{task}: at least as fast as ConnectorX", True),
        (f"{task}: {tasks.TO_ARROW}: less CPU than each peer", True),
        (f"{task}: {tasks.STAGED}: less CPU than each peer", False),
    ]


@pytest.mark.parametrize(
    ("megabytes", "reached"), [((200, 239, 210), True), ((200, 205, 241), False), ((200, 241, 205), False)]
)
def test_memory_is_flat_when_the_whole_takes_about_what_a_quarter_takes(
    megabytes: tuple[int, ...], reached: bool
) -> None:
    shares = zip(tasks.SHARES, megabytes, strict=True)
    results = report.Results(
        [figure(tasks.STAGED, tasks.memory(divisor), rss_mb=rss_mb) for divisor, rss_mb in shares]
    )
    [goal] = goals.check(results)
    assert (goal.measured, goal.reached) == (" / ".join(map(str, megabytes)) + " MB", reached)
    [section] = report.sections(results)
    assert [row[-1] for row in section.rows] == [str(rss_mb) for rss_mb in megabytes]


def test_the_lag_of_a_tick_ends_with_the_epoch_that_holds_it() -> None:
    epochs = Epochs(Path("unused"), {7: (100, 5_000_000), 8: (200, 9_000_000)})
    ticks = [(8_500_000, 101), (4_000_000, 60), (4_500_000, 100)]
    assert epochs.lags_s(ticks) == [(4_000_000, 1.0), (4_500_000, 0.5), (8_500_000, 0.5)]


def test_the_picture_has_a_bar_for_each_figure_and_is_well_formed() -> None:
    measured = [(tasks.TO_ARROW, 1), (tasks.TO_ARROW, 4), (tasks.DEBEZIUM, 2)]
    missing = NotRun(tasks.FLINK_CDC, "3", tasks.load(1), "no <cluster> & no jar")
    results = report.Results([*(figure(system, tasks.load(number)) for system, number in measured), missing])
    picture = ElementTree.fromstring(plot.svg(results))
    shapes = [element for element in picture if element.tag.endswith("rect")]
    texts = [element.text for element in picture if element.tag.endswith("text")]
    background, legend = 1, 2 * len(tasks.CONNECTIONS)
    assert len(shapes) == background + legend + 2 * len(measured)
    assert texts.count("500 k") == len(measured)
    assert tasks.DEBEZIUM in texts and tasks.FLINK_CDC not in texts
