"""`leadline top --with`: the standbys of a window, their table at each width, and the tab that is there only with them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.cli import run
from leadline.engines.live import StandbyNow, Watch
from leadline.engines.postgres.standbys import standbys_now
from leadline.errors import LeadlineError
from leadline.top import grids, model, text
from leadline.top.app import TopApp
from leadline.top.engine import Request
from leadline.top.grid import lines
from leadline.top.live import LiveCapture
from leadline.top.model import STANDBYS, TABS, Frame
from replicating import MB, pair_of_servers
from test_top_screen import Replay, screen
from top_parts import RECORDING, at, live_of, until


def nodes(lost: str = "") -> Any:
    return [SimpleNamespace(number=n, name=f"db{n}:5432", is_away=n == 3, lost=lost) for n in (1, 2, *([3] if lost else []))]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveCapture]:
    opened = live_of(pair_of_servers(tmp_path))
    yield opened
    opened.close()


def test_a_standby_that_catches_up(live: LiveCapture) -> None:
    """At 20 s 140 MB were made, of which it has replayed 100. What it replays now was made before the window."""
    live.look_at(at(10), at(20) + 1)
    [standby] = standbys_now(live, nodes())
    assert (standby.name, standby.is_asked, standby.held_up) == ("db2:5432", True, "not replayed")
    assert standby.lag_bytes == standby.unreplayed_bytes == 40 * MB
    assert (standby.unsent_bytes, standby.unreceived_bytes, standby.unflushed_bytes) == (None, 0, 0)
    assert standby.is_least and standby.behind_s == pytest.approx(10)
    assert standby.made_per_s == pytest.approx(2 * MB) and standby.replayed_per_s == pytest.approx(5 * MB)
    assert standby.age_s == pytest.approx(0, abs=1e-6)
    live.look_at(at(10), at(16))
    assert standbys_now(live, nodes())[0].age_s == pytest.approx(0.1)


def held_up(folder: Path, **standby: Any) -> LiveCapture:
    """10 s in which a standby stands still at 0 MB and the primary makes 1 MB a second."""
    cap = SyntheticCapture(folder, rate_hz=10, seconds=10)
    for n in range(101):
        ts = cap.ts(n / 10)
        made = n * MB // 10
        cap.add("replication_position", ts=ts, node=1, in_recovery=False, insert_lsn=made, flush_lsn=made)
        received = {"write_lsn": made, "flush_lsn": made, "upstream_lsn": made, "is_paused": False} | standby
        cap.add("replication_position", ts=ts, node=2, in_recovery=True, replay_lsn=0, tier="shm", **received)
        sent = {"sent_lsn": made, "write_lsn": made // 2, "flush_lsn": made // 2, "replay_lsn": 0}
        cap.add("walsender", ts=ts, node=1, pid=77, application_name="west", client_addr="10.0.0.2", is_logical=False, **sent)
    return live_of(cap.write())


@pytest.mark.parametrize(
    ("standby", "says"),
    [
        ({}, "not replayed"),  # what startup waited for was not seen
        ({"startup_wait": 0}, "not replayed: reads WAL 100%"),
        ({"startup_wait": 0, "record_lsn": 500}, "not replayed: applies records 100%"),
        ({"is_paused": True}, "replay is paused"),
        ({"write_lsn": 0, "flush_lsn": 0}, "not received"),
        ({"flush_lsn": 0}, "not on its disk"),
    ],
)
def test_where_it_is_held_up(tmp_path: Path, standby: dict[str, Any], says: str) -> None:
    live = held_up(tmp_path, **standby)
    live.look_at(at(0), at(10) + 1)
    asked, heard = standbys_now(live, nodes())
    assert asked.held_up == says
    assert (heard.name, heard.is_asked) == ("west at 10.0.0.2 (77), as db1:5432 heard", False)
    assert (heard.unsent_bytes, heard.unreceived_bytes, heard.unreplayed_bytes) == (0, 5 * MB, 5 * MB)
    live.close()


def test_who_cannot_be_read_is_there_and_says_why(live: LiveCapture) -> None:
    live.look_at(at(10), at(20) + 1)
    away = standbys_now(live, nodes("connection refused"))[1]
    assert away == StandbyNow("db3:5432", True, held_up="cannot be read: connection refused")
    asked = nodes("connection refused")
    asked[1].is_away = True  # it was read in the window, and is away now
    seen = standbys_now(live, asked)[0]
    assert (seen.name, seen.lag_bytes, seen.held_up) == ("db2:5432", 40 * MB, "cannot be read: connection refused")


STANDBY = StandbyNow("db2:5432", True, 0.2, 3.4, False, 7 * MB, None, 0, 0, 7 * MB, 2.0 * MB, 1.0 * MB, "not replayed: Lock:relation 98%")
HEARD = dataclasses.replace(
    STANDBY, name="west at 10.0.0.2 (77), as db1:5432 heard", is_asked=False, is_least=True, unsent_bytes=3, held_up=""
)


@pytest.fixture
def frame(live: LiveCapture) -> Frame:
    live.look_at(at(10), at(20) + 1)
    return dataclasses.replace(model.frame(live, RECORDING), standbys=[STANDBY, HEARD, StandbyNow("db3:5432", True, held_up="gone")])


def test_the_table_at_80_and_120_columns(frame: Frame) -> None:
    narrow, wide = ([line.plain for line in lines(grids.grid_of(STANDBYS, frame), width)] for width in (77, 117))
    assert all(len(line) <= 77 for line in narrow) and all(len(line) <= 117 for line in wide)
    assert narrow[0].split() == ["standby", "behind", "bytes", "made/s", "replay/s", "held", "up"]
    assert narrow[1].split()[:5] == ["db2:5432", "3.40", "7.0M", "2.0M", "1.0M"] and "not replayed: Lock:relati…" in narrow[1]
    assert wide[0].split()[5:9] == ["unsent", "unreceived", "unflushed", "unreplayed"]
    assert wide[1].split()[5:8] == ["0", "0", "7.0M"] and "not replayed: Lock:relatio" in wide[1]
    assert ">3.40" in wide[2] and wide[2].endswith("keeps up") and wide[3].split() == ["db3:5432", "gone"]


def test_what_was_last_read_long_ago_says_so(frame: Frame) -> None:
    old = dataclasses.replace(frame, standbys=[dataclasses.replace(STANDBY, age_s=12.0)])
    assert "last read 12 s ago; not re" in lines(grids.grid_of(STANDBYS, old), 117)[1].plain


def test_text_and_json_have_them_only_where_they_are_watched(frame: Frame) -> None:
    assert "Standbys" in [line.plain for line in text.text_frame(frame, 80)]
    assert frame.as_dict()["standbys"][0]["held_up"] == STANDBY.held_up
    without = dataclasses.replace(frame, standbys=None)
    assert "Standbys" not in [line.plain for line in text.text_frame(without, 80)] and without.as_dict()["standbys"] is None


class WithStandbys(Replay):
    def frame(self, request: Request) -> Frame:
        made = super().frame(request)
        return dataclasses.replace(made, standbys=[STANDBY]) if STANDBYS in request.parts else made


@pytest.mark.parametrize("watched", [True, False])
def test_the_tab_is_there_only_with_them(live: LiveCapture, watched: bool) -> None:
    replay = WithStandbys(live, 20)
    replay.tabs = (*TABS, STANDBYS) if watched else TABS

    async def go() -> None:
        app = TopApp(replay, refresh_s=0.5)
        async with app.run_test(size=(100, 24)) as pilot:
            await until(pilot, lambda: app.now_shown is not None)
            await pilot.press("6")
            if watched:
                await until(pilot, lambda: "Lock:relation 98%" in screen(app))
                await pilot.press("tab")
                await until(pilot, lambda: app.open_tab == "overview")
            else:
                await pilot.press("shift+tab")
                await until(pilot, lambda: app.open_tab == "statements")
            assert ("6 standbys" in screen(app)) == watched

    asyncio.run(go())


def test_a_server_that_leadline_knows_no_standbys_of() -> None:
    with pytest.raises(LeadlineError, match="which servers this one replicates with") as refused:
        Watch(None, "", 1).follow(["x"])  # type: ignore[arg-type]
    assert refused.value.kind == "unsupported" and Watch(None, "", 1).standbys(None) is None  # type: ignore[arg-type]


def test_a_host_has_no_standbys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--host", "--with", "x", "--once"]) == 2
    assert "--host cannot be combined with --with" in capsys.readouterr().err
