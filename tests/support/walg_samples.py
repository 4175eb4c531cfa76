"""Backups in a folder of WAL-G as its source says that they are (internal/databases/postgres), made of the files of a data directory."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

BLOCK = 8192
HALVES = 2  # archives that the files are shared out between
Files = dict[str, bytes]


def partition(path: Path, members: Files) -> None:
    """An archive as WAL-G names its members, compressed by lz4."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    done = subprocess.run(["lz4", "-1", "-c"], input=content.getvalue(), capture_output=True, check=True, timeout=60)
    path.write_bytes(done.stdout)


def walg_backup(folder: Path, name: str, parts: list[Files], sentinel: dict[str, Any], metadata: dict[str, Any]) -> Path:
    backup = folder / "basebackups_005" / name
    (backup / "tar_partitions").mkdir(parents=True)
    for number, members in enumerate(parts, 1):
        partition(backup / "tar_partitions" / f"part_{number}.tar.lz4", members)
    (backup / "files_metadata.json").write_text(json.dumps(metadata))
    (backup.parent / f"{name}_backup_stop_sentinel.json").write_text(json.dumps(sentinel))
    return backup


def increment(content: bytes, blocks: list[int]) -> bytes:
    """The blocks of a file that changed."""
    pages = [content[block * BLOCK : (block + 1) * BLOCK] for block in blocks]
    return b"wi1\x55" + struct.pack(f"<QI{len(blocks)}I", len(content), len(blocks), *blocks) + b"".join(pages)


def pushed(folder: Path, data: Path, before: tuple[Path, Path] | None) -> Path:
    """A backup of a data directory, which has a backup_label. before: the one that it is based on, and the data directory of that."""
    files, was = files_of(data), files_of(before[1]) if before else {}
    label, control = files.pop("/backup_label"), files.pop("/global/pg_control")
    about: dict[str, dict[str, bool]] = {}
    packed: Files = {}
    for name, content in files.items():
        is_paged = name.rpartition("/")[2].replace(".", "").isdigit() and content and name.startswith(("/base/", "/pg_tblspc/"))
        about[name] = {"IsSkipped": was.get(name) == content, "IsIncremented": bool(name in was and is_paged and was[name] != content)}
        if about[name]["IsIncremented"]:
            blocks = range(len(content) // BLOCK)
            cut = [slice(block * BLOCK, (block + 1) * BLOCK) for block in blocks]
            packed[name] = increment(content, [block for block in blocks if was[name][cut[block]] != content[cut[block]]])
        elif not about[name]["IsSkipped"]:
            packed[name] = content
    start = begins_at(data)
    sentinel: dict[str, Any] = {"LSN": start, "FinishLSN": start + (1 << 24)}
    name = f"base_{start >> 24:024X}"
    if before:
        name += f"_D_{before[0].name.removeprefix('base_')[:24]}"
        sentinel |= {"DeltaLSN": begins_at(before[1]), "DeltaFrom": before[0].name}
    names = sorted(packed)
    parts = [{name: packed[name] for name in names[part::HALVES]} for part in range(HALVES)]
    backup = walg_backup(folder, name, parts, sentinel, {"Files": about})
    partition(backup / "tar_partitions" / "pg_control.tar.lz4", {"/global/pg_control": control})
    partition(backup / "tar_partitions" / "backup_label.tar.lz4", {"backup_label": label})
    return backup


def files_of(data: Path) -> Files:
    return {f"/{path.relative_to(data)}": path.read_bytes() for path in data.rglob("*") if path.is_file() and "pg_wal" not in path.parts}


def begins_at(data: Path) -> int:
    """By its backup_label."""
    high, low = (data / "backup_label").read_text().split()[3].split("/")
    return int(high, 16) << 32 | int(low, 16)
