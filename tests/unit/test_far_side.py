"""What stands for a leadline on another host: how it is named, its clock, and its capture as a stream."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from leadline.capture import carried
from leadline.errors import LeadlineError
from leadline.probes.other_clock import Exchange, OtherClock, Reading
from leadline.probes.ssh import Place

MS = 1_000_000
ENDS = (512 + 2, 1024 + 512 + 20_000, 1024 + 20_992 + 512 + 3000)  # of files in the stream: each after a header, filled up to 512 bytes


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ssh:db2", Place("db2")),
        ("ssh://db2", Place("db2")),
        ("ssh:app@db2:2222", Place("db2", "app", "2222")),
        ("ssh:db2/", Place("db2")),
        ("ssh:db2/var/lib/pg/16", Place("db2", server="/var/lib/pg/16")),
        ("ssh:db2/postgresql://app:pw@localhost:5433/shop", Place("db2", server="postgresql://app:pw@localhost:5433/shop")),
        ("ssh:db2/host=/run/postgresql user=app", Place("db2", server="host=/run/postgresql user=app")),
        ("ssh:[2001:db8::1]:22/srv/pg", Place("2001:db8::1", port="22", server="/srv/pg")),
    ],
)
def test_places(text: str, expected: Place) -> None:
    assert Place.of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ssh:",
        "ssh:-oProxyCommand=x",
        "ssh:-l@db2",
        "ssh:a b",
        "ssh:db2;x",
        "ssh:db2:0",
        "ssh:db2:70000",
        "ssh:db2:x",
        "ssh:$(x)",
        "ssh:a@b@c",
    ],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(LeadlineError, match="cannot parse the place"):
        Place.of(text)


def test_the_command_has_no_secret_and_nothing_for_a_shell() -> None:
    command = Place.of("ssh:app@db2:2222/postgresql://app:s3cret@localhost/shop").command("--answer-over-ssh")
    assert command[0] == "ssh" and command[-3:] == ["--", "db2", "leadline --answer-over-ssh"]
    assert command[-7:-3] == ["-l", "app", "-p", "2222"] and "BatchMode=yes" in command
    assert "s3cret" not in " ".join(command) and str(Place.of("ssh:app@db2:2222/host=x password=s3cret")) == "ssh:app@db2:2222"


def exchanges(at_ns: int, offset_ns: int, drift: float, count: int, seed: int) -> list[Exchange]:
    """Between clocks that are offset_ns apart at 0 and then drift; the ways take from 0.1 ms on, and are seldom alike."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        there, back, work = (round(MS * (0.1 + chance.expovariate(2))) for _ in range(3))
        theirs = at_ns + there + offset_ns + round(drift * (at_ns + there))
        found.append(Exchange(at_ns, theirs, theirs + work, at_ns + there + work + back))
        at_ns += there + work + back
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("offset_ns, drift", [(0, 0.0), (3_600_000 * MS, 20e-6), (-5 * MS, -400e-6)])
def test_the_error_of_the_clock_holds(offset_ns: int, drift: float, seed: int) -> None:
    window = 60_000 * MS
    first, last = exchanges(0, offset_ns, drift, 50, seed), exchanges(window, offset_ns, drift, 50, seed + 100)
    between = [Reading.of(exchanges(n * 2000 * MS, offset_ns, drift, 10, seed + 200 + n)) for n in range(1, 30)]
    clock = OtherClock(Reading.of(first), Reading.of(last), between)
    assert clock.error_ns < 1 * MS
    for at in range(0, window, 1000 * MS):
        theirs = at + offset_ns + round(drift * at)
        assert abs(clock.ours(theirs) - at) <= clock.error_ns + 100
    assert abs(clock.drift_ppm - drift * 1e6) <= clock.drift_error_ppm + 0.2
    assert Reading.of(first).error_ns <= sorted(one.round_trip_ns for one in first)[4] // 2 + 1


def test_a_clock_that_did_not_drift_evenly_has_a_larger_error() -> None:
    first, last = Reading(0, 0, 1000), Reading(60_000 * MS, 0, 1000)
    assert OtherClock(first, last).error_ns == 1000
    assert OtherClock(first, last, [Reading(30_000 * MS, 2 * MS, 500)]).error_ns == 1000 + 2 * MS - 500


def a_capture(folder: Path) -> Path:
    (folder / "session").mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "views.sql").write_text("x" * 3000)
    (folder / "session" / "000001.parquet").write_bytes(b"p" * 20_000)
    (folder / ".reserve").write_bytes(b"0")
    (folder / "session" / "000002.parquet.tmp").write_bytes(b"0")
    return folder


def test_a_capture_that_comes_whole(tmp_path: Path) -> None:
    stream = io.BytesIO()
    carried.send(a_capture(tmp_path / "there"), stream)
    home = tmp_path / "home"
    home.mkdir()
    assert carried.receive(io.BytesIO(stream.getvalue()), home) == (3, "")
    files = {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert files == {"manifest.json": b"{}", "views.sql": b"x" * 3000, "session/000001.parquet": b"p" * 20_000}


@pytest.mark.parametrize("part", range(0, 27_000, 509))
def test_a_stream_that_ends_early_leaves_whole_files(tmp_path: Path, part: int) -> None:
    stream = io.BytesIO()
    carried.send(a_capture(tmp_path / "there"), stream)
    home = tmp_path / "home"
    home.mkdir()
    came, _ = carried.receive(io.BytesIO(stream.getvalue()[:part]), home)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) == came
    assert all(path.read_bytes() == (tmp_path / "there" / path.relative_to(home)).read_bytes() for path in files)
    assert came == sum(part >= end for end in ENDS)


@pytest.mark.parametrize("name", ["../x.json", "/etc/x.json", "session/../../x.json", ".ssh/x.json", "a/b/c.json", "x.sh"])
def test_what_is_no_file_of_a_capture_is_not_written(tmp_path: Path, name: str) -> None:
    import tarfile

    stream, home = io.BytesIO(), tmp_path / "home"
    home.mkdir()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.addfile(tarfile.TarInfo(name))
    came, why = carried.receive(io.BytesIO(stream.getvalue()), home)
    assert came == 0 and "no file of a capture" in why and list(tmp_path.rglob("*")) == [home]
