"""`leadline top`: cells, bars and charts of any width, and the frame as plain text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest
from example_capture import example
from leadline.top import chart, grids, model, text
from leadline.top.grid import Bar, Column, Grid, Row, cell, lines, widths
from leadline.top.live import LiveCapture
from leadline.top.model import Frame
from leadline.views.wait_classes import wait_class
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from top_parts import RECORDING, at, live_of


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCapture]:
    opened = live_of(example(tmp_path_factory.mktemp("top")).write())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def frame(live: LiveCapture) -> Frame:
    """Seconds 10 to 40 of the example: the lock chain stands at its end."""
    live.look_at(at(10), at(40))
    return model.frame(live, RECORDING)


def test_columns_fit_every_width() -> None:
    for columns in (grids.OVERVIEW, grids.SESSIONS, grids.LOCKS, grids.BLOCKS, grids.STATEMENTS):
        for width in range(1, 250):
            shown = widths(columns, width)
            assert shown and sum(w for _, w in shown) + len(shown) - 1 <= width, (width, shown)
            assert all(w > 0 for _, w in shown)
        assert len(widths(columns, 200)) == len(columns)


def test_cells_have_their_width_whatever_is_in_them() -> None:
    for content in ("", "short", "x" * 50, "日本語のテキスト", Bar(0.5, "#ffffff"), Bar(0, "#ffffff"), Bar(7, "#ffffff")):
        for width in (1, 2, 7, 20):
            assert cell_len(cell(content, width).plain) == width
    assert cell("abcdef", 4).plain == "abc…" and cell("7", 3, right=True).plain == "  7"
    assert cell(Bar(0.5, "#ffffff"), 5).plain == "██▌  "
    assert cell(Bar(0.0001, "#ffffff"), 5).plain == "▏    "


def test_a_cell_has_no_commands_to_the_terminal() -> None:
    for content in ("a\x1b[2J\x07", Text("a\x9b2J\nb", "bold")):
        shown = cell(content, 12)
        assert shown.plain.isprintable() and cell_len(shown.plain) == 12 and shown.plain.startswith("a\ufffd")


def test_a_grid_as_text() -> None:
    grid = Grid([Column("n", 3, right=True), Column("name", 4, share=1, most=6)], [Row("1", ["1", "alpha"]), Row("2", ["2", "beta"])])
    assert [line.plain for line in lines(grid, 20)] == ["  n name", "  1 alpha", "  2 beta"]
    assert [line.plain for line in lines(grid, 20, most=1)][-1] == "and 1 more"
    assert [line.plain for line in lines(Grid(grid.columns, empty="nothing here"), 20)] == ["nothing here"]
    assert [row.key for row in grid.filtered("ALPH")] == ["1"]


def test_the_bar_marks_the_cpus_and_fills_its_width(frame: Frame) -> None:
    for width in (4, 20, 77):
        assert cell_len(chart.load_bar(frame.load, 2, width).plain) == width
        assert chart.load_bar(frame.load, 2, width).plain.count("│") == 1
    idle = dataclasses.replace(frame.load, classes=[], db_time_s=0.0)
    assert chart.load_bar(idle, 4, 40).plain.replace(" ", "") == "│"
    assert "no session is active" in chart.legend(idle, 80).plain
    for width in (10, 40, 80, 200):
        assert cell_len(chart.legend(frame.load, width).plain) <= width


def colours_of(row: Text) -> list[str]:
    """The colours of the parts of a line, from left to right."""
    styles = [span.style for span in row.spans if isinstance(span.style, Style)]
    return [style.color.name for style in styles if style.color]


def test_the_chart_has_the_height_of_the_sums() -> None:
    line = model.Timeline(1.0, [{"CPU": 1.0}, {"CPU": 1.0, "IO": 3.0}, None, {}])
    rows = [row.plain for row in chart.stacked(line, 1, 10, 4)]
    assert all(len(row) == 10 for row in rows)
    assert rows[0].split() == ["4.00", "█"] and rows[3][6:] == "██· "
    assert [row[:6] for row in rows] == [" 4.00 ", "      ", "1 CPU ", "      "] and rows[2][8:] == "╌╌"
    full = chart.stacked(line, None, 10, 4)
    assert [row.plain[7] for row in full] == ["█", "█", "█", "█"] and [row.plain[6] for row in full] == [" ", " ", " ", "█"]
    assert colours_of(full[0])[-1:] == [wait_class("IO").dark] and colours_of(full[3])[-1:] == [wait_class("CPU").dark]
    tiny = chart.stacked(model.Timeline(1.0, [{"CPU": 0.01}]), 64, 20, 3)
    assert "CPU" not in tiny[0].plain + tiny[2].plain  # a line far above the peak is left out


def test_the_plain_frame_fits_and_says_it_all(frame: Frame) -> None:
    for width in (80, 120):
        out = [line.plain for line in text.text_frame(frame, width, colours=False)]
        assert max(cell_len(line) for line in out) <= width
    page = "\n".join(out)
    assert "PostgreSQL 16.14 · postmaster 4711" in page
    assert "shared memory 100 Hz · no tick missed · own CPU 3.4 %" in page
    assert re.search(r"^Lock .* \d+\.\d%", page, re.M) and re.search(r"^  tuple +50\.0", page, re.M)
    assert re.search(r"^7001 batch +◆ .*3 behind it", page, re.M) and re.search(r"└ 7002 web +● ", page)
    assert re.search(r"public\.orders_pkey +117 .*right-most leaf +content", page)
    assert re.search(r"^ +7002 .*active +Lock:transactionid < 7001", page, re.M)
    assert "insert into orders (customer_id" in page


def test_in_a_pipe_no_value_is_cut(frame: Frame) -> None:
    assert frame.sessions is not None
    long = "select " + ", ".join(f"column_{n}" for n in range(60))
    names = {"usename": "u" * 63, "datname": "d" * 63, "application_name": "a" * 63}
    one = dataclasses.replace(frame.sessions[0], state="active", statement=long, **names)
    recording = dataclasses.replace(RECORDING, notes=("n" * 200,))
    wide = dataclasses.replace(frame, sessions=[one, *frame.sessions[1:]], recording=recording)
    page = "\n".join(line.plain for line in text.text_frame(wide, None))
    for value in (long, "u" * 63, "d" * 63, "a" * 63, "n" * 200):
        assert value in page
    assert "…" not in page
    [titles] = [line for line in page.splitlines() if line.startswith("    pid user")]
    [row] = [line for line in page.splitlines() if long in line]
    assert titles.index("statement") == row.index(long) and titles.index("db") == row.index("d" * 63)
    assert max(cell_len(line.plain) for line in text.text_frame(wide, 80)) == 80


def test_missed_ticks_notes_and_what_is_not_measured_are_said(frame: Frame) -> None:
    recording = dataclasses.replace(RECORDING, tier="sql", rate_hz=10, own_cpu=None, notes=("names stay numbers: why",))
    poor = dataclasses.replace(
        frame,
        recording=recording,
        load=dataclasses.replace(frame.load, missed=7, ticks=93),
        blocks=[],
        unavailable={"blocks": "needs memory"},
    )
    page = "\n".join(line.plain for line in text.text_frame(poor, 80))
    assert "SQL 10 Hz · 7 of 100 ticks missed · own CPU not yet known" in page
    assert "note: names stay numbers: why" in page and "not measured: needs memory" in page
