"""A picture of the large table's figures, as SVG: rows per second and CPU seconds per million rows, by system
and number of connections."""

from __future__ import annotations

from collections.abc import Iterator

from bench import svg as draw
from bench.goals import Figures
from bench.load import tasks
from bench.measure import Figure
from bench.plots import Panel

_LABEL_WIDTH, _BARS_WIDTH, _VALUE_WIDTH, _GAP = 190, 250, 70, 20
_BAR_HEIGHT, _GROUP_GAP, _TOP, _BOTTOM = 13, 10, 62, 12
_PANEL_WIDTH = _BARS_WIDTH + _VALUE_WIDTH
_WIDTH = _LABEL_WIDTH + 2 * _PANEL_WIDTH + _GAP
_OURS = ("#9ecae1", "#4292c6", "#08519c")
_OTHERS = ("#d0d0d0", "#a0a0a0", "#6a6a6a")
"""Colours for 1, 2 and 4 connections."""
_SYSTEMS = (tasks.TO_ARROW, tasks.STAGED, *tasks.PEERS)


_PANELS = (
    Panel(
        "rows per second (more is better)",
        lambda figure: figure.per_second,
        lambda value: f"{value / 1000:,.0f} k",
    ),
    Panel(
        "CPU-s per million rows (less is better)",
        lambda figure: figure.cpu_s_per_million,
        lambda value: f"{value:.1f}",
    ),
)


def svg(results: Figures) -> str:
    """Systems without any figure are left out; a missing bar is a figure that is missing."""
    groups = {
        system: [results.figure(tasks.load(connections), system) for connections in tasks.CONNECTIONS]
        for system in _SYSTEMS
    }
    groups = {system: figures for system, figures in groups.items() if any(figures)}
    group_height = len(tasks.CONNECTIONS) * _BAR_HEIGHT + _GROUP_GAP
    height = _TOP + len(groups) * group_height + _BOTTOM
    parts = [*_legend()]
    for number, system in enumerate(groups):
        y = _TOP + number * group_height + len(tasks.CONNECTIONS) * _BAR_HEIGHT / 2 + 4
        parts.append(draw.text(_LABEL_WIDTH - 8, y, system, anchor="end"))
    for number, panel in enumerate(_PANELS):
        x = _LABEL_WIDTH + number * (_PANEL_WIDTH + _GAP)
        parts += _panel(panel, x, groups, group_height)
    return draw.page(_WIDTH, height, parts)


def _panel(
    panel: Panel, x: float, groups: dict[str, list[Figure | None]], group_height: float
) -> Iterator[str]:
    yield draw.text(x, _TOP - 10, panel.title, weight="bold")
    figures = [figure for group in groups.values() for figure in group if figure is not None]
    largest = max((panel.value(figure) for figure in figures), default=0.0) or 1.0
    for number, (system, group) in enumerate(groups.items()):
        colours = _OURS if system in tasks.OURS else _OTHERS
        for bar, figure in enumerate(group):
            if figure is None:
                continue
            y = _TOP + number * group_height + bar * _BAR_HEIGHT
            width = panel.value(figure) / largest * _BARS_WIDTH
            yield draw.rectangle(x, y, max(width, 0.5), _BAR_HEIGHT - 2, colours[bar])
            yield draw.text(x + width + 4, y + _BAR_HEIGHT - 3, panel.show(panel.value(figure)), size=10)


def _legend() -> Iterator[str]:
    x = float(_LABEL_WIDTH)
    for bar, connections in enumerate(tasks.CONNECTIONS):
        yield draw.rectangle(x, 12, 14, _BAR_HEIGHT - 2, _OURS[bar])
        yield draw.rectangle(x + 16, 12, 14, _BAR_HEIGHT - 2, _OTHERS[bar])
        yield draw.text(x + 36, 22, f"{connections} connection{'' if connections == 1 else 's'}")
        x += 130
