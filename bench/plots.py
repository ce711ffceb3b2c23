"""The pictures of docs/performance.md: who reads which log how fast, and how long a change takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import svg
from bench.measure import Figure

_OURS, _OTHERS, _GRID, _GOAL = "#4292c6", "#a0a0a0", "#e4e4e4", "#d62728"

# reading the log ------------------------------------------------------------------------------------------

_LABELS, _BARS, _VALUES, _GAP = 215, 250, 60, 10
_BAR, _TITLE, _TOP = 13, 24, 40


@dataclass(frozen=True)
class Panel:
    title: str
    value: Callable[[Figure], float]
    show: Callable[[float], str]


_PANELS = (
    Panel(
        "changes/s, logarithmic (more is better)",
        lambda figure: figure.per_second,
        lambda value: f"{value / 1000:,.0f} k" if value >= 10_000 else f"{value / 1000:,.1f} k",
    ),
    Panel(
        "CPU-s per million, logarithmic (less is better)",
        lambda figure: figure.cpu_s_per_million,
        lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
    ),
)


def readers(by_workload: Mapping[str, Sequence[Figure]], ours: Callable[[str], bool]) -> str:
    """Bars of the figures of each workload, in their order. `ours`: is this system ours."""
    groups = {name: figures for name, figures in by_workload.items() if figures}
    height = _TOP + sum(_TITLE + len(figures) * _BAR for figures in groups.values()) + 10
    width = _LABELS + len(_PANELS) * (_BARS + _VALUES + _GAP)
    parts: list[str] = []
    for number, panel in enumerate(_PANELS):
        parts += _panel(panel, _LABELS + number * (_BARS + _VALUES + _GAP), groups, ours, height)
    y = float(_TOP)
    for name, figures in groups.items():
        parts.append(svg.text(8, y + _TITLE - 8, name, weight="bold"))
        y += _TITLE
        for figure in figures:
            parts.append(svg.text(_LABELS - 8, y + _BAR - 3, figure.system, anchor="end", size=10))
            y += _BAR
    return svg.page(width, height, parts)


def _panel(
    panel: Panel,
    x: float,
    groups: Mapping[str, Sequence[Figure]],
    ours: Callable[[str], bool],
    height: float,
) -> Iterator[str]:
    """Bars begin at the power of ten below the least value."""
    yield svg.text(x, 16, panel.title, weight="bold")
    values = [panel.value(figure) for figures in groups.values() for figure in figures]
    values = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(values)) - 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(values))))
    for power in range(low, high + 1):
        at = x + (power - low) / (high - low) * _BARS
        yield svg.line(at, _TOP - 4, at, height - 6, _GRID)
        yield svg.text(at, _TOP - 8, _power(power), anchor="middle", size=9)
    y = float(_TOP)
    for figures in groups.values():
        y += _TITLE
        for figure in figures:
            value = panel.value(figure)
            long = (math.log10(value) - low) / (high - low) * _BARS if value > 0 else 0.0
            yield svg.rectangle(x, y, max(long, 0.5), _BAR - 2, _OURS if ours(figure.system) else _OTHERS)
            yield svg.text(x + long + 4, y + _BAR - 3, panel.show(value), size=10)
            y += _BAR


def _power(power: int) -> str:
    names = {3: "k", 6: "M"}
    step = max((at for at in names if at <= power), default=0)
    return f"{10.0 ** (power - step):g} {names.get(step, '')}".strip()


# latency --------------------------------------------------------------------------------------------------

_CHART_WIDTH, _CHART_HEIGHT, _LEFT, _RIGHT, _HEAD, _FOOT = 640, 130, 60, 20, 30, 34
_BUCKETS = 64


@dataclass(frozen=True)
class Latencies:
    """How often which latency was seen: `counts[i]` between `i` and `i + 1` times `bucket_s`."""

    title: str
    bucket_s: float
    counts: Sequence[int]
    marks: Mapping[str, float]
    """Lines at some latencies, by their names: p50, p99."""
    goals: Mapping[str, float]
    """The same for what is promised."""


def histograms(charts: Sequence[Latencies]) -> str:
    """One chart under the other, each on its own scale, which ends some way behind its last line: what took
    longer is in its last bar."""
    parts: list[str] = []
    for number, chart in enumerate(charts):
        top = number * (_HEAD + _CHART_HEIGHT + _FOOT)
        parts += _histogram(chart, top)
    height = len(charts) * (_HEAD + _CHART_HEIGHT + _FOOT)
    return svg.page(_LEFT + _CHART_WIDTH + _RIGHT, height, parts)


def _histogram(chart: Latencies, top: float) -> Iterator[str]:
    ground = top + _HEAD + _CHART_HEIGHT
    longest = 1.25 * max([*chart.marks.values(), *chart.goals.values(), chart.bucket_s])
    heaps = [0] * _BUCKETS
    for number, count in enumerate(chart.counts):
        heaps[min(_BUCKETS - 1, int((number + 0.5) * chart.bucket_s / longest * _BUCKETS))] += count
    total, most = sum(heaps) or 1, max(heaps) or 1

    def at(seconds: float) -> float:
        return _LEFT + seconds / longest * _CHART_WIDTH

    yield svg.text(_LEFT, top + 16, chart.title, weight="bold")
    for number, count in enumerate(heaps):
        if count:
            tall = count / most * (_CHART_HEIGHT - 40)
            x, wide = _LEFT + number * _CHART_WIDTH / _BUCKETS, _CHART_WIDTH / _BUCKETS - 1
            yield svg.rectangle(x, ground - tall, wide, tall, _OURS)
    yield svg.line(_LEFT, ground, _LEFT + _CHART_WIDTH, ground, "black")
    yield svg.text(_LEFT - 6, top + _HEAD + 44, f"{100 * most / total:.0f} %", anchor="end", size=10)
    for part in range(5):
        seconds = longest * part / 4
        more = (
            "≥ " if part == 4 and any(chart.counts) and chart.bucket_s * len(chart.counts) > longest else ""
        )
        yield svg.text(at(seconds), ground + 14, f"{more}{_seconds(seconds)}", anchor="middle", size=10)
    lines = [(name, seconds, "black", "3 3") for name, seconds in chart.marks.items()]
    lines += [(name, seconds, _GOAL, "") for name, seconds in chart.goals.items()]
    for number, (name, seconds, colour, dashes) in enumerate(lines):
        y = top + _HEAD + 8 + 11 * (number % 3)
        yield svg.line(at(seconds), y - 8, at(seconds), ground, colour, dashes=dashes)
        yield svg.text(at(seconds) + 3, y, f"{name} {_seconds(seconds)}", size=10)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.2f} s"


# over time ------------------------------------------------------------------------------------------------

_COLOURS = ("#4292c6", "#d62728", "#2ca02c", "#ff7f0e")
_MARK = "#c0c0c0"


@dataclass(frozen=True)
class Course:
    """Values over seconds: `points` by name; `marks`: moments at which something was done."""

    title: str
    points: Mapping[str, Sequence[tuple[float, float]]]
    marks: Sequence[float] = ()


def courses(charts: Sequence[Course]) -> str:
    """One under the other, over the same time, each from zero to its own largest value."""
    parts: list[str] = []
    seconds = max((at for chart in charts for some in chart.points.values() for at, _ in some), default=1.0)
    for number, chart in enumerate(charts):
        parts += _course(chart, number * (_HEAD + _CHART_HEIGHT + _FOOT), seconds)
    height = len(charts) * (_HEAD + _CHART_HEIGHT + _FOOT)
    return svg.page(_LEFT + _CHART_WIDTH + _RIGHT, height, parts)


def _course(chart: Course, top: float, seconds: float) -> Iterator[str]:
    ground = top + _HEAD + _CHART_HEIGHT
    most = max((value for some in chart.points.values() for _, value in some), default=0.0) or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        return _LEFT + at / seconds * _CHART_WIDTH, ground - value / most * _CHART_HEIGHT

    yield svg.text(_LEFT, top + 16, chart.title, weight="bold")
    for at in chart.marks:
        x, _ = place(at, 0)
        yield svg.line(x, top + _HEAD, x, ground, _MARK, dashes="3 3")
    for number, (name, points) in enumerate(chart.points.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        yield svg.curve([place(at, value) for at, value in points], colour)
        yield svg.text(_LEFT + _CHART_WIDTH - 100 * (number + 1), top + 16, name, size=10, colour=colour)
    yield svg.line(_LEFT, ground, _LEFT + _CHART_WIDTH, ground, "black")
    for share in (0.0, 0.5, 1.0):
        x, y = place(seconds * share, most * share)
        yield svg.text(_LEFT - 6, y + 4, f"{most * share:,.3g}", anchor="end", size=10)
        yield svg.text(x, ground + 14, f"{seconds * share / 60:.3g} min", anchor="middle", size=10)
