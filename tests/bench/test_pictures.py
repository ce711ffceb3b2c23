"""What becomes of the figures of several workloads and of latencies: tables, goals, pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from bench.kept import Kept, Run
from bench.latency import run as latency
from bench.latency.summary import BUCKET_S, summary
from bench.machine import Beside
from bench.measure import Figure, NotRun
from bench.report import Results

from bench import across, ours, peers_log, plots
from penstock.errors import ConfigError


def figure(system: str, task: str, *, wall_s: float = 2.0, cpu_s: float = 1.0) -> Figure:
    return Figure(system, "1", task, 1_000_000, wall_s, cpu_s, 100, cpu_s, workload="narrow")


def measured() -> Run:
    return Run("The log: two columns.", "a machine", "2026-01-02", [
        figure(ours.SYSTEM, ours.RECEIVE, wall_s=0.5, cpu_s=0.2),
        figure(ours.PACKETS, ours.RECEIVE, wall_s=0.4, cpu_s=0.1),
        figure(ours.SYSTEM, ours.decode_task("changelog", 1), wall_s=0.7, cpu_s=0.6),
        figure("slow", peers_log.READ_LOG, wall_s=40, cpu_s=50),
        figure("quick", peers_log.READ_LOG, wall_s=4, cpu_s=0.7),
        NotRun("absent", "3", peers_log.READ_LOG, "no <jar>", "narrow"),
    ])  # fmt: skip


def shapes(picture: str, kind: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(picture) if element.tag.endswith(kind)]


def test_readers_stand_in_the_order_of_their_speed_behind_ours() -> None:
    [(name, figures)] = across.readers({"narrow": measured()}).items()
    assert (name, [one.system for one in figures]) == (
        "narrow",
        ["penstock (receive + decode)", "quick", "slow"],
    )
    assert figures[0].wall_s == 1.2


def test_goals_of_a_workload_compare_with_the_socket_and_with_the_most_frugal_peer() -> None:
    found = [(goal.text, goal.measured, goal.reached) for goal in across.check({"narrow": measured()})]
    assert found == [
        ("narrow: receiver ≥ 0.7 of a raw socket's speed", "0.80", True),
        ("narrow: reading takes less CPU than each peer", "0.80 against 0.70 (quick)", False),
    ]


def test_the_page_has_every_figure_and_says_why_one_is_missing() -> None:
    page = across.markdown({"narrow": measured()})
    assert "### narrow\n\nThe log: two columns. Measured on 2026-01-02, a machine." in page
    assert "| read log | quick 1 | 250,000 | 0.70 | 4.00 | 100 |  |" in page
    assert "- absent 3, read log: no <jar>" in page


def test_the_picture_of_the_readers_has_a_bar_for_each_in_both_panels() -> None:
    by_workload = across.readers({"narrow": measured(), "wide": Run("", "", "")})
    picture = plots.readers(by_workload, across.is_ours)
    assert len(shapes(picture, "rect")) == 1 + 2 * 3
    texts = [element.text for element in shapes(picture, "text")]
    assert "narrow" in texts and "wide" not in texts


def test_a_run_replaces_the_workloads_it_is_about_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    before = Kept(path)
    details = {"mb_per_s": 3.5, "series": [1, 2]}
    wide = Run("The log: wide.", "a machine", "2026-01-02", [replace(figure("x", "y"), details=details)])
    before.runs = {"narrow": measured(), "wide": wide}
    before.write()
    again = Kept(path)
    assert again.runs == before.runs
    again.runs["narrow"] = Run("The log: another.", "b", "2026-02-03")
    again.write()
    assert {name: run.about for name, run in Kept(path).runs.items()} == {
        "narrow": "The log: another.", "wide": "The log: wide.",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["[]", "{", '{"narrow": {}}', '{"narrow": {"outcomes": [{"task": 1}]}}'])
def test_results_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "latest.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"latest\.json holds no results"):
        Kept(path)


def test_the_histogram_shows_every_latency_within_its_scale() -> None:
    latencies = [0.002] * 50 + [0.4] * 50
    kept = summary(latencies)
    assert (kept["p50_s"], kept["max_s"]) == (0.201, 0.4)
    assert (
        kept["buckets"][int(0.002 / BUCKET_S)],
        kept["buckets"][int(0.4 / BUCKET_S)],
        sum(kept["buckets"]),
    ) == (50, 50, 100)
    chart = plots.Latencies("two heaps", BUCKET_S, kept["buckets"], {"p50": kept["p50_s"]}, {"goal": 0.3})
    picture = plots.histograms([chart])
    ground, *heaps = shapes(picture, "rect")
    assert len(heaps) == 2
    for heap in heaps:
        assert 0 <= float(heap.get("x", -1)) < float(ground.get("width", 0))


def test_the_goals_of_the_latency_are_those_of_each_of_our_ways() -> None:
    details = {"p50_s": 0.25, "p90_s": 0.9, "p99_s": 1.5, "max_s": 2.0, "buckets": [1]}
    pipeline = Figure(latency.PIPELINE, "1", latency.TASK, 10, 1, 1, 1, 1, details=details)
    assert [(goal.text, goal.reached) for goal in latency.check(Results([pipeline]))] == [
        ("penstock run: p50 ≤ 0.3 s", True),
        ("penstock run: p99 ≤ 1 s", False),
    ]
    assert latency.check(Results([])) == []


def test_what_others_had_is_a_share_of_all_cores_and_of_the_whole_run() -> None:
    beside = Beside(servers_cpu_s=9.0, others_cpu_s=1.5, stolen_cpu_s=0.5, load_before=3.0)
    assert beside.share(2.0, cores=4) == 25.0
    assert beside.share(0.0, cores=4) == 0.0
