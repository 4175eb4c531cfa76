"""What `leadline top` draws, and what it leaves as it stands: each refresh draws what has changed, and lays out nothing anew."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import wait_until
from example_capture import example
from leadline.host.proc import private_bytes, status_fields
from leadline.top import chart, driver, names, text
from leadline.top.driver import EndOrInput
from leadline.top.grid import Bar, Column, Grid, Row
from leadline.top.lines import Lines, segments
from leadline.top.model import frame
from leadline.top.table import LiveTable
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from top_parts import RECORDING, at, live_of

COLUMNS = (Column("pid", 5, right=True, sort="pid"), Column("wait", 8), Column("", 6))


def test_lines_have_the_styles_that_rich_gives_them(tmp_path: Path) -> None:
    live = live_of(example(tmp_path).write())
    live.look_at(at(10), at(40))
    seen = frame(live, RECORDING)
    console = Console(width=200, color_system="truecolor")
    made = [chart.load_bar(seen.load, 2, 60), chart.legend(seen.load, 60), *chart.stacked(seen.timeline, 2, 70, 6)]
    made += text.text_frame(seen, 100)
    made += [Text("a").append("b", "bold"), Text("base", "dim").append(" none", "none")]
    for line in filter(lambda line: line.spans, made):  # without a span, Text.render gives no style at all
        theirs = [Segment(part, style) for part, style, _ in line.render(console) if part != "\n"]
        assert per_cell(segments(line)) == per_cell(theirs), line.plain
    assert list(segments(Text("muted", "dim"))) == [Segment("muted", Style(dim=True))] and not list(segments(Text("")))
    live.close()


def per_cell(pieces: Iterator[Segment] | list[Segment]) -> list[tuple[str, Style]]:
    return [(char, style or Style()) for part, style, _ in pieces for char in part]


class Shown(App[None]):
    def compose(self) -> ComposeResult:
        yield LiveTable(id="sessions")
        yield Lines(id="note")


def grid(*rows: Row) -> Grid:
    return Grid(COLUMNS, list(rows))


def row(pid: int, wait: str, part: float = 0.5) -> Row:
    return Row(str(pid), [str(pid), Text(wait, "red"), Bar(part, "red")])


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[int], list[object]]]:
    """Lines of tables that are drawn, and layouts of the screen."""
    drawn: list[int] = []
    layouts: list[object] = []
    render_line, layout = LiveTable.render_line, Screen._refresh_layout

    def counting(self: LiveTable, y: int) -> object:
        drawn.append(y)
        return render_line(self, y)

    def laying_out(self: Screen[object], *arguments: object, **options: object) -> None:
        layouts.append(arguments)
        layout(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LiveTable, "render_line", counting)
        patched.setattr(Screen, "_refresh_layout", laying_out)
        yield drawn, layouts


async def settled(app: App[None], pilot: Pilot[None]) -> None:
    """What was shown before is laid out and drawn: on a busy host that takes more than one turn."""
    await pilot.pause()
    while any(widget._layout_required or widget._repaint_required for widget in (app.screen, *app.screen.query("*"))):
        await pilot.pause()


def test_only_rows_that_changed_are_drawn_and_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        app = Shown()
        async with app.run_test(size=(40, 12)) as pilot:
            table = app.query_one(LiveTable)
            table.show(grid(), [row(1, "Lock"), row(2, "IO"), row(3, "CPU")], 38)
            await settled(app, pilot)
            for rows, lines in (
                ([row(1, "Lock"), row(2, "CPU"), row(3, "CPU")], {2}),
                ([row(1, "Lock"), row(2, "CPU", 0.9), row(3, "CPU")], {2}),
                ([row(1, "Lock"), row(2, "CPU", 0.9), row(3, "CPU")], set()),
                ([row(1, "Lock"), row(2, "CPU", 0.9)], {3}),
                ([row(1, "Lock"), row(2, "CPU", 0.9), row(4, "IO"), row(5, "IO")], {3, 4}),
                ([row(2, "CPU", 0.9), row(1, "Lock"), row(4, "IO"), row(5, "IO")], {1, 2}),
                ([], {1, 2, 3, 4}),
            ):
                with counted(monkeypatch) as (drawn, layouts):
                    table.show(grid(), rows, 38, empty="none")
                    await pilot.pause()
                assert (set(drawn), layouts) == (lines, []), rows
                assert table.row_count == len(rows)
            assert app.focused is table  # it is not hidden, which would draw the keys at the bottom anew

    asyncio.run(go())


def test_more_rows_than_fit_may_come_and_go_without_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        app = Shown()
        async with app.run_test(size=(40, 12)) as pilot:
            table = app.query_one(LiveTable)
            rows = [row(pid, "IO") for pid in range(1, 41)]
            table.show(grid(), rows[:30], 38)
            await settled(app, pilot)
            await pilot.press("end")
            await settled(app, pilot)
            for count in (27, 30, 24, 22):
                offset = min(table.scroll_offset.y, count + 1 - table.size.height)
                with counted(monkeypatch) as (_, layouts):
                    table.show(grid(), rows[:count], 38)
                    await pilot.pause()
                assert (layouts, table.scroll_offset.y) == ([], offset), count
                await pilot.press("end")
                await settled(app, pilot)
            table.show(grid(), rows[:2], 38)
            await pilot.pause()
            assert not table.show_vertical_scrollbar
            await pilot.resize_terminal(40, 8)
            await pilot.pause()
            assert not table.show_vertical_scrollbar

    asyncio.run(go())


def test_the_cursor_moves_scrolls_and_stays_on_its_row() -> None:
    async def go() -> None:
        app = Shown()
        async with app.run_test(size=(40, 12)) as pilot:
            table = app.query_one(LiveTable)
            rows = [row(pid, "IO") for pid in range(1, 31)]
            table.show(grid(), rows, 38, "pid")
            await pilot.pause()
            fits = table.size.height - 1
            for keys, pid, top in (
                (["down"] * 3, 4, 0),
                (["pagedown"] * 2, 4 + 2 * fits, 4 + fits),
                (["end"], 30, 30 - fits),
                (["down"], 30, 30 - fits),
                (["up"], 29, 30 - fits),
                (["home"], 1, 0),
                (["up"], 1, 0),
            ):
                await pilot.press(*keys)
                assert (table.key_at_cursor(), table.scroll_offset.y) == (str(pid), top)
            await pilot.press("end")
            table.show(grid(), rows[::-1], 38, "pid")
            assert (table.key_at_cursor(), table.cursor_row) == ("30", 0)
            table.show(grid(), rows[:5], 38, "pid")  # the row is gone, and most others with it
            await pilot.pause()
            assert (table.key_at_cursor(), table.scroll_offset.y) == ("1", 0)
            table.show(grid(), [], 38, "pid", "none")
            await pilot.press("down", "enter")
            assert (table.key_at_cursor(), table.cursor_row) == ("", 0)

    asyncio.run(go())


def test_a_click_moves_the_cursor_chooses_a_row_or_a_title() -> None:
    said: list[str] = []

    class Hearing(Shown):
        def on_live_table_row_selected(self, event: LiveTable.RowSelected) -> None:
            said.append(event.key)

        def on_live_table_title_selected(self, event: LiveTable.TitleSelected) -> None:
            said.append(event.column.title)

    async def go() -> None:
        app = Hearing()
        async with app.run_test(size=(40, 12)) as pilot:
            table = app.query_one(LiveTable)
            table.show(grid(), [row(1, "Lock"), row(2, "IO")], 38)
            await pilot.pause()
            await pilot.click(table, offset=(3, 2))
            assert (table.key_at_cursor(), said) == ("2", [])
            await pilot.click(table, offset=(3, 2))
            await pilot.click(table, offset=(3, 8))  # no row
            await pilot.click(table, offset=(9, 0))
            await pilot.press("enter")
            await pilot.pause()
            assert said == ["2", "wait", "2"]

    asyncio.run(go())


def test_a_note_of_other_words_lays_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        app = Shown()
        async with app.run_test(size=(40, 12)) as pilot:
            note = app.query_one(Lines)
            note.show([Text("11 idle")])
            await settled(app, pilot)
            with counted(monkeypatch) as (_, layouts):
                note.show([Text("12 idle not shown")])
                await pilot.pause()
            assert layouts == []
            assert "".join(part.text for part in note.render_lines(Region(0, 0, 40, 1))[0]).rstrip() == "12 idle not shown"

    asyncio.run(go())


def test_the_thread_for_keys_sleeps_until_there_is_one_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "AWAKE_S", 0)
    inside, outside = os.pipe()
    told = EndOrInput(inside)
    looks: list[bool] = []

    def look() -> None:
        while not told.is_set():
            looks.append(bool(select.select([inside], [], [], 0)[0]))
            os.read(inside, 1)

    thread = threading.Thread(target=look)
    thread.start()
    assert not told.is_set()  # the main thread does not wait
    os.write(outside, b"q")
    wait_until(lambda: looks, what="the key")
    told.set()
    thread.join(20)
    assert not thread.is_alive() and looks == [True]
    told.clear()
    assert not told.is_set()
    os.close(inside)
    os.close(outside)


def test_after_a_key_it_is_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An escape alone is known by nothing that follows it: Textual asks again after a tenth of a second."""
    monkeypatch.setattr(driver, "AWAKE_S", 1000)
    inside, outside = os.pipe()
    told = EndOrInput(inside)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(told.is_set()))
    thread.start()
    thread.join(20)
    assert answers == [False]
    os.close(inside)
    os.close(outside)


def test_names_that_did_not_change_are_not_handed_over_again(tmp_path: Path) -> None:
    reader = names.Names(tmp_path, lambda databases: {})
    rows: names.Rows = {"role": [(10, "postgres")], "database": [(5, "shop", 1663, -1)]}
    found = []
    for changed in (rows, rows, rows | {"role": [(10, "admin")]}):
        reader._store(changed)
        taken = reader.take()
        found.append(taken and sorted(p.name for p in taken.iterdir()))
    assert found == [["database", "role"], None, ["role"]]
    reader._store(rows)  # while this was not taken yet, it is replaced as a whole
    reader._store(rows)
    taken = reader.take()
    assert taken and sorted(p.name for p in taken.iterdir()) == ["database", "role"]


def test_private_memory_is_what_the_status_says() -> None:
    said = int(status_fields(os.getpid())["RssAnon"].split()[0]) * 1024
    assert private_bytes(os.getpid()) == pytest.approx(said, rel=0.05)
    assert private_bytes(999_999_999) is None
