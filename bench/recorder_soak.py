"""Records a private server while much goes wrong, and then checks what was recorded. Needs root: for a small disk of its own.

    python bench/recorder_soak.py > soak.json                        40 minutes, 100 kills
    python bench/recorder_soak.py --minutes 3 --kills 6              does everything work?

Two recorders of one server with three loads. `killed` is ended by SIGKILL at random moments, one time in three with the processes that work
for it, and is begun again. `steady` is not, so that its memory can be followed. Both see a restart of the server, a crash (SIGKILL of
the postmaster), a disk with less room than --keep-free, one without any, and one without inodes. Their directories are watched for their
limits; each piece is copied as soon as nothing more comes into it, so that coarse pieces can be compared with what they were made of.

Output: JSON, and the problems on stderr. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import limit_databases, open_capture
from leadline.cli import run as leadline
from leadline.engines.postgres.postmaster import data_dir_of
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.errors import LeadlineError
from leadline.host.proc import all_pids
from leadline.recorder.moments import as_utc
from leadline.recorder.pieces import NAME, Piece, Pieces, gaps, read_piece, used_bytes
from leadline.recorder.state import read_state
from leadline.recorder.status import status
from leadline.units import MB
from record import read_environment, start_as_installed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from level_sums import Sums, sums_of, total

SETTINGS: dict[str, object] = {
    "max_connections": 60, "shared_buffers": "64MB", "max_wal_size": "512MB", "work_mem": "64kB", "log_min_messages": "panic",
}  # fmt: skip
DISK, INODES, MAX_SIZE, KEEP_FREE = 240 * MB, 60_000, 32 * MB, 20 * MB
LOOK_S = 1.0
AWAY_S = 5.0  # how long a server is, when it restarts or was killed
LATE_S = 60.0  # by which a piece may pass its age: while the recorder waits, it looks each 30 s
LONG_GAP_S = 5.0  # between two pieces
MINUTE_NS = 60 * 10**9
PLACES = re.compile(r"(?<![\w.])/[^\s\"]*/")  # in messages: temporary directories


# -- the server and its loads ----------------------------------------------------------------------------------------------


def shop(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("update account set v = v + 1 where id = 1 + (random() * 9999)::int")
    db.execute("select count(*) from account where id between 100 and 600")
    stop.wait(0.05)


def hot_row(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.transaction():
        db.execute("update account set v = v + 1 where id = 1")
        db.execute("select pg_sleep(0.02)")
    stop.wait(0.1)


def report(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("select count(*) from (select * from account order by t, id desc offset 10) x")
    stop.wait(0.5)


LOADS: dict[str, tuple[Callable[[psycopg.Connection[Any], threading.Event], None], int]] = {
    "shop": (shop, 6), "counter": (hot_row, 4), "reports": (report, 2),
}  # fmt: skip


@contextmanager
def loads(server: PrivateServer) -> Iterator[Counter[str]]:
    """Gives how many steps each load has made; a session that is lost connects again."""
    stop, steps = threading.Event(), Counter[str]()

    def client(name: str, step: Callable[[psycopg.Connection[Any], threading.Event], None]) -> None:
        while not stop.is_set():
            with suppress(psycopg.Error), psycopg.connect(server.dsn, autocommit=True, application_name=name) as db:
                while not stop.is_set():
                    step(db, stop)
                    steps[name] += 1
            stop.wait(0.5)

    threads = [threading.Thread(target=client, args=(name, step), daemon=True) for name, (step, of) in LOADS.items() for _ in range(of)]
    for thread in threads:
        thread.start()
    try:
        yield steps
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)


def restart(server: PrivateServer) -> None:
    server.stop()
    time.sleep(AWAY_S)
    server.start()


def crash(server: PrivateServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    data = str(server.data_dir)
    server.stop()
    deadline = time.monotonic() + 60
    while any(data_dir_of(pid) == data for pid in all_pids()):
        if time.monotonic() > deadline:
            raise TimeoutError("processes of the killed server do not end")
        time.sleep(0.1)
    time.sleep(AWAY_S)
    server.start()


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},nr_inodes={INODES},mode=0700", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def fill(disk: Path, left: int) -> None:
    """Takes the room of the disk but for `left` bytes."""
    found = os.statvfs(disk)
    with open(disk / "filler", "ab") as file:
        if (size := found.f_bavail * found.f_frsize - left) > 0:
            os.posix_fallocate(file.fileno(), file.tell(), size)


def fill_inodes(disk: Path) -> None:
    """Until no file can be made."""
    (disk / "files").mkdir()
    with suppress(OSError):
        for n in range(INODES):
            (disk / "files" / str(n)).touch()


def clear(disk: Path) -> None:
    (disk / "filler").unlink(missing_ok=True)
    shutil.rmtree(disk / "files", ignore_errors=True)


# -- one recorder ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """Of a process."""

    at_s: float
    rss_mb: float
    files: int
    threads: int


@dataclass
class Watched:
    """A recorder, and what was seen of it. doings: the changes of what it said that it does."""

    name: str
    to: Path
    words: Sequence[str]
    keep_s: float
    archive: Path
    messages: Path
    process: subprocess.Popen[bytes] | None = None
    kills: int = 0
    doings: list[tuple[float, str]] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    peak_bytes: int = 0
    latest_s: float = 0.0  # by which the oldest piece passed its age, at most
    cpu_s: float = 0.0
    archived: dict[str, Future[Examined]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)  # replaced or removed before they were copied

    def begin(self) -> None:
        with open(self.messages, "ab") as file:
            command = [sys.executable, "-m", "leadline", "record", *self.words]
            self.process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def kill(self, children: bool) -> None:
        assert self.process is not None
        pids = [self.process.pid]
        if children:
            self.process.send_signal(signal.SIGSTOP)
            with suppress(OSError):
                os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
                pids += map(int, Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.kills += 1

    def end(self) -> int:
        assert self.process is not None
        self.cpu_s = cpu_s(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def look(self, now_s: float) -> None:
        """At its limits, at its process, and at what it says."""
        with suppress(FileNotFoundError, LeadlineError):
            state = read_state(self.to)
            if state is not None and (not self.doings or self.doings[-1][1] != state.doing):
                self.doings.append((now_s, state.doing))
        if not self.to.is_dir():
            return
        names = [entry for entry in self.to.iterdir() if ".leadline" in entry.name]
        self.peak_bytes = max(self.peak_bytes, sum(map(used_bytes, names)))
        found = [piece for path in names if NAME.fullmatch(path.name) and (piece := read_piece(path)).ts_to is not None]
        if found and self.doings and self.doings[-1][1] == "recording":
            self.latest_s = max(self.latest_s, time.time() - self.keep_s - min(piece.wall_to for piece in found) / 1e9)

    def measure(self, now_s: float) -> None:
        assert self.process is not None
        place = Path(f"/proc/{self.process.pid}")
        with suppress(OSError):
            fields = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
            self.sizes.append(Size(
                now_s, int(fields["VmRSS"].split()[0]) / 1024, len(list((place / "fd").iterdir())), int(fields["Threads"]),
            ))  # fmt: skip

    def copy(self, examine_it: Callable[[Path, bool], Future[Examined]]) -> None:
        """Pieces into which nothing more comes: those that have ended, and those that a later one follows."""
        names = [path.name for path in sorted(self.to.glob("*.leadline"))] if self.to.is_dir() else []
        newest = max((name for name in names if ".every" not in name), default="")
        for name in names:
            if name in self.archived or name in self.lost:
                continue
            part = self.archive / f"{name}.part"
            try:
                if name == newest and read_manifest(self.to / name).status == "recording":
                    continue
                shutil.copytree(self.to / name, part)
                if not (self.to / name).exists():  # else a table may be missing
                    raise FileNotFoundError(name)
            except (OSError, shutil.Error, LeadlineError):
                shutil.rmtree(part, ignore_errors=True)
                if name != newest:
                    self.lost.append(name)
                continue
            part.rename(self.archive / name)
            self.archived[name] = examine_it(self.archive / name, read_piece(self.archive / name).status != "complete")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- what a piece has ------------------------------------------------------------------------------------------------------


@dataclass
class Examined:
    """sums: None of a piece without a pass. minutes: of the wall clock, of which it has passes. away: ns from and to of server_gap."""

    piece: Piece
    sums: Sums | None = None
    minutes: set[int] = field(default_factory=set)
    away: list[tuple[int, int]] = field(default_factory=list)
    error: str = ""


def examine(path: Path, show: bool) -> Examined:
    """show: whether `leadline show` is tried, too."""
    piece = read_piece(path)
    found = Examined(piece, error=piece.error if piece.status == "damaged" else "")
    try:
        with closing(open_capture(path)) as capture:
            if piece.ts_from is None or piece.ts_to is None or capture.unavailable("tick"):  # ended before its first pass was written
                return found
            shift, span_ns = piece.wall_from - piece.ts_from, piece.span_s * 10**9
            for row in capture.rows(f"select greatest(ts - {span_ns}, {piece.ts_from}) + {shift} as low, ts + {shift} as high from tick"):
                found.minutes |= set(range(row["low"] // MINUTE_NS, row["high"] // MINUTE_NS + 1))
            if capture.unavailable("server_gap") is None:
                for row in capture.rows(f"select ts_from, coalesce(ts_to, {piece.ts_to}) as ts_to from server_gap"):
                    found.away.append((row["ts_from"] + shift, row["ts_to"] + shift))
        found.sums = sums_of(path)
        if show:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                if leadline(["show", str(path), "--json"]) != 0:
                    found.error = said.getvalue() or "show failed"
    except Exception as e:  # whatever it is, it is what this program looks for
        found.error = repr(e)
    return found


def in_background() -> None:
    os.nice(15)
    limit_databases("400MB", 1)


# -- what is checked -------------------------------------------------------------------------------------------------------


def unnamed_minutes(found: Sequence[Examined], pieces: Sequence[Piece]) -> list[str]:
    """Minutes of the pieces without a pass and without a gap that says why."""
    told = [piece for piece in pieces if piece.ts_from is not None]
    if not told:
        return ["nothing was recorded"]
    minutes = set[int]().union(*(one.minutes for one in found))
    away = [span for one in found for span in one.away]
    away += [(gap.wall_from, gap.wall_from + round(gap.seconds * 1e9)) for gap in gaps(pieces) if not gap.switch]
    for low, high in away:
        minutes |= set(range(low // MINUTE_NS, high // MINUTE_NS + 1))
    every = range(min(p.wall_from for p in told) // MINUTE_NS, max(p.wall_to for p in told) // MINUTE_NS + 1)
    return [as_utc(minute * MINUTE_NS) for minute in every if minute not in minutes]


def different(coarse: Examined, found: Sequence[Examined]) -> dict[str, Any] | None:
    """Whether the sums of a coarse piece are those of the pieces that it was made of; None without them."""
    piece = coarse.piece
    of = [one for one in found if one.piece.span_s < piece.span_s and piece.number <= one.piece.number and one.piece.last <= piece.last]
    levels = {span_s: [one for one in of if one.piece.span_s == span_s] for span_s in {one.piece.span_s for one in of}}
    out: dict[str, Any] = {}
    for span_s, finer in sorted(levels.items()):
        numbers = [n for one in finer for n in range(one.piece.number, one.piece.last + 1)]
        if numbers != list(range(piece.number, piece.last + 1)) or any(one.sums is None for one in [coarse, *finer]):
            continue
        here, there = total([one.sums for one in finer if one.sums]), total([coarse.sums] if coarse.sums else [])
        out[f"{span_s} s"] = [
            f"{what} {key}: {values} became {there[what].get(key)}"
            for what in ("samples", "time", "counters") for key, values in here[what].items() if there[what].get(key) != values
        ] + [f"{what}: {here[what]} became {there[what]}" for what in here if here[what] != there[what] and what == "passes"]
    return out or None


def growth(sizes: Sequence[Size], begin_s: float) -> dict[str, Any]:
    """Of a process after its first minutes: medians of thirds of the time, and the most."""
    late = [one for one in sizes if one.at_s >= begin_s]
    thirds = [late[n * len(late) // 3 : (n + 1) * len(late) // 3] for n in range(3)]
    if not all(thirds):
        return {}
    return {
        "rss_mb": [round(statistics.median(one.rss_mb for one in third), 1) for third in thirds],
        "rss_mb_most": round(max(one.rss_mb for one in sizes), 1),
        "files": [statistics.median(one.files for one in third) for third in thirds],
        "threads": [statistics.median(one.threads for one in third) for third in thirds],
    }


def judge(one: Watched, minutes_s: float) -> dict[str, Any]:
    problems, examined = list[str](), {name: future.result() for name, future in one.archived.items()}
    pieces = Pieces(one.to)
    here = pieces.read()
    last = [examine(piece.path, show=False) for piece in here if piece.name not in examined]
    now = [examined[piece.name] for piece in here if piece.name in examined] + last
    ever = sorted(examined.values(), key=lambda e: (e.piece.span_s, e.piece.number))
    fine = [e for e in ever if not e.piece.span_s and e.piece.number] + [e for e in last if not e.piece.span_s]
    problems += [f"{e.piece.name} cannot be read: {e.error}" for e in [*ever, *last] if e.error]
    problems += [f"{at}: neither rows nor a gap, of what is there" for at in unnamed_minutes(now, here)]
    problems += [f"{at}: neither rows nor a gap, of what was there" for at in unnamed_minutes(fine, [e.piece for e in fine])]
    between = gaps([e.piece for e in fine])
    problems += [f"a gap of {gap.seconds:.1f} s without a reason" for gap in between if gap.switch and gap.seconds > LONG_GAP_S]
    compared, without = Counter[str](), list[str]()
    for coarse in [e for e in [*ever, *last] if e.piece.span_s]:
        found = different(coarse, ever)
        if found is None:
            without.append(coarse.piece.name)
        for level, lines in (found or {}).items():
            compared[f"{coarse.piece.span_s} s of {level}"] += 1
            problems += [f"{coarse.piece.name} of {level}: {line}" for line in lines[:3]]
    if one.peak_bytes > MAX_SIZE:
        problems.append(f"the pieces took {one.peak_bytes / MB:.1f} MB of {MAX_SIZE // MB}")
    if one.latest_s > LATE_S:
        problems.append(f"a piece passed its age by {one.latest_s:.0f} s")
    said = one.messages.read_text(errors="replace")
    problems += ["a traceback was printed"] * said.count("Traceback")
    found = status(one.to)
    problems += [f"left in the directory: {name}" for name in found["others"]]
    problems += [f"{span}: {made['failed']} could not be made" for span, made in (found["coarser"] or {}).items() if made.get("failed")]
    memory = growth(one.sizes, min(300.0, minutes_s / 4))
    if one.kills == 0 and memory:
        first, _, third = memory["rss_mb"]
        if third > 1.05 * first + 2:
            problems.append(f"its memory grew from {first} to {third} MB")
        if memory["rss_mb_most"] > 150:
            problems.append(f"it had {memory['rss_mb_most']} MB of memory")
        if memory["files"][2] > memory["files"][0] + 2:
            problems.append(f"its open files grew from {memory['files'][0]} to {memory['files'][2]}")
    why = Counter[str]()
    for gap in between:
        why[gap.why] += 1
    return {
        "problems": problems, "kills": one.kills, "pieces_made": len(fine), "pieces_without_a_pass": sum(e.sums is None for e in fine),
        "pieces_there": dict(Counter(f"{piece.span_s} s" for piece in here)), "pieces_lost_to_the_copy": one.lost,
        "coarse_compared": dict(compared), "coarse_not_compared": without, "gaps": dict(why),
        "longest_gaps": [[as_utc(g.wall_from), round(g.seconds, 1), g.why] for g in sorted(between, key=lambda g: -g.seconds)[:12]],
        "switch_longest_s": round(max((g.seconds for g in between if g.switch), default=0), 2),
        "peak_mb": round(one.peak_bytes / MB, 2), "past_its_age_s": round(max(0.0, one.latest_s), 1), "memory": memory,
        "cpu_percent": round(100 * one.cpu_s / minutes_s, 2) if one.kills == 0 else None, "doings": one.doings,
        "removed": found["removed"], "coarser": found["coarser"], "said": Counter(PLACES.sub(".../", said).splitlines()).most_common(20),
        "findings": {k: v for k, v in (found["findings"] or {}).items() if k not in ("events", "open")}, "detail": found["detail"],
    }  # fmt: skip


# -- the run ---------------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, server: PrivateServer, work: Path, disk: Path, pool: ProcessPoolExecutor) -> dict[str, Any]:
    lasts_s, rng = options.minutes * 60, random.Random(options.seed)
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("create table account as select n as id, 0 as v, md5(n::text) as t from generate_series(1, 20000) n")
        db.execute("create unique index on account (id)")

    def watched(name: str, keep_s: float, *words: object) -> Watched:
        archive = work / f"archive-{name}"
        archive.mkdir()
        common = [server.dsn, f"--to={disk / name}", f"--max-size={MAX_SIZE // MB}MB", f"--keep-free={KEEP_FREE // MB}MB"]
        return Watched(name, disk / name, [*common, f"--keep={keep_s:.0f}s", *map(str, words)], keep_s, archive, work / f"{name}.txt")

    part = lasts_s / 40
    both = [
        watched("killed", 20 * part, "--piece=10s", f"--keep-detail={3 * part:.0f}s", f"--keep-seconds={9 * part:.0f}s", "--no-baseline"),
        watched("steady", 60 * part, "--piece=20s", f"--keep-detail={15 * part:.0f}s", f"--keep-seconds={25 * part:.0f}s",
                "--detail-for=10s", "--detail-budget=1m", "--detail-max-size=64MB"),
    ]  # fmt: skip
    killed = both[0]
    todo: list[tuple[float, str, Callable[[], None]]] = [
        (0.2 * lasts_s, "the server restarts", lambda: restart(server)),
        (0.35 * lasts_s, "the server crashes", lambda: crash(server)),
        (0.5 * lasts_s, "half of --keep-free is free", lambda: fill(disk, KEEP_FREE // 2)),
        (0.5 * lasts_s + 1.5 * part, "there is room", lambda: clear(disk)),
        (0.62 * lasts_s, "nothing is free", lambda: fill(disk, 0)),
        (0.62 * lasts_s + 1.5 * part, "there is room", lambda: clear(disk)),
        (0.75 * lasts_s, "no inode is free", lambda: fill_inodes(disk)),
        (0.75 * lasts_s + 1.5 * part, "there is room", lambda: clear(disk)),
    ]
    for at_s in sorted(rng.uniform(15, 0.93 * lasts_s) for _ in range(options.kills)):
        children = rng.random() < 1 / 3
        todo.append((at_s, "kill", lambda children=children: (killed.kill(children), killed.begin())))  # type: ignore[misc]
    todo.sort(key=lambda one: one[0])
    happened = []
    with ExitStack() as stack:
        steps = stack.enter_context(loads(server))
        for one in both:
            one.begin()
            stack.callback(lambda one=one: one.process and one.process.poll() is None and one.process.kill())
        began, looked, copied = time.monotonic(), 0.0, 0.0
        while (now_s := time.monotonic() - began) < lasts_s:
            if todo and todo[0][0] <= now_s:
                _, what, do = todo.pop(0)
                if what != "kill":
                    happened.append([as_utc(time.time_ns()), what])
                    print(f"{now_s:7.1f} s: {what}", file=sys.stderr, flush=True)
                do()
            if now_s - looked >= LOOK_S:
                looked = now_s
                for one in both:
                    one.look(now_s)
                    one.measure(now_s)
            if now_s - copied >= 2 * LOOK_S:
                copied = now_s
                for one in both:
                    one.copy(lambda path, show: pool.submit(examine, path, show))
            time.sleep(0.05)
        codes = {one.name: one.end() for one in both}
        for one in both:
            one.copy(lambda path, show: pool.submit(examine, path, show))
    print(f"{time.monotonic() - began:7.1f} s: the recorders have ended; what they recorded is checked", file=sys.stderr, flush=True)
    result: dict[str, Any] = {one.name: judge(one, lasts_s) for one in both}
    for name, code in codes.items():
        if code != 0:
            result[name]["problems"].append(f"it ended with code {code}")
    return {"minutes": options.minutes, "seed": options.seed, "steps": dict(steps), "happened": happened} | result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40, help="shorter ones keep less, in proportion")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pg-bin", type=Path)
    parser.add_argument("--keep", type=Path, help="an empty directory that gets what was recorded; it stays")
    options = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    binaries = find_binaries(options.pg_bin)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        os.environ["LEADLINE_BOOK"] = str(work / "book")
        with (
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), in_background) as pool,
            PrivateServer(binaries.bin_dir, settings=SETTINGS) as server,
            small_disk(work / "disk") as disk,
        ):
            try:
                result = run(options, server, work, disk, pool)
            finally:
                if options.keep:
                    for place in (*work.glob("archive-*"), *work.glob("*.txt"), *disk.glob("*")):
                        target = options.keep / place.name
                        shutil.copytree(place, target) if place.is_dir() else shutil.copy(place, target)
    print(json.dumps({"environment": environment} | result, indent=1, ensure_ascii=False))
    problems = [f"{one}: {problem}" for one in ("killed", "steady") for problem in result[one]["problems"]]
    print("\n".join(problems) or "no problem", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
