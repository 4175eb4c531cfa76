"""What lies under a path: partitions, device mapper, RAID, loop devices, overlays, btrfs. The trees of /sys are planted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from leadline.host import files, storage
from leadline.host.storage import UNKNOWN, Mount, Under, below, describe, storage_facts, ways

NUMBERS = {"sda": "8:0", "sda2": "8:2", "sdb": "8:16", "sdc": "8:32", "dm-0": "253:0", "dm-1": "253:1", "md0": "9:0", "loop3": "7:3"}


class Sys:
    """A tree as the kernel's /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("dev/block", "class/block", "block", "fs/btrfs"):
            (root / folder).mkdir(parents=True)

    def device(self, name: str, **files: str) -> None:
        parent = name.rstrip("0123456789") if name.startswith("sd") and name[-1].isdigit() else ""
        at = self.root / "devices" / parent / name
        self.write(at, **({"partition": "2"} if parent else {"queue/rotational": "1", "queue/scheduler": "[none] bfq", "size": "2048"}))
        self.write(at, **{"queue/write_cache": "write back", "queue/nr_requests": "64"} if not parent else {})
        self.write(at, **files)
        (self.root / "class/block" / name).symlink_to(at)
        (self.root / "dev/block" / NUMBERS[name]).symlink_to(at)

    def write(self, at: Path, **files: str) -> None:
        for name, text in files.items():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_text(text + "\n")

    def slaves(self, name: str, *others: str) -> None:
        for other in others:
            self.write(self.root / "devices" / name / "slaves", **{other: ""})


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sys:
    made = Sys(tmp_path / "sys")
    monkeypatch.setattr(files, "SYS", str(made.root))
    made.device("sda", **{"device/model": "Fast  Disk"})
    made.device("sda2")
    for name in ("sdb", "sdc"):
        made.device(name)
    return made


def on(number: str, fstype: str = "ext4", device: str = "/dev/x", options: str = "rw") -> Under:
    return below(Mount(number, "/data", fstype, device, options))


def test_a_partition_is_a_part_of_its_disk(sys: Sys) -> None:
    assert on("8:2") == on("8:0") == Under((), ("sda",))


def test_lvm_over_encryption_over_raid(sys: Sys) -> None:
    sys.device("dm-0", **{"dm/uuid": "LVM-abc"})
    sys.device("dm-1", **{"dm/uuid": "CRYPT-LUKS2-abc"})
    sys.device("md0", **{"md/level": "raid10", "md/chunk_size": "524288"})
    sys.slaves("dm-0", "dm-1")
    sys.slaves("dm-1", "md0")
    sys.slaves("md0", "sda2", "sdb", "sdc")
    assert on("253:0") == Under(("LVM", "dm-crypt", "md raid10 chunk 524288 of 3"), ("sda", "sdb", "sdc"))


def test_one_member_that_cannot_be_seen_makes_all_unknown(sys: Sys) -> None:
    sys.device("md0", **{"md/level": "raid1", "md/chunk_size": "0"})
    sys.slaves("md0", "sda", "sdz")
    assert on("9:0").devices is None


def test_a_circle_ends(sys: Sys) -> None:
    sys.device("dm-0", **{"dm/uuid": "LVM-a"})
    sys.device("dm-1", **{"dm/uuid": "LVM-b"})
    sys.slaves("dm-0", "dm-1")
    sys.slaves("dm-1", "dm-0")
    assert on("253:0").devices is None


def test_btrfs_names_its_devices_and_its_profile(sys: Sys) -> None:
    at = sys.root / "fs/btrfs/1234"
    sys.write(at, **{"devices/sda2": "", "devices/sdb": "", "devices/sdc": "", "allocation/data/raid1/total_bytes": "1"})
    sys.write(at, **{"allocation/data/flags": "1"})
    assert on("0:44", "btrfs", "/dev/sdb") == Under(("btrfs raid1 of 3",), ("sda", "sdb", "sdc"))
    assert on("0:44", "btrfs", "/dev/nothere").devices is None


def test_a_container_without_names_in_dev_finds_a_volume_by_that_of_the_kernel(sys: Sys) -> None:
    sys.device("dm-0", **{"dm/uuid": "LVM-abc", "dm/name": "vg-lv"})
    sys.slaves("dm-0", "sda2")
    (sys.root / "block/dm-0").symlink_to(sys.root / "devices/dm-0")
    sys.write(sys.root / "fs/btrfs/1234", **{"devices/dm-0": "", "allocation/data/single/total_bytes": "1"})
    assert on("0:44", "btrfs", "/dev/mapper/vg-lv") == Under(("btrfs single", "LVM"), ("sda",))


def test_a_loop_device_lies_on_what_its_file_lies_on(sys: Sys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "disk.img"
    file.write_text("")
    at = file.stat().st_dev
    sys.device("loop3", **{"loop/backing_file": str(file)})
    known = f"1 0 {os.major(at)}:{os.minor(at)} / /tmp rw - xfs /dev/sda2 rw\n"
    (sys.root / f"dev/block/{os.major(at)}:{os.minor(at)}").symlink_to(sys.root / "devices/sda/sda2")
    real = files.read_text
    monkeypatch.setattr(files, "read_text", lambda path: known if str(path).endswith("mountinfo") else real(path))
    assert on("7:3") == Under(("loop", "xfs"), ("sda",))
    assert on("0:60", "overlay", "overlay", f"rw,upperdir={file},workdir=/w") == Under(("overlay", "xfs"), ("sda",))
    file.unlink()
    assert on("7:3") == Under(("loop",), None)
    assert on("0:60", "overlay", "overlay", "ro,lowerdir=/a:/b") == Under(("overlay",), None)


@pytest.mark.parametrize(
    ("fstype", "device", "found"),
    [
        ("tmpfs", "tmpfs", Under(("memory",), ())),
        ("nfs4", "nas:/export/pg", Under(("remote nfs4",), ())),
        ("fuse.sshfs", "a@b:/c", Under(("remote fuse.sshfs",), ())),
        ("zfs", "tank/pg", Under(("zfs",), None)),
        ("bcachefs", "/dev/sda:/dev/sdb", Under(("bcachefs of 2",), ("sda", "sdb"))),
    ],
)
def test_without_a_block_device_of_its_own(sys: Sys, fstype: str, device: str, found: Under) -> None:
    assert on("0:50", fstype, device) == found


def test_what_a_container_does_not_show_is_unknown(sys: Sys, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on("252:0") == Under((), None)
    known = "1 0 252:0 / / rw,relatime - ext4 /dev/vda rw\n"
    real = files.read_text
    monkeypatch.setattr(files, "read_text", lambda path: known if str(path).endswith("mountinfo") else real(path))
    facts = {name: value for name, value, _ in storage_facts(1, [("data", "/var/lib"), ("wal", "/var/lib/wal"), ("temp", "/tmp")])}
    assert facts["storage.data.devices"] == facts["storage.wal.devices"] == UNKNOWN
    assert "storage.data.device.0.model" not in facts


def test_devices_that_are_alike_are_counted(sys: Sys, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.device("md0", **{"md/level": "raid0", "md/chunk_size": "65536"})
    sys.slaves("md0", "sda", "sdb", "sdc")
    known = "1 0 9:0 / /data rw,noatime - xfs /dev/md0 rw,noquota\n"
    real = files.read_text
    monkeypatch.setattr(files, "read_text", lambda path: known if str(path).endswith("mountinfo") else real(path))
    monkeypatch.setattr(storage, "describe", lambda name: describe(name) | {"model": "A" if name == "sda" else "B"})
    facts = {name: value for name, value, _ in storage_facts("self", [("data", "/data/pg")])}
    assert facts == {
        "storage.data": "md0", "storage.data.fstype": "xfs", "storage.data.options": "noatime,noquota,rw",
        "storage.data.layers": "md raid0 chunk 65536 of 3", "storage.data.devices": "3",
        **{f"storage.data.device.{at}.{name}": value for at in (0, 1) for name, value in (
            ("rotational", "1"), ("scheduler", "none"), ("write_cache", "write back"), ("nr_requests", "64"), ("size_bytes", "1048576"))},
        "storage.data.device.0.model": "A", "storage.data.device.0.count": "1", "storage.data.device.0.names": "sda",
        "storage.data.device.1.model": "B", "storage.data.device.1.count": "2", "storage.data.device.1.names": "sdb,sdc",
    }  # fmt: skip


def test_tablespaces_are_one_fact_whatever_their_numbers(sys: Sys, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n2 1 8:16 / /big rw - xfs /dev/sdb rw\n"
    real = files.read_text
    monkeypatch.setattr(files, "read_text", lambda path: known if str(path).endswith("mountinfo") else real(path))
    one, other, third = (
        [value for name, value, _ in storage_facts(1, [("data", "/pg"), *spaces]) if name == "storage.tablespaces"]
        for spaces in ([("tablespace 7", "/big/a")], [("tablespace 8", "/big/b"), ("tablespace 9", "/big/c")], [("tablespace 9", "/x")])
    )
    assert one == other
    assert one[0].startswith("fstype xfs, options rw, layers a disk, devices 1, device.0.count 1, device.0.model sdb, device.0.rotational")
    assert third[0].startswith("fstype ext4") and "Fast Disk" in third[0]
    assert "storage.tablespaces" not in [name for name, _, _ in storage_facts(1, [("data", "/pg")])]


def test_a_device_is_described_or_unknown(sys: Sys) -> None:
    assert describe("sda")["model"] == "Fast Disk"
    assert describe("sdb")["model"] == "sdb"
    assert set(describe("sdz").values()) == {UNKNOWN}
    (sys.root / "devices/sdb/queue/rotational").unlink()
    assert describe("sdb")["rotational"] == UNKNOWN


def test_options_that_name_places_are_left_out() -> None:
    assert ways("rw,upperdir=/x/1,lowerdir=/a:/b,noatime,clientaddr=10.0.0.1,vers=4.2") == "noatime,rw,vers=4.2"
