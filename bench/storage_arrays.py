"""Real RAID arrays against their forecast: btrfs over loop devices, each of which is held to a number of requests a second.

    sudo python bench/storage_arrays.py                  # forecast, sealed; then six layouts, two loads, 20 s each; then the score
    sudo python bench/storage_arrays.py --only 6xR1 --seconds 5
    sudo python bench/storage_arrays.py --clean          # what a killed run has left

Needs root, btrfs-progs and the block-I/O controller of cgroup v1. Devices, mounts and limits are removed at the end; the next run removes
those of one that was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTROLLER = Path("/sys/fs/cgroup/blkio")
LIMITS = [CONTROLLER / f"blkio.throttle.{kind}_iops_device" for kind in ("read", "write")]
DRIVES, DRIVE_MB, LUN_MB = 12, 900, 384
# What is known of btrfs before anything is measured. A read takes the copy of the thread's number. A write to a part of a RAID 6 stripe
# reads all chunks of it, parity too, whole, unless it is among the last 1,024 of the file system; then it writes data and both parities.
# Files are written in place (nodatacow). The limit of the kernel counts reads and writes apart; what may pass in 100 ms passes at the begin
# of these, with what the 100 ms before have left. A request that passes takes 0.06 ms, as measured without the limit.
DRIVE = """[drive]
kind = "limited"
capacity_gb = {capacity}
reads_per_s = {limit}
writes_per_s = {limit}
slice_ms = 100
latency_ms = 0.06
"""
GROUP = """
[[group]]
name = "{name}"
raid = {raid}
drives = {drives}
stripe_kb = 64
mirror_reads = "thread"
partial_writes = "whole-stripe"
stripe_cache = {cache}
luns = {luns}
"""
PLACE = """
[place]
tables = ["l1", "l2", "l3", "l4", "l5", "l6"]
indexes = ["l1", "l2", "l3", "l4", "l5", "l6"]
purged = ["l1", "l2", "l3"]
wal = ["l6"]
"""
# Name: RAID and drives of each group; six LUNs are divided among the groups.
LAYOUTS = {"1x12R10": (10, 12), "1x12R6": (6, 12), "2x6R10": (10, 6), "2x6R6": (6, 6), "3x4R10": (10, 4), "6xR1": (1, 2)}
LOADS = """
[[load]]
name = "oltp"
threads = 48
step = [
    { op = "read", object = "tables", count = 4 },
    { op = "read", object = "indexes", count = 2 },
    { op = "write", object = "tables", count = 2 },
    { op = "write", object = "wal", pattern = "sequential" },
]

[[load]]
name = "purge"
threads = 3
rows = 20
step = [
    { op = "read", object = "purged", kb = 64, pattern = "sequential" },
    { op = "read", object = "indexes", count = 4 },
    { op = "write", object = "indexes", count = 2 },
    { op = "write", object = "purged", count = 1 },
]
"""


def groups_of(name: str) -> list[tuple[str, int, int, list[str]]]:
    raid, drives = LAYOUTS[name]
    count = DRIVES // drives
    luns = [f"l{n + 1}" for n in range(6)]
    each = len(luns) // count
    return [(f"g{n + 1}", raid, drives, luns[n * each : (n + 1) * each]) for n in range(count)]


def layout_text(name: str, limit: int) -> str:
    """Capacity such that the LUNs are as large as the files."""
    groups = groups_of(name)
    raid, drives = LAYOUTS[name]
    data = {1: 1, 10: drives // 2, 6: drives - 2}[raid]
    capacity = LUN_MB / 1024 * len(groups[0][3]) / data + 0.001
    parts = [
        GROUP.format(name=group, raid=raid, drives=drives, cache=1024 if raid == 6 else 0, luns=json.dumps(luns))
        for group, raid, drives, luns in groups
    ]  # fmt: skip
    return f'name = "{name}"\n\n' + DRIVE.format(capacity=round(capacity, 4), limit=limit) + "".join(parts) + PLACE


def sh(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def leadline(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "leadline", *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def clean(place: Path) -> None:
    """Unmounts, takes limits and devices away, and removes the files: of this run, or of one that was killed."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{place}/")), reverse=True):
        sh("umount", mount)
    listed = json.loads(sh("losetup", "--list", "--json", "--output", "NAME,BACK-FILE,MAJ:MIN") or "{}")
    for device in listed.get("loopdevices", []):
        if (device["back-file"] or "").startswith(f"{place}/"):
            for limit in LIMITS:
                limit.write_text(f"{device['maj:min'].strip()} 0")
            sh("losetup", "-d", device["name"])
    shutil.rmtree(place, ignore_errors=True)


@contextmanager
def array(name: str, place: Path, limit: int) -> Iterator[tuple[Path, list[str]]]:
    """The layout as file systems with a file for each LUN, and its devices, each held to the limit."""
    clean(place)
    place.mkdir(mode=0o700)
    try:
        devices = []
        for n in range(DRIVES):
            with open(place / f"drive{n}", "wb") as file:
                file.truncate(DRIVE_MB << 20)
            devices.append(sh("losetup", "--show", "-f", str(place / f"drive{n}")))
        (place / "luns").mkdir()
        at = 0
        for group, raid, drives, luns in groups_of(name):
            own, profile = devices[at : at + drives], f"raid{raid}"
            at += drives
            sh("mkfs.btrfs", "-q", "-f", "-d", profile, "-m", "raid1", *own)
            sh("btrfs", "device", "scan", *own)
            (place / group).mkdir()
            mount = ["mount", "-o", "nodatacow,noatime", own[0], str(place / group)]
            sh(*mount)
            for lun in luns:
                fill(place / group / lun)
                (place / "luns" / lun).symlink_to(place / group / lun)
            sh("umount", str(place / group))  # and nothing of it stays in memory
            sh(*mount)
        for device in devices:
            about = Path(device).stat().st_rdev
            for file in LIMITS:
                file.write_text(f"{os.major(about)}:{os.minor(about)} {limit}")
        yield place / "luns", [device.removeprefix("/dev/") for device in devices]
    finally:
        clean(place)


def fill(path: Path) -> None:
    """Each block is written once, so that later writes change no metadata."""
    piece = os.urandom(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(LUN_MB):
            file.write(piece)
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(description="Real arrays of btrfs over limited loop devices, against their sealed forecast.")
    parser.add_argument("--only", action="append", choices=list(LAYOUTS), help="only this layout; may be given again")
    parser.add_argument("--seconds", type=int, default=20, help="of each load on each layout")
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--limit", type=int, default=180, help="requests a second of each device, for reads and for writes")
    parser.add_argument("--place", type=Path, default=Path("/dev/shm/leadline-arrays"), help="where the files of the devices are")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "runs" / "new-arrays", help="folder of the record")
    parser.add_argument("--clean", action="store_true", help="only remove what a killed run has left")
    args = parser.parse_args()
    if args.clean:
        return clean(args.place)
    if os.geteuid() or not all(limit.exists() for limit in LIMITS):
        raise SystemExit(
            "error: this needs root and the blkio controller of cgroup v1\n  hint: mount -t cgroup -o blkio cgroup " + str(CONTROLLER)
        )
    names = args.only or list(LAYOUTS)
    args.output.mkdir(parents=True, exist_ok=True)
    environment = {"LEADLINE_BOOK": str(args.output.resolve() / "book")} | {k: v for k, v in os.environ.items() if k != "LEADLINE_BOOK"}
    paths = [args.output / f"{name}.toml" for name in names]
    for name, path in zip(names, paths):
        path.write_text(layout_text(name, args.limit))
    loads, forecast = args.output / "loads.toml", args.output / "forecast.json"
    loads.write_text(LOADS.lstrip())
    timing = ["--for", f"{args.seconds}s", "--warm-up", f"{args.warm_up}s"]
    command = ["storage", "simulate", *map(str, paths), "--load", str(loads), *timing, "-o", str(forecast)]
    print(leadline(environment, *command))
    measured = args.output / "measured.jsonl"
    measured.write_text("")
    for name, path in zip(names, paths):
        with array(name, args.place, args.limit) as (luns, devices):
            for load in ("oltp", "purge"):
                client = [sys.executable, str(ROOT / "bench" / "storage_client.py"), str(path), str(loads), load, str(luns)]
                client += ["--seconds", str(args.seconds), "--warm-up", str(args.warm_up), "--devices", ",".join(devices)]
                line = subprocess.run(client, check=True, capture_output=True, text=True, timeout=120 + 2 * args.seconds).stdout
                with measured.open("a") as file:
                    file.write(line)
                print(f"measured {load} on {name}", flush=True)
    score = leadline(environment, "storage", "score", str(forecast), str(measured))
    (args.output / "score.txt").write_text(score)
    print(score)


if __name__ == "__main__":
    main()
