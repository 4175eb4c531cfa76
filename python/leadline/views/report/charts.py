"""The charts of the report as Vega-Lite specifications, and their still pictures for readers without scripts."""

from __future__ import annotations

import copy
import functools
from typing import Any

from leadline.views.grid import Curves, Stack
from leadline.views.wait_classes import ORDER, rank, wait_class
from leadline.views.where import Slice, Window

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 260


def time_chart(slices: list[Slice], of: Window) -> dict[str, Any]:
    """Sessions active on average, stacked by class along the window, with a line at the number of CPUs.

    Steps in which no pass was made stay empty. Colours are put in by `themed`.
    """
    names = sorted({s.wait_class for s in slices}, key=rank)
    values = [[s.from_s, s.to_s, names.index(s.wait_class), round(s.aas, 4)] for s in slices if s.aas > 0]
    bars = {
        "mark": {"type": "rect", "tooltip": True, "clip": True},
        "encoding": {
            **_time_axis(of),
            "y": {"field": "below", "type": "quantitative", "axis": {"title": "active sessions", "tickCount": 5, "minExtent": 28}},
            "y2": {"field": "above"},
            "color": {"field": "class", "type": "nominal", "scale": {"domain": names, "range": []}, "legend": None},
            "tooltip": [
                {"field": "class", "title": "class"},
                {"field": "aas", "title": "active sessions", "format": ".2f"},
                *_WHEN,
            ],
        },
    }
    layers: list[dict[str, Any]] = [bars]
    if of.cpu_count:
        data = {"values": [{"cpus": of.cpu_count, "label": f"{of.cpu_count} CPUs"}]}
        y = {"field": "cpus", "type": "quantitative"}
        rule = {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 1.5}
        layers.append({"data": data, "mark": rule, "encoding": {"y": y}})
        label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "dx": -4, "fontWeight": 600}
        layers.append({"data": data, "mark": label, "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "label"}}})
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": _stacked(values, names)},
        "layer": layers,
    }


_WHEN = (
    {"field": "from", "title": "from second", "type": "quantitative", "format": "~g"},
    {"field": "to", "title": "to second", "type": "quantitative", "format": "~g"},
)


def _time_axis(of: Window) -> dict[str, Any]:
    x = {
        "field": "from",
        "type": "quantitative",
        "scale": {"domain": [0, max(of.window_s, 0.1)], "nice": False},
        "axis": {"title": "seconds from the start", "grid": False, "labelFlush": True},
    }
    return {"x": x, "x2": {"field": "to"}}


def _stacked(values: list[list[float]], names: list[str]) -> list[dict[str, Any]]:
    """Rows of the chart with the lower and upper edge of each piece: the stack is made here, so gaps stay gaps."""
    rows, top, at = [], 0.0, None
    for from_s, to_s, name, aas in sorted(values, key=lambda v: (v[0], v[2])):
        if from_s != at:
            top, at = 0.0, from_s
        above = round(top + aas, 4)
        row = {"from": from_s, "to": to_s, "class": names[int(name)]}
        rows.append(row | {"aas": aas, "below": top, "above": above})
        top = above
    return rows


def session_chart(rows: list[dict[str, Any]], sessions: list[str], of: Window) -> dict[str, Any]:
    """One lane per session: in each step the class it spent most of the time in; blank where it was idle or gone."""
    names = sorted({row["class"] for row in rows}, key=rank)
    axis = {"title": None, "ticks": False, "domain": False, "labelPadding": 6}
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": 16 * len(sessions),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        "mark": {"type": "rect", "tooltip": True, "height": {"band": 0.82}},
        "encoding": {
            **_time_axis(of),
            "y": {"field": "session", "type": "nominal", "sort": sessions, "axis": axis},
            "color": {"field": "class", "type": "nominal", "scale": {"domain": names, "range": []}, "legend": None},
            "opacity": {"field": "part", "type": "quantitative", "scale": {"domain": [0, 1], "range": [0.35, 1]}, "legend": None},
            "tooltip": [
                {"field": "session", "title": "session"},
                {"field": "class", "title": "top wait class"},
                {"field": "part", "title": "part of the step", "format": ".0%"},
                *_WHEN,
            ],
        },
    }


# Colours of a stack whose parts have none of their own: Okabe and Ito's, which the colour-blind can tell apart; the last is of the rest.
STACK_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a72c", "#8a8f98")


def chart(picture: Stack | Curves) -> dict[str, Any]:
    return stack_chart(picture) if isinstance(picture, Stack) else curve_chart(picture)


def stack_chart(stack: Stack) -> dict[str, Any]:
    """Amounts by name, stacked along an axis."""
    names = list(dict.fromkeys(name for _, _, name, _ in sorted(stack.values, key=lambda v: (v[2].startswith("other"),))))
    rows, top, at = [], 0.0, None
    for from_at, to_at, name, amount in sorted(stack.values, key=lambda v: (v[0], names.index(v[2]))):
        if from_at != at:
            top, at = 0.0, from_at
        row = {"from": round(from_at, 6), "to": round(to_at, 6), "class": name}
        rows.append(row | {"amount": amount, "below": top, "above": top + amount})
        top += amount
    x = {
        "field": "from",
        "type": "quantitative",
        "scale": {"domain": [0, stack.end], "nice": False},
        "axis": {"title": stack.axis, "grid": False, "labelFlush": True},
    }
    legend = {"orient": "top", "title": None, "labelLimit": 150}  # the page sets how many in a line
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        "mark": {"type": "rect", "tooltip": True, "clip": True},
        "encoding": {
            "x": x,
            "x2": {"field": "to"},
            "y": {"field": "below", "type": "quantitative", "axis": {"title": stack.amount, "tickCount": 5, "minExtent": 28}},
            "y2": {"field": "above"},
            "color": {
                "field": "class",
                "type": "nominal",
                "scale": {"domain": names, "range": [*STACK_COLOURS[: len(names) - 1], STACK_COLOURS[-1]]},
                "legend": legend,
            },
            "tooltip": [
                {"field": "class", "title": "kind"},
                {"field": "amount", "title": stack.unit or stack.amount, "format": ".3~g"},
                {"field": "from", "title": "from", "format": "~g"},
                {"field": "to", "title": "to", "format": "~g"},
            ],
        },
    }


def curve_chart(curves: Curves) -> dict[str, Any]:
    """Lines with a point at each value that was taken or reckoned."""
    names = list(dict.fromkeys(name for _, _, name in curves.values))
    text: dict[str, Any] = {}
    if curves.x_text:  # named places are those of the points, and no others
        text = {"labelExpr": curves.x_text, "values": sorted({x for x, _, _ in curves.values}), "labelOverlap": "greedy"}
    x_scale, y_scale = ({"type": "log" if log else "linear", "nice": False} for log in (curves.log_x, curves.log_y))
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": [{"x": x, "y": y, "name": name} for x, y, name in curves.values]},
        "mark": {"type": "line", "point": {"size": 30}, "tooltip": True, "strokeWidth": 1.8},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": x_scale, "axis": {"title": curves.axis, "grid": False, **text}},
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": y_scale | {"nice": True, "zero": not curves.log_y},
                "axis": {"title": curves.amount, "tickCount": 5, "minExtent": 28, "format": "~g"},
            },
            "color": {
                "field": "name",
                "type": "nominal",
                "scale": {"domain": names, "range": list(STACK_COLOURS[: len(names)])},
                "legend": {"orient": "top", "title": None, "labelLimit": 150} if len(names) > 1 else None,
            },
            "tooltip": [
                {"field": "name", "title": "of"},
                {"field": "x", "title": curves.axis, "format": ".4~g"},
                {"field": "y", "title": curves.amount, "format": ".4~g"},
            ],
        },
    }


def palette(dark: bool) -> dict[str, str]:
    """Colour by class, for the scripts of the page; a class not listed gets the last."""
    return {c.name: c.dark if dark else c.light for c in ORDER} | {"": wait_class("").dark if dark else wait_class("").light}


def still(spec: dict[str, Any]) -> str:
    """The chart as SVG in the light colours, 900 px wide."""
    fixed = copy.deepcopy(spec) | {"width": 860, "config": {"background": "white", "view": {"stroke": None}}}
    colours = palette(dark=False)
    _colour(fixed, colours)
    import vl_convert

    return str(vl_convert.vegalite_to_svg(fixed))


def _colour(part: Any, colours: dict[str, str]) -> None:
    """Fills the empty colour ranges of a specification in place."""
    if isinstance(part, list):
        for item in part:
            _colour(item, colours)
    elif isinstance(part, dict):
        if part.get("range") == [] and "domain" in part:
            part["range"] = [colours.get(name, colours[""]) for name in part["domain"]]
        for item in part.values():
            _colour(item, colours)


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, safe to stand inside an HTML script element."""
    import vl_convert

    snippet = "window.vegaEmbed = vegaEmbed;"
    return str(vl_convert.javascript_bundle(snippet)).replace("</script", "<\\/script").replace("<!--", "<\\!--")
