# SPDX-License-Identifier: Apache-2.0
"""A panel of a dashboard as a picture, with what Grafana shows of it: title, unit, lines or a stack of them, and the legend's
table. Drawn by matplotlib.
"""
import dataclasses
import math
import pathlib
from typing import Any, Optional

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

DOTS_PER_INCH = 110
INCHES_OF_COLUMN = 0.42  # a dashboard has 24
COLUMNS_MIN = 10         # narrower ones have no room for their table
INCHES_OF_CHART = 2.6
INCHES_OF_ROW = 0.19     # of the legend
COLORS = pyplot.get_cmap("tab20").colors
MARKS = {"Resizes": "tab:blue", "Failovers": "tab:red"}
# Units of Grafana to how matplotlib writes a value.
_SCALED = {"s": "s", "bytes": "B", "Bps": "B/s"}
_COUNTED = {"none": "", "short": "", "cps": " c/s", "reqps": " req/s"}
_LONG_TIMES = {"days": 86400, "h": 3600}


@dataclasses.dataclass(frozen=True)
class Line:
    """`values` at `seconds` since the first point of the panel; NaN where there is none."""
    name: str
    seconds: list[float]
    values: list[float]

    def newest(self) -> Optional[float]:
        return next((value for value in reversed(self.values) if math.isfinite(value)), None)

    def highest(self) -> Optional[float]:
        return max(filter(math.isfinite, self.values), default=None)


def _words(unit: str) -> ticker.Formatter:
    """How values of a unit are written."""
    if unit == "percentunit":
        return ticker.PercentFormatter(1, decimals=1)
    if unit == "bool":
        return ticker.FuncFormatter(lambda value, _: "yes" if value else "no")
    if unit == "s":
        return ticker.FuncFormatter(lambda value, _: _duration(value))
    if unit in _SCALED:
        return ticker.EngFormatter(_SCALED[unit], places=1)
    # No letter for parts of one.
    return ticker.FuncFormatter(lambda value, _: f"{value:,.0f}{_COUNTED[unit]}" if unit == "none" or abs(value) >= 1000 else
                                f"{value:.3g}{_COUNTED[unit]}")


def _duration(seconds: float) -> str:
    for unit, length in _LONG_TIMES.items():
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return ticker.EngFormatter("s", places=1)(seconds)


def draw(panel: dict[str, Any], lines: list[Line], marks: dict[str, list[float]], path: pathlib.Path) -> None:
    """`marks`: annotation to the seconds at which it is. The folder of `path` is made."""
    field = panel["fieldConfig"]["defaults"]
    unit = _words(field["unit"])
    rows = INCHES_OF_ROW * (len(lines) + 1)
    size = INCHES_OF_COLUMN * max(panel["gridPos"]["w"], COLUMNS_MIN), INCHES_OF_CHART + rows
    figure, (chart, legend) = pyplot.subplots(2, 1, figsize=size, dpi=DOTS_PER_INCH, constrained_layout=True,
                                              gridspec_kw={"height_ratios": [INCHES_OF_CHART, rows]})
    chart.set_title(panel["title"], loc="left", fontsize=10, fontweight="bold")
    chart.grid(alpha=0.3)
    chart.tick_params(labelsize=8)
    chart.set_xlabel("s", fontsize=8)
    chart.yaxis.set_major_formatter(unit)
    if field.get("decimals") == 0 or field["unit"] == "bool":
        chart.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    colors = [COLORS[2 * i % 20 + (2 * i // 20) % 2] for i in range(len(lines))]
    custom = field.get("custom", {})
    if custom.get("stacking", {}).get("mode") == "normal" and lines:
        seconds = sorted({second for line in lines for second in line.seconds})
        layers = [dict(zip(line.seconds, line.values)) for line in lines]
        chart.stackplot(seconds, [[_or_zero(layer.get(second)) for second in seconds] for layer in layers], colors=colors,
                        edgecolors=colors, alpha=0.2 + custom["fillOpacity"] / 100)
    else:
        for line, color in zip(lines, colors):
            chart.plot(line.seconds, line.values, color=color, linewidth=1.2, marker="." if _is_single(line) else None)
    for name, times in marks.items():
        for i, time in enumerate(times):
            chart.axvline(time, color=MARKS[name], linestyle="--", linewidth=0.8, label="_" if i else name)
    if any(marks.values()):
        chart.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 0.99), ncol=2, frameon=False).set_in_layout(False)
    low, high = chart.get_ylim()
    floor = field.get("min", min(low, custom.get("axisSoftMin", low)))
    chart.set_ylim(floor, 1.02 * field.get("max", max(high, floor + (1 if field.get("decimals") == 0 else 0))))
    legend.axis("off")
    cells = [[line.name, *(_cell(unit, value) for value in (line.newest(), line.highest()))] for line in lines]
    table = legend.table(cellText=cells or [["No data", "", ""]], colLabels=["", "last", "max"], colWidths=[0.6, 0.2, 0.2],
                         cellLoc="right", loc="upper center", edges="open")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for row, color in enumerate(colors, start=1):
        table[row, 0].set_text_props(color=color, ha="left", fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _or_zero(value: Optional[float]) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


def _is_single(line: Line) -> bool:
    return sum(map(math.isfinite, line.values)) == 1


def _cell(unit: ticker.Formatter, value: Optional[float]) -> str:
    return "–" if value is None else unit(value)
