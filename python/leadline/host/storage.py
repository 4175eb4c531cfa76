"""Which block devices lie under a path, through partitions, device mapper, RAID, loop devices, overlays and btrfs, and what they are.

What cannot be read is "unknown", never left out: who compares two hosts must not take one unknown for another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leadline.host import files

Fact = tuple[str, str, str]
StoredPath = tuple[str, str]  # what is kept there, and the path as the process names it

UNKNOWN = "unknown"
CHOICE = re.compile(r"\[([^]]+)\]")  # 'always [madvise] never': the one in brackets is in force
OF_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
REMOTE = {"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "lustre", "gpfs", "beegfs", "glusterfs", "afs", "ocfs2_dlmfs"}
# Options of a mount that say where something lies or who mounted it, not how it works.
_PLACES = {"lowerdir", "upperdir", "workdir", "subvol", "subvolid", "clientaddr", "addr", "mountaddr", "fd", "pgrp", "pipe_ino"}
_DEEPEST, _MOST_DEVICES = 16, 4096  # what lies under a path is a graph that others made
_DM = {"LVM": "LVM", "CRYPT": "dm-crypt", "mpath": "multipath", "part": "partition", "RAID": "dm-raid"}  # how a uuid begins


class Mount(NamedTuple):
    number: str  # major:minor
    point: str
    fstype: str
    device: str
    options: str


class Under(NamedTuple):
    """layers: from the file system down, as words. devices: names of those that have none below; None if that is not known."""

    layers: tuple[str, ...]
    devices: tuple[str, ...] | None


def parse_mountinfo(text: str) -> list[Mount]:
    """/proc/PID/mountinfo: the optional fields end with a lone '-'."""
    found = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        if not separator or len(fields) < 6 or len(after) < 2:
            continue
        options = dict.fromkeys((fields[5] + ("," + after[2] if len(after) > 2 else "")).split(","))
        found.append(Mount(fields[2], _unescape(fields[4]), after[0], _unescape(after[1]), ",".join(options)))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), text)


def mounts(pid: int, stored: Iterable[StoredPath]) -> list[tuple[str, str, str, str, str]]:
    """Rows of table mount: the mounts that hold each of these paths, as the process sees them."""
    return [(mount.point, mount.device, mount.fstype, mount.options, ",".join(what)) for mount, what in _holding(str(pid), stored)]


def storage_facts(pid: int | str, stored: Iterable[StoredPath], places: Iterable[str] = ("data", "wal")) -> Iterator[Fact]:
    """What lies under the data directory and the WAL (or other places): storage.PLACE.*; storage.PLACE is the device, if it is one disk.

    pid: of whom the paths are; self for this process. Tablespaces have numbers that differ between servers: they are one fact together.
    """
    wanted, source, spaces = tuple(places), f"/proc/{pid}/mountinfo", set[str]()
    for mount, holds in _holding(str(pid), stored):
        if any(name.startswith("tablespace") for name in holds):
            spaces.add(", ".join(f"{name} {value}" for name, value in _about(mount) if not name.endswith((".names", ".size_bytes"))))
        for place in (name for name in wanted if name in holds):
            if device := whole_device(mount.number):
                yield f"storage.{place}", device, source
            yield from ((f"storage.{place}.{name}", value, source) for name, value in _about(mount))
    if spaces:
        yield "storage.tablespaces", " and ".join(sorted(spaces)), source


def ways(options: str) -> str:
    """Options of a mount in order, without those that only name places."""
    return ",".join(sorted(each for each in options.split(",") if each.partition("=")[0] not in _PLACES))


def _about(mount: Mount) -> Iterator[tuple[str, str]]:
    yield "fstype", mount.fstype
    yield "options", ways(mount.options)
    under = below(mount)
    yield "layers", " on ".join(under.layers) or "a disk"
    if mount.fstype in REMOTE or mount.fstype.startswith("fuse."):
        yield "remote", mount.device
    if under.devices is None:
        yield "devices", UNKNOWN
        return
    yield "devices", str(len(under.devices))
    if (ahead := _read(f"{files.SYS}/class/bdi/{mount.number}/read_ahead_kb")) is not None:
        yield "read_ahead_kb", ahead
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in under.devices:
        alike.setdefault(tuple(describe(name).items()), []).append(name)
    for at, (about, names) in enumerate(sorted(alike.items())):
        yield f"device.{at}.names", ",".join(sorted(names))
        yield f"device.{at}.count", str(len(names))
        yield from ((f"device.{at}.{name}", value) for name, value in about)


def describe(device: str) -> dict[str, str]:
    """What a device is, by kernel name."""
    base = f"{files.SYS}/class/block/{device}"
    queue = f"{base}/queue"
    if not os.path.exists(queue):
        return dict.fromkeys(("model", "rotational", "scheduler", "write_cache", "nr_requests", "size_bytes"), UNKNOWN)
    scheduler, sectors = _read(f"{queue}/scheduler"), _read(f"{base}/size")
    driver = f"{base}/device/driver"  # a virtual disk may give no model: then what kind of device it is
    model = _read(f"{base}/device/model") or (
        os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else re.sub(r"\d+$", "", device)
    )
    return {
        "model": " ".join(model.split()),
        "rotational": _read(f"{queue}/rotational") or UNKNOWN,
        "scheduler": UNKNOWN if scheduler is None else choice.group(1) if (choice := CHOICE.search(scheduler)) else scheduler,
        "write_cache": _read(f"{queue}/write_cache") or UNKNOWN,
        "nr_requests": _read(f"{queue}/nr_requests") or UNKNOWN,
        "size_bytes": str(int(sectors) * 512) if sectors is not None and sectors.isdigit() else UNKNOWN,
    }


def below(mount: Mount, depth: int = 0) -> Under:
    """What lies under a file system."""
    if mount.fstype in OF_MEMORY:
        return Under(("memory",), ())
    if mount.fstype in REMOTE or mount.fstype.startswith("fuse."):
        return Under((f"remote {mount.fstype}",), ())
    if depth > _DEEPEST:
        return Under((), None)
    if mount.fstype == "overlay":
        upper = next((each.partition("=")[2] for each in mount.options.split(",") if each.startswith("upperdir=")), "")
        return _layer("overlay", _of_file(upper, depth))
    if mount.fstype == "btrfs":
        return _of_btrfs(mount, depth)
    if not mount.number.startswith("0:"):
        return _of_device(f"{files.SYS}/dev/block/{mount.number}", depth)
    named = [part for part in mount.device.split(":") if part.startswith("/dev/")]  # bcachefs names all of its devices
    return _of_devices((mount.fstype,), [_kernel_name(name) for name in named], depth)


def _of_btrfs(mount: Mount, depth: int) -> Under:
    """The kernel has a directory for each file system, with its devices and the profiles of its data."""
    device, known = _kernel_name(mount.device), f"{files.SYS}/fs/btrfs"
    for uuid in files.inside(known):
        devices, data = files.inside(f"{known}/{uuid}/devices"), f"{known}/{uuid}/allocation/data"
        if device in devices:
            profiles = [name for name in files.inside(data) if os.path.exists(f"{data}/{name}/total_bytes")]
            return _of_devices((f"btrfs {'+'.join(profiles) or UNKNOWN}",), devices, depth)
    return Under(("btrfs",), None)


def _kernel_name(path: str) -> str:
    """dm-3 of /dev/mapper/vg-lv, also where nothing is in /dev: inside a container."""
    name = os.path.basename(os.path.realpath(path))
    if os.path.dirname(path) == "/dev/mapper" and not name.startswith("dm-"):
        mapped = [each for each in files.inside(f"{files.SYS}/block") if _read(f"{files.SYS}/block/{each}/dm/name") == name]
        return mapped[0] if mapped else name
    return name


def _of_file(path: str, depth: int) -> Under:
    """What lies under a file that this process can see: the mount of the same device."""
    try:
        at = os.stat(path) if path.startswith("/") else None
    except OSError:
        at = None
    if at is None:
        return Under((), None)
    number = f"{os.major(at.st_dev)}:{os.minor(at.st_dev)}"
    known = parse_mountinfo(files.read_text(f"{files.PROC}/self/mountinfo") or "")
    own = [mount for mount in known if mount.number == number]
    if not own and number.startswith("0:"):  # each subvolume of btrfs has a number that no list has
        at_path = [mount for mount in known if mount.point == "/" or f"{path}/".startswith(f"{mount.point}/")]
        own = [mount for mount in sorted(at_path, key=lambda mount: len(mount.point)) if mount.fstype == "btrfs"]
    if own:
        found = below(own[-1], depth + 1)
        return Under((own[-1].fstype, *found.layers), found.devices)
    return Under((), None) if number.startswith("0:") else _of_device(f"{files.SYS}/dev/block/{number}", depth + 1)


def _of_device(path: str, depth: int) -> Under:
    """path: of a device in /sys. Its own layer and those below."""
    if depth > _DEEPEST or not os.path.exists(path):
        return Under((), None)
    path = os.path.realpath(path)
    if os.path.exists(f"{path}/partition"):
        path = os.path.dirname(path)
    name, slaves = os.path.basename(path), files.inside(f"{path}/slaves")
    if (backing := _read(f"{path}/loop/backing_file")) is not None:
        return _layer("loop", _of_file(backing, depth))
    if level := _read(f"{path}/md/level"):
        return _of_devices((f"md {level} chunk {_read(f'{path}/md/chunk_size') or UNKNOWN}",), slaves, depth)
    if (uuid := _read(f"{path}/dm/uuid")) is not None:
        kind = next((said for begin, said in _DM.items() if uuid.startswith(begin)), "device mapper")
        return _of_devices((kind,), slaves, depth)
    return _of_devices((re.sub(r"\d+$", "", name),), slaves, depth) if slaves else Under((), (name,))


def _of_devices(layers: tuple[str, ...], names: list[str], depth: int) -> Under:
    """A layer over several devices, by kernel name; not known if there are none or one is not."""
    found, under = set[str](), tuple[str, ...]()
    if len(names) > 1:  # several may lie on one disk
        layers = (*layers[:-1], f"{layers[-1]} of {len(names)}")
    for name in names[:_MOST_DEVICES]:
        one = _of_device(f"{files.SYS}/class/block/{name}", depth + 1)
        if one.devices is None or len(found) > _MOST_DEVICES:
            return Under((*layers, *one.layers), None)
        found.update(one.devices)
        under = max(under, one.layers, key=len)
    return Under((*layers, *under), tuple(sorted(found)) if names else None)


def _layer(name: str, under: Under) -> Under:
    return Under((name, *under.layers), under.devices)


def _read(path: str) -> str | None:
    text = files.read_text(path)
    return None if text is None else text.strip()


def _holding(pid: str, stored: Iterable[StoredPath]) -> list[tuple[Mount, list[str]]]:
    """The mounts that hold each of these paths, as the process sees them, and what they hold."""
    known = parse_mountinfo(files.read_text(f"{files.PROC}/{pid}/mountinfo") or "")
    holds: dict[str, list[str]] = {}
    by_point = {mount.point: mount for mount in known}  # the last one mounted at a point is the one in sight
    for what, path in stored:
        points = [p for p in by_point if p == "/" or path == p or path.startswith(p + "/")]
        if points:
            holds.setdefault(max(points, key=len), []).append(what)
    return [(by_point[point], what) for point, what in holds.items()]


def whole_device(number: str) -> str | None:
    """The kernel's name of a device that is not a part of another, by MAJOR:MINOR; of a partition, its whole device."""
    at = f"{files.SYS}/dev/block/{number}"
    if not os.path.exists(at):
        return None
    device = os.path.realpath(at)
    return os.path.basename(os.path.dirname(device) if os.path.exists(f"{device}/partition") else device)


def block_devices() -> list[tuple[str, str, bool, str, str, int, int]]:
    """Rows of table block_device; RAM disks and empty loop devices are left out."""
    found = []
    for name in files.inside(f"{files.SYS}/block"):
        device, queue = f"{files.SYS}/block/{name}", f"{files.SYS}/block/{name}/queue"
        size = int(_read(f"{device}/size") or 0) * 512
        if name.startswith("ram") or size == 0:
            continue
        scheduler = _read(f"{queue}/scheduler") or ""
        choice = CHOICE.search(scheduler)
        found.append(
            (
                name,
                " ".join((_read(f"{device}/device/model") or "").split()),
                (_read(f"{queue}/rotational") or "0") == "1",
                choice.group(1) if choice else scheduler,
                _read(f"{queue}/write_cache") or "",
                size,
                int(_read(f"{queue}/nr_requests") or 0),
            )
        )
    return found
