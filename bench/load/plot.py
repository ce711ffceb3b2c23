"""A picture of the large table's figures, as SVG: rows per second and CPU seconds per million rows, by system
and number of connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.goals import Figures
from bench.load import tasks
from bench.measure import Figure

_LABEL_WIDTH, _BARS_WIDTH, _VALUE_WIDTH, _GAP = 190, 250, 70, 20
_BAR_HEIGHT, _GROUP_GAP, _TOP, _BOTTOM = 13, 10, 62, 12
_PANEL_WIDTH = _BARS_WIDTH + _VALUE_WIDTH
_WIDTH = _LABEL_WIDTH + 2 * _PANEL_WIDTH + _GAP
_OURS = ("#9ecae1", "#4292c6", "#08519c")
_OTHERS = ("#d0d0d0", "#a0a0a0", "#6a6a6a")
"""Colours for 1, 2 and 4 connections."""
_SYSTEMS = (tasks.TO_ARROW, tasks.STAGED, *tasks.PEERS)


@dataclass(frozen=True)
class Panel:
    title: str
    value: Callable[[Figure], float]
    show: Callable[[float], str]


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
    size, font = f'width="{_WIDTH}" height="{height}"', 'font-family="sans-serif"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}" {font}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for number, system in enumerate(groups):
        y = _TOP + number * group_height + len(tasks.CONNECTIONS) * _BAR_HEIGHT / 2 + 4
        parts.append(_text(_LABEL_WIDTH - 8, y, system, anchor="end"))
    for number, panel in enumerate(_PANELS):
        x = _LABEL_WIDTH + number * (_PANEL_WIDTH + _GAP)
        parts += _panel(panel, x, groups, group_height)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    panel: Panel, x: float, groups: dict[str, list[Figure | None]], group_height: float
) -> Iterator[str]:
    yield _text(x, _TOP - 10, panel.title, weight="bold")
    figures = [figure for group in groups.values() for figure in group if figure is not None]
    largest = max((panel.value(figure) for figure in figures), default=0.0) or 1.0
    for number, (system, group) in enumerate(groups.items()):
        colours = _OURS if system in tasks.OURS else _OTHERS
        for bar, figure in enumerate(group):
            if figure is None:
                continue
            y = _TOP + number * group_height + bar * _BAR_HEIGHT
            width = panel.value(figure) / largest * _BARS_WIDTH
            yield _rectangle(x, y, max(width, 0.5), colours[bar])
            yield _text(x + width + 4, y + _BAR_HEIGHT - 3, panel.show(panel.value(figure)), size=10)


def _legend() -> Iterator[str]:
    x = float(_LABEL_WIDTH)
    for bar, connections in enumerate(tasks.CONNECTIONS):
        yield _rectangle(x, 12, 14, _OURS[bar])
        yield _rectangle(x + 16, 12, 14, _OTHERS[bar])
        yield _text(x + 36, 22, f"{connections} connection{'' if connections == 1 else 's'}")
        x += 130


def _rectangle(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR_HEIGHT - 2}" fill="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 11
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
