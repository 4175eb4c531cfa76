"""A window of a recorder: exactly the rows of its time, in numbers that hold over several pieces."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.gaps import gaps as gap_sentences
from leadline.capture.manifest import read_manifest, write_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.recorder import window as recorder_window
from leadline.recorder.times import window
from leadline.recorder.window import IDENTITY, JOINED, PROCESSES, SESSIONS, WHY_NOT_CUT, cut, take_window
from leadline.tables import all_tables
from recorded_pieces import TS_0, WALL_0, as_piece, begun_at

SUMS = """select pid, state, wait_event, round(sum(weight_s), 6) as seconds, count(*) as samples from session_sample
          where ts >= {lo} and ts < {hi} group by all order by all"""


def at(second: float) -> datetime:
    return datetime.fromtimestamp(WALL_0 / 1e9, UTC) + timedelta(seconds=second)


def load(cap: SyntheticCapture, *, extra: int = 0) -> None:
    """A blocker, its victim, and sessions that other pieces do not have, so that the same one has another number there."""
    for _ in range(extra):
        cap.sample(cap.add_session(pid=9000 + extra, start_s=1), "active", None, 1, 4)
    boss = cap.add_session(pid=4001, start_s=-3600 if not extra else -3600 - 11, application_name="batch")
    victim = cap.add_session(pid=4002, start_s=-3600 if not extra else -3600 - 11)
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 0, 10)
    cap.sample(victim, "active", "IO:DataFileRead", 0, 2)
    cap.lock_wait(victim, boss, 2, 8)
    cap.stat("pg_stat_database", "xact_commit", 100, 200)


def recorded(tmp_path: Path, pieces: int = 2) -> Path:
    """Pieces of ten seconds, each a second after the one before has ended."""
    directory = tmp_path / "rec"
    for number in range(pieces):
        with begun_at(11 * number):
            made = SyntheticCapture(tmp_path, seconds=10)
            load(made, extra=number)
            as_piece(made, directory, number + 1, 11 * number)
    return directory


def sums(capture: Capture, lo: float, hi: float) -> list[dict[str, Any]]:
    return capture.rows(SUMS.format(lo=TS_0 + round(lo * 1e9), hi=TS_0 + round(hi * 1e9)))


def being_written(piece: Path) -> None:
    manifest = read_manifest(piece)
    manifest.status, manifest.clock.ts_to = "recording", None
    write_manifest(piece, manifest)


def opened(path: Path) -> closing[Capture]:
    return closing(open_capture(path))


def test_a_window_in_one_piece_has_its_rows_and_no_others(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    cut = take_window(directory, at(1.505), at(7.255), tmp_path / "cut")
    [first, _] = sorted(directory.iterdir())
    with opened(first) as whole, opened(cut) as part:
        assert sums(part, 0, 100) == sums(whole, 1.505, 7.255) != []
        for table in ("lock_wait", "tick"):
            of_window = f"select * from {table} where ts >= {TS_0 + 1_505_000_000} and ts < {TS_0 + 7_255_000_000} order by all"
            assert part.rows(f"select * from {table} order by all") == whole.rows(of_window) != []
        assert part.rows("select ts_from, ts_to from capture") == [{"ts_from": TS_0 + 1_505_000_000, "ts_to": TS_0 + 7_255_000_000}]
        assert part.manifest.status == "complete" and part.manifest.probes["sessions"].loss["ticks_taken"] == 575
        assert part.rows("from server_stat") == [] and "begin and the end" in (part.unavailable("server_stat") or "")
    assert run(["show", str(cut)]) == 0 and run(["findings", str(cut)]) in (0, 1)


def test_a_part_of_any_capture_has_the_tables_with_a_time_in_each_row(tmp_path: Path) -> None:
    made = SyntheticCapture(tmp_path, seconds=10)
    load(made)
    made.add("block_io", ts=made.ts(3))
    whole_path = made.write()
    part_path = cut(whole_path, TS_0 + 1_505_000_000, TS_0 + 7_255_000_000, tmp_path / "part.leadline")
    with opened(whole_path) as whole, opened(part_path) as part:
        assert sums(part, 0, 100) == sums(whole, 1.505, 7.255) != []
        assert part.rows("select ts_from, ts_to from capture") == [{"ts_from": TS_0 + 1_505_000_000, "ts_to": TS_0 + 7_255_000_000}]
        assert whole.unavailable("block_io") is None and part.unavailable("block_io") == WHY_NOT_CUT and part.rows("from block_io") == []
    for first, last in ((-5, 0), (10, 20), (3, 3)):
        with pytest.raises(LeadlineError, match="nothing was recorded in this window"):
            cut(whole_path, TS_0 + first * 10**9, TS_0 + last * 10**9, tmp_path / "none.leadline")
    assert not (tmp_path / "none.leadline").exists()


def test_a_whole_piece_is_the_same_in_every_table(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    [first, _] = sorted(directory.iterdir())
    cut = take_window(directory, at(-5), at(10.5), tmp_path / "cut")
    with opened(first) as whole, opened(cut) as part:
        for table in (t for t in all_tables().values() if t.kind == "table"):
            assert part.rows(f"select * from {table.name} order by all") == whole.rows(f"select * from {table.name} order by all"), (
                table.name
            )
        assert part.scalar("select count(*) from server_stat") > 0


def test_a_window_over_two_pieces_has_the_sums_of_both_and_names_the_gap(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    cut = take_window(directory, at(5), at(18), tmp_path / "cut")
    with opened(cut) as part:
        found: dict[Any, float] = {}
        for piece, lo, hi in zip(sorted(directory.iterdir()), (5, 11), (10, 18)):
            with opened(piece) as whole:
                for row in sums(whole, lo, hi):
                    key = row["pid"], row["state"], row["wait_event"]
                    found[key] = round(found.get(key, 0) + row["seconds"], 6)
        assert {(row["pid"], row["state"], row["wait_event"]): row["seconds"] for row in sums(part, 0, 100)} == found
        # The same session has one number, though its number differs in the pieces; and who blocks whom is still right.
        assert part.rows("select pid, count(distinct session_id) as n from session_sample group by pid having n > 1") == []
        assert part.rows("select distinct w.pid, b.pid as by_pid from lock_wait l join session w using (session_id) "
                         "join session b on b.session_id = l.blocker_session_id") == [{"pid": 4002, "by_pid": 4001}]  # fmt: skip
        assert part.scalar("select count(*) - count(distinct tick) from tick") == 0
        [gap] = part.rows("from server_gap")
        assert (gap["ts_from"], gap["ts_to"], gap["cause"]) == (TS_0 + 10**10, TS_0 + 11 * 10**9, "recorder")
        assert part.scalar("select sum(missed) from tick") == 100, "a second of passes at 100 Hz was not seen"
        assert "1.0 s were not seen" in gap_sentences(part)[0]
        assert part.rows("from server_stat") == []
    assert run(["show", str(cut)]) == 0 and run(["findings", str(cut)]) in (0, 1)


def test_all_pieces_together_count_from_the_first_reading_to_the_last(tmp_path: Path) -> None:
    cut = take_window(recorded(tmp_path, 3), at(-1), at(99), tmp_path / "cut")
    with opened(cut) as part:
        assert part.rows("select before, after, dt_s > 30 as long from server_stat_delta") == [{"before": 100, "after": 200, "long": True}]
        assert part.scalar("select count(*) from server_gap") == 2
        assert part.rows("select count(*) as n from setting group by name having n > 1") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"boot": "another"}, "the host was started anew"),
        ({"tier": "sql"}, "sampled in another way"),
        ({"version_num": 170002}, "of another version"),
        ({"table": "syscall"}, "table syscall"),
    ],
)
def test_pieces_that_do_not_fit_together_are_not_joined(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    from leadline.capture.manifest import read_manifest, write_manifest

    directory = recorded(tmp_path)
    second = sorted(directory.iterdir())[1]
    manifest = read_manifest(second)
    if "boot" in change:
        manifest.options["recorder"]["boot"] = change["boot"]
    if "tier" in change:
        manifest.probes["sessions"].tier = change["tier"]
    if "version_num" in change:
        manifest.target.version_num = change["version_num"]
    if "table" in change:
        shutil.copytree(second / "tick", second / change["table"])
    write_manifest(second, manifest)
    with pytest.raises(LeadlineError) as e:
        take_window(directory, at(5), at(18), tmp_path / "cut")
    assert said in e.value.detail and all(piece.name in e.value.detail for piece in directory.iterdir())
    assert not (tmp_path / "cut.leadline").exists()


def test_a_window_without_rows_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError) as e:
        take_window(recorded(tmp_path), at(100), at(200), tmp_path / "cut")
    assert e.value.kind == "not_found" and "2025-10-09" in e.value.detail


def test_every_column_that_is_numbered_per_capture_is_numbered_again() -> None:
    """A table that is joined may have no other number of this capture: a new one must be put into SESSIONS or PROCESSES first."""
    for name in JOINED:
        table = all_tables()[name]
        for column in table.columns:
            per_capture = "this capture" in column.meaning or column.meaning.startswith("Joins ")
            known = column.name in SESSIONS | PROCESSES | {"tick"} | {"statement_id"}  # the last is the same in all captures
            assert known >= per_capture, (name, column.name, column.meaning)
    for name, (number, keys, known_by) in IDENTITY.items():
        assert {number, *keys, known_by} <= {column.name for column in all_tables()[name].columns}


NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC).astimezone()


@pytest.mark.parametrize(
    ("text", "seconds_before_now"),
    [("now", 0), ("now-10m", 600), ("2026-11-28T11:00:00+00:00", 3600), ("2026-11-28T12:00:00+01:00", 3600), ("2026-11-28T10:00Z", 7200)],
)
def test_times(text: str, seconds_before_now: float) -> None:
    assert (NOW - window(text, "2026-11-28T13:00Z", NOW)[0]).total_seconds() == seconds_before_now


def test_a_time_of_day_is_the_last_one_and_its_end_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert [t.isoformat() for t in window("23:50", "00:10", NOW)] == ["2026-11-27T23:50:00+01:00", "2026-11-28T00:10:00+01:00"]
        assert window("03:00", "03:10", NOW)[0].isoformat() == "2026-11-28T03:00:00+01:00"
        assert window("2026-07-01T03:00", "now", NOW)[0].isoformat() == "2026-07-01T03:00:00+02:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("start", "end"), [("yesterday", "now"), ("25:00", "now"), ("now", "now-1m"), ("now-10", "now"), ("3", "now")])
def test_what_is_no_window_is_refused(start: str, end: str) -> None:
    with pytest.raises(LeadlineError) as e:
        window(start, end, NOW)
    assert e.value.kind == "usage"


def test_a_segment_that_grows_meanwhile_does_not_reach_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = recorded(tmp_path, 2)
    *_, running = sorted(directory.iterdir())
    being_written(running)
    expected = take_window(directory, at(5), at(18), tmp_path / "before")
    read = recorder_window._read

    def damaged_meanwhile(*given: Any) -> None:
        for segment in running.glob("*/*.parquet"):  # a file whose name was taken is written anew
            segment.write_bytes(b"PAR1")
        read(*given)

    monkeypatch.setattr(recorder_window, "_read", damaged_meanwhile)
    found = take_window(directory, at(5), at(18), tmp_path / "meanwhile")
    with opened(expected) as before, opened(found) as after:
        assert sums(after, 5, 18) == sums(before, 5, 18) != []


def test_the_copy_lies_where_the_window_will_and_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service with ProtectSystem=strict may write only there."""
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    directory = recorded(tmp_path, 1)
    being_written(*directory.iterdir())
    take_window(directory, at(1), at(2), tmp_path / "some" / "where")
    assert [entry.name for entry in (tmp_path / "some").iterdir()] == ["where.leadline"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["rec", "some"]
    with pytest.raises(LeadlineError, match="cannot write the window") as refused:
        take_window(directory, at(1), at(2), Path("/proc/where"))
    assert refused.value.where == "/proc"


def test_a_piece_that_cannot_be_copied_is_one_error(tmp_path: Path) -> None:
    directory = recorded(tmp_path, 1)
    (running,) = directory.iterdir()
    being_written(running)
    shutil.rmtree(running / "tick")
    (running / "tick").mkdir()
    (running / "tick" / "000001.parquet").mkdir()
    with pytest.raises(LeadlineError, match="the piece that is being written cannot be copied"):
        take_window(directory, at(1), at(2), tmp_path / "cut")
