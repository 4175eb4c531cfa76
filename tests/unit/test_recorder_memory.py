"""A recorder of many pieces holds what one of a few holds: objects, memory blocks, files, threads, probes, databases."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import memory_database
from leadline.probes.options import Options
from leadline.probes.overhead import OverheadProbe
from leadline.probes.take import take_with
from leadline.recorder import evidence
from leadline.recorder.load import Load
from leadline.recorder.retention import Limits
from leadline.recorder.run import Recorder, World
from leadline.units import MB
from recorded_pieces import FakeWorld
from test_recorder_run import recorded

PIECES = 80  # between two looks
ALLOWED = PIECES // 2  # objects: one of each piece would be more
ALLOWED_BLOCKS = 5 * PIECES  # of a piece that stays there would be more


def held() -> Counter[str]:
    """What this process has, without what waits for the collector."""
    gc.collect()
    return Counter(
        objects=len(gc.get_objects()), blocks=sys.getallocatedblocks(), files=open_files(), threads=threading.active_count(),
        probes=sum(isinstance(one, OverheadProbe) for one in gc.get_objects()),
    )  # fmt: skip


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_of_a_piece_stays_when_it_is_removed(tmp_path: Path) -> None:
    """A hundred pieces, of which five are kept."""
    fake, seen = FakeWorld(piece_bytes=64 << 10, looks=2), list[Counter[str]]()

    def ends(fake: FakeWorld) -> None:
        fake.seen.clear()  # that is of the test
        if fake.made in (20, 20 + PIECES):
            seen.append(held())

    fake.ends = ends
    recorded(tmp_path, fake, 20 + PIECES, keep_s=3000)
    early, late = seen
    assert late["objects"] - early["objects"] < ALLOWED and late["blocks"] - early["blocks"] < ALLOWED_BLOCKS, (early, late)


def test_probes_and_what_they_hold_go_with_their_piece(tmp_path: Path) -> None:
    """With the probes of this host, and without any collection but the recorder's own: what hangs in circles would stay for many pieces."""
    stop, seen, made = threading.Event(), list[Counter[str]](), list[Path]()

    def take(options: Options, *arguments: Any, **more: Any) -> Path:
        seen.append(Counter(probes=sum(isinstance(one, OverheadProbe) for one in gc.get_objects()), files=open_files()))
        made.append(take_with(options, *arguments, **more))
        if len(made) == 8:
            stop.set()
        return made[-1]

    gc.collect()
    gc.disable()
    try:
        options = Options(host=True, for_s=1.05, rate_hz=10)
        Recorder(tmp_path, options, Limits(86_400, 64 * MB, MB), World(take=take)).run(stop)
    finally:
        gc.enable()
    assert [one["probes"] for one in seen] == [0] * 8
    assert seen[-1]["files"] <= seen[1]["files"]


def test_no_database_is_kept_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps 30 MB that it has freed; one for each piece was open all the time."""
    cap = SyntheticCapture(tmp_path, seconds=12, rate_hz=20)
    cap.sample(cap.add_session(), "active", "Lock:tuple", 0, 12)
    opened = []

    def counted() -> Any:
        opened.append(memory_database())
        return opened[-1]

    monkeypatch.setattr(evidence, "memory_database", counted)
    step = Load(5.0, "active sessions").look(cap.write())
    assert step is not None and step.values["waits: Lock"] == pytest.approx(1)
    assert len(opened) == 1
    with pytest.raises(Exception, match=r"[Cc]losed"):
        opened[0].execute("select 1")
