"""One frame as plain text, and the lines about the recording that the screen shows as well."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from leadline.capture.manifest import TIERS
from leadline.engines.live import Vitals
from leadline.figures import count, fit
from leadline.top import chart, grids
from leadline.top.chart import MUTED, figure
from leadline.top.grid import lines
from leadline.top.model import STANDBYS, Frame, Load, Recording
from leadline.units import age_in_words, short_size

CHART_HEIGHT = 6
DRAWN = 80  # columns of bars and charts where nothing says how wide
MOST_ROWS = {"overview": 40, "sessions": 20, "locks": 30, "blocks": 10, "statements": 10, "standbys": 20}
TITLES = {
    "overview": "Database time by class",
    "sessions": "Sessions at the end of the window",
    "locks": "Lock tree",
    "blocks": "Contended blocks",
    "statements": "Statements",
    "standbys": "Standbys",
}


def who(r: Recording) -> str:
    return f"{r.product} {r.server} · {r.target}"


def how(r: Recording, of: Load) -> str:
    """Tier, rate, what was missed, what it costs."""
    tier = TIERS.get(r.tier, r.tier)
    cpu = f"own CPU {100 * r.own_cpu:.1f} %" if r.own_cpu is not None else "own CPU not yet known"
    missed = f"{of.missed} of {of.ticks + of.missed} ticks missed" if of.missed else "no tick missed"
    return f"{tier} {r.rate_hz:g} Hz · {missed} · {cpu}"


def age(r: Recording) -> str:
    if r.error is not None:
        return "no more data"
    return "no data yet" if r.data_age_s is None else f"data up to -{max(r.data_age_s, 0):.1f} s"


def counts(of: Load) -> str:
    idle = f", {of.idle_in_xact} idle in xact" if of.idle_in_xact else ""
    return f"{of.active} active{idle}, {count(of.sessions, 'client')}"


def vitals(of: Vitals | None) -> str:
    """What the server counts; empty without a connection."""
    if of is None:
        return ""
    hits = f" · {100 * of.hit_part:.1f} % cache hits" if of.hit_part is not None else ""
    temp = f" · temp {of.temp_files:.1f} files/s, {short_size(of.temp_bytes)}B/s" if of.temp_bytes or of.temp_files else " · no temp files"
    return f"{of.transactions:,.0f} tx/s{hits} · {of.sessions} of {of.max_connections} connections{temp}"


def aas(of: Load, cpu_count: int | None) -> str:
    return f"AAS {figure(of.aas)}" + (f" on {count(cpu_count, 'CPU')}" if cpu_count else "")


def text_frame(frame: Frame, columns: int | None, *, colours: bool = True) -> Iterator[Text]:
    """The frame for people and scripts, line by line, none wider than so many columns; None: nothing is cut, as in a pipe.

    colours: whether they will be seen.
    """
    width = DRAWN if columns is None else columns

    def cut(text: str) -> str:
        return text if columns is None else fit(text, columns)

    r, of = frame.recording, frame.load
    ended = f"{of.ended:%Y-%m-%d %H:%M:%S}, " if of.ended else ""
    yield Text(cut(who(r)), "bold")
    yield Text(cut(f"{ended}window {of.observed_s:.1f} s"))
    yield Text(cut(how(r, of)), MUTED)
    if line := vitals(r.vitals):
        yield Text(cut(line))
    for note in r.notes:
        yield Text(cut(f"note: {note}"), MUTED)
    yield Text("")
    head = aas(of, r.cpu_count) + "  "
    yield Text.assemble((head, "bold"), chart.load_bar(of, r.cpu_count, width - len(head), colours=colours))
    yield chart.legend(of, width)
    yield Text(cut(counts(of)), MUTED)
    yield from _chart(frame, width, colours)
    for tab, title in TITLES.items():
        if tab == STANDBYS and frame.standbys is None:
            continue
        grid = grids.grid_of(tab, frame)
        yield Text("")
        yield Text(title + (f" ({grid.note})" if grid.note and tab == "sessions" else ""), "bold")
        yield from lines(grid, columns, MOST_ROWS[tab])


def _chart(frame: Frame, width: int, colours: bool) -> Iterator[Text]:
    if len(frame.timeline.steps) > 1:
        yield Text("")
        yield from chart.stacked(frame.timeline, frame.recording.cpu_count, width, CHART_HEIGHT, colours=colours)
        yield chart.time_axis(frame.timeline, width)


def running_for(r: Recording) -> str:
    return f"watching for {age_in_words(r.running_s)}"
