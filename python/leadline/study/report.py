"""A study as one HTML page that opens offline: the answer on the first screen, of a laptop and of a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from leadline.book.experiments.drawing import drawings
from leadline.book.experiments.study_text import answers, asked, empty_text, medians, no_effect
from leadline.figures import figure
from leadline.study.moved import Limit, OfLevel

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6470;--line:#d5dae0;--good:#1a7f37;--bad:#b42318;--mark:#2563a8;--band:#2563a81a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4b0;--line:#3a424c;--good:#56c271;--bad:#ff8a7a;--mark:#7db4f0}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);margin:0 auto;padding:1rem;max-width:70rem}
h1{font-size:1.35rem;margin:.2rem 0 .6rem}h2{font-size:1.15rem;margin:2rem 0 .4rem}h3{font-size:1rem;margin:1.3rem 0 .2rem}
h1,h2,p,ul,pre{max-width:56rem}
.answer{border-left:4px solid var(--mark);padding:.3rem .8rem;margin:.4rem 0}
.better{border-color:var(--good)}.worse{border-color:var(--bad)}
.answer b{display:block}.soft{color:var(--soft)}.empty{border:1px dashed var(--bad);padding:.4rem .8rem;margin:.4rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td:not(.n){overflow-wrap:anywhere;min-width:8rem}td.n,th.n{text-align:right;white-space:nowrap}
svg{width:100%;height:auto;max-width:44rem}.ratios{max-width:33rem}svg text{fill:var(--ink);font-size:12px}
svg .one{stroke:var(--soft)}svg .margin{fill:var(--band)}svg .interval{stroke:var(--mark);stroke-width:3}svg circle{fill:var(--mark)}
@media(max-width:40rem){table{font-size:.85rem}th,td{padding-right:.4rem}}
pre{white-space:pre-wrap;overflow-wrap:anywhere;color:var(--soft);font-size:.85rem}
"""


def page(found: Mapping[str, Any], uid: str, levels: Sequence[OfLevel] = (), of_cells: Sequence[Limit] = (),
         plots: Sequence[str] = ()) -> str:  # fmt: skip
    """found: of studies.study. levels: where the time moved. of_cells: the busiest devices. plots: HTML of curves."""
    design, judged = found["design"], found["judged"]
    title = escape(design["question"])
    parts = [f"<h1>{title}</h1>"]
    parts += [f'<p class="empty"><b>Changed meanwhile</b> {escape(_change(one))}</p>' for one in found["differs"]]
    if judged is None:
        parts.append(f'<p class="answer">{escape(answers(found)[0])}</p>')
    else:
        parts += _answers(judged, design)
        dropped = [f"{level}: {why}" for level, why in design["dropped"]] + no_effect(judged)
        dropped += [f"enough: {level} is the first that is as good as the baseline" for level in judged["enough"]]
        parts += [f'<p class="answer">{escape(text)}</p>' for text in dropped]
        empty = [one for one in judged["empty"] if not one["dropped"]]
        parts += [f'<p class="empty"><b>Empty cell</b> {escape(empty_text(one, design))}</p>' for one in empty]
    parts += plots
    if judged is not None:
        for heading, rows in (("Effect of each factor", judged["effects"]), ("Cell by cell", judged["cells"]),
                              ("Interactions", judged["interactions"])):  # fmt: skip
            if rows:
                parts += [f"<h2>{heading}</h2>", *drawings(rows, design), _table(rows)]
        parts.append(f'<p class="soft">{escape(judged["error"])}</p>')
        if (pairs := found.get("pairs")) is not None and pairs["rows"]:
            parts += ["<h2>All pairs of levels</h2>", _table(pairs["rows"]), f'<p class="soft">{escape(pairs["error"])}</p>']
    if of_cells:
        parts += ["<h2>Busiest devices</h2>", "<ul>", *(f"<li>{escape(limit.text)}</li>" for limit in of_cells), "</ul>"]
    parts += [text for level in levels for text in _moved(level)]
    more = "\n".join([*medians(found), "", *asked(found), f"run           {uid}"])
    parts += ["<h2>Design and figures</h2>", f"<pre>{escape(more)}</pre>"]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return f"{head}<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n"


def _answers(judged: Mapping[str, Any], design: Mapping[str, Any]) -> list[str]:
    """One for each level and metric: the word first. Where none has a verdict, and all for the same reason, this stands once."""
    reasons = {row["text"].partition(": ")[2] if row["verdict"] == "none" else "" for row in judged["effects"]}
    if len(reasons) == 1 and (reason := reasons.pop()):
        return [f'<p class="answer"><b>no verdict</b>{escape(reason)}</p>']
    out = []
    for row in judged["effects"]:
        kind = {True: "better", False: "worse", None: ""}[row["good"]]
        text = row["text"].partition(": ")[2] or row["text"]
        word = row["verdict"] if row["verdict"] != "none" else "no verdict"
        out.append(f'<p class="answer {kind}"><b>{escape(row["level"])}, {escape(row["metric"])}: {word}</b>{escape(text)}</p>')
    return out or ['<p class="answer">no verdict: nothing could be compared</p>']


def _change(one: Mapping[str, str]) -> str:
    return f"{one['fact']}: {one['before'] or 'nothing'} before, {one['after'] or 'nothing'} after"


def _moved(level: OfLevel) -> list[str]:
    """Where the time moved: what moved most stands first in each table."""
    out = [f"<h2>Where the time moved: {escape(level.other)} against {escape(level.one)}</h2>"]
    said = [f"{name}: {trials} trials with {escape(of)}." for name, trials, of in zip("AB", level.trials, (level.one, level.other))]
    out.append(f'<p class="soft">{" ".join(said)}</p>')
    for table in level.tables:
        columns = table.grid.columns
        kinds = ["" if column.kind == "text" else ' class="n"' for column in columns]
        head = "".join(f"<th{kind}>{escape(column.head)}</th>" for column, kind in zip(columns, kinds))
        rows = ["".join(f"<td{kind}>{escape(column.shown(value)[:200])}</td>" for column, kind, value in zip(columns, kinds, row))
                for row in table.grid.rows]  # fmt: skip
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        note = f'<p class="soft">{escape(table.grid.note)}</p>' if table.grid.note else ""
        out.append(f'<h3>{escape(table.title)}</h3>{note}<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
    return out


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    right = ' class="n"'
    columns = (("level", ""), ("metric", ""), ("ratio", right), ("95 % interval", right), ("blocks", right), ("verdict", ""))
    head = "".join(f"<th{kind}>{name}</th>" for name, kind in columns)
    body = []
    for row in rows:
        interval = f"{figure(row['low'])} to {figure(row['high'])}" if row["low"] is not None else ""
        cells = [escape(row["level"]), escape(row["metric"])]
        numbers = [figure(row["ratio"]), interval, str(row["blocks"])]
        body.append("".join([*(f"<td>{one}</td>" for one in cells), *(f'<td class="n">{one}</td>' for one in numbers),
                             f"<td>{row['verdict']}</td>"]))  # fmt: skip
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{one}</tr>" for one in body)}</table></div>'
