"""leadline compare refuses what is not comparable: each planted difference of a real capture is named, and none passes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from conftest import Server
from leadline.compare import compare
from leadline.compare.environment import Side, of_capture
from leadline.lab.comparable import COVARIATE, IDENTITY, VOLATILE, row_of

FACT, SETTING = "host_fact set value = '{}' where name = '{}'", "setting set setting = '{}' where name = '{}'"
# What is planted, as an update of a table (or of the manifest), and how the refusal names it.
IDENTITIES = {
    "CPU: model": FACT.format("Another CPU", "cpu.model"),
    "CPU: online": FACT.format("0-63", "cpu.online"),
    "MITIGATION: spectre_v2": FACT.format("Vulnerable, surely", "cpu.mitigation.spectre_v2"),
    "MITIGATION: meltdown": "host_fact delete name = 'cpu.mitigation.meltdown'",
    "MEMORY: total_bytes": FACT.format("1073741824", "memory.total_bytes"),
    "KERNEL: release": FACT.format("6.1.0-other", "kernel.release"),
    "KERNEL SETTING: swappiness": FACT.format("99", "vm.swappiness"),
    "KERNEL SETTING: dirty_ratio": FACT.format("77", "vm.dirty_ratio"),
    "TRANSPARENT HUGE PAGES: enabled": FACT.format("elsewhere", "thp.enabled"),
    "CLOCK: source": FACT.format("hpet", "clock.source"),
    "DATA FILE SYSTEM: fstype": FACT.format("zfs", "storage.data.fstype"),
    "DATA MOUNT: options": FACT.format("rw,noatime,nobarrier", "storage.data.options"),
    "DATA DEVICE: devices": FACT.format("unknown", "storage.data.devices"),
    "DATA DEVICE: model": FACT.format("Another disk", "storage.data.device.0.model"),
    "DATA DEVICE: rotational": FACT.format("1", "storage.data.device.0.rotational"),
    "DATA DEVICE: scheduler": FACT.format("bfq", "storage.data.device.0.scheduler"),
    "DATA DEVICE: write_cache": FACT.format("write somewhere", "storage.data.device.0.write_cache"),
    "DATA STORAGE: layers": FACT.format("md raid6 chunk 524288 of 12", "storage.data.layers"),
    "WAL FILE SYSTEM: fstype": FACT.format("xfs", "storage.wal.fstype"),
    "WAL MOUNT: options": FACT.format("rw,sync", "storage.wal.options"),
    "WAL DEVICE: rotational": FACT.format("1", "storage.wal.device.0.rotational"),
    "WAL DEVICE: scheduler": "host_fact delete name = 'storage.wal.device.0.scheduler'",
    "SERVER: version": "manifest version 99.1",
    "SERVER: cpu_count": "manifest cpu_count 63",
    "SETTING: shared_buffers": SETTING.format("7", "shared_buffers"),
    "SETTING: wal_compression": SETTING.format("lz4, or so", "wal_compression"),
    "SETTING: full_page_writes": SETTING.format("perhaps", "full_page_writes"),
    "DATA SET: schema": "relation set relname = 'another_table' where relname = 'orders'",
    "DATA SET: bytes": "relation set size_bytes = size_bytes * 3",
    "DATA SET: tables": "relation delete relname = 'orders'",
}
MOMENTS = (
    "load.average_1m", "host.uptime_s", "temperature.thermal_zone0", "memory.available_bytes", "memory.commit_limit_bytes",
    "swap.free_bytes", "hugepages.free", "hugepages.reserved", "hugepages.surplus", "thp.anon_bytes", "thp.shmem_bytes",
    "cpu.frequency_khz", "cgroup.path", "steal.share",
)  # fmt: skip


@pytest.fixture(scope="module")
def taken(servers: Callable[[int], Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    server = servers(17)
    server.sql("create schema compared")
    server.sql("create table compared.orders as select n, repeat('x', 100) as filler from generate_series(1, 5000) n")
    server.sql("analyze compared.orders")
    path = tmp_path_factory.mktemp("compare") / "base.leadline"
    words = ["take", server.dsn, "--for", "1s", "-o", str(path), "--json"]
    done = subprocess.run([sys.executable, "-m", "leadline", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield path
    server.sql("drop schema compared cascade")


@pytest.fixture(scope="module")
def base(taken: Path) -> Side:
    """What every plant differs from. A device or file system that this host cannot name is as it would be on one that can."""
    return of_capture(planted(taken, taken.parent / "named.leadline", *NAMED))


NAMED = tuple(
    f"host_fact insert '{name}', '{value}'"
    for name, value in {
        "cpu.mitigation.meltdown": "Not affected", "cpu.mitigation.spectre_v2": "Mitigation: Retpolines", "clock.source": "tsc",
        **{f"storage.{place}.{fact}": value for place in ("data", "wal") for fact, value in {
            "fstype": "ext4", "options": "rw", "layers": "a disk", "devices": "1", "device.0.model": "Disk", "device.0.rotational": "0",
            "device.0.scheduler": "none", "device.0.write_cache": "write back", "device.0.count": "1"}.items()},
    }.items()
)  # fmt: skip


def planted(capture: Path, copy: Path, *changes: str) -> Path:
    """A copy of the capture with rows changed: TABLE set COLUMN = VALUE where ..., TABLE delete CONDITION, TABLE insert NAME, VALUE."""
    shutil.copytree(capture, copy)
    for change in changes:
        table, _, what = change.partition(" ")
        if table == "manifest":
            manifest = json.loads((copy / "manifest.json").read_text())
            name, _, value = what.partition(" ")
            manifest["target"][name] = int(value) if value.isdigit() else value
            (copy / "manifest.json").write_text(json.dumps(manifest))
            continue
        with duckdb.connect() as db:
            db.execute(f"create table t as from '{copy / table}/*.parquet'")
            if what.startswith("insert "):
                values = what.removeprefix("insert ")
                name = values.partition(",")[0]
                db.execute(f"delete from t where name = {name}")
                db.execute(f"insert into t values ({values}, 'planted')")
            else:
                query = f"delete from t where {what[7:]}" if what.startswith("delete ") else f"update t {what}"
                assert db.execute(query).fetchall()[0][0] >= 1, f"nothing to change: {change}"
            for segment in (copy / table).glob("*.parquet"):
                segment.unlink()
            db.execute(f"copy t to '{copy / table}/000001.parquet'")
    return copy


def test_a_capture_is_like_itself(base: Side) -> None:
    found = compare(base, base)
    assert [each.text for each in found.environment] == []
    assert found.comparable and found.text.startswith("no verdict: one measurement of each")


@pytest.mark.parametrize("named", IDENTITIES)
def test_what_must_agree_and_does_not_is_refused_by_name(named: str, base: Side, tmp_path: Path) -> None:
    other = of_capture(planted(Path(base.name), tmp_path / "other.leadline", IDENTITIES[named]))
    found = compare(base, other)
    refused = [each for each in found.environment if each.refuses]
    texts = [" ".join(each.text.split()[: len(named.split())]) for each in refused]
    assert named in texts
    assert {text.partition(":")[0] for text in texts} == {named.partition(":")[0]}, "something else differs, too"
    assert not found.comparable and "not comparable, so no verdict" in found.text
    back = compare(other, base)
    assert [each.name for each in back.environment] == [each.name for each in found.environment] and not back.comparable
    allowed = compare(base, other, [each.name for each in refused])
    assert allowed.comparable and [each.name for each in allowed.environment if each.is_factor] == [each.name for each in refused]


@pytest.mark.parametrize("name", ["storage.data.devices", "storage.wal.fstype", "storage.data.device.0.rotational", "cpu.model"])
def test_unknown_is_not_equal_to_unknown(name: str, base: Side) -> None:
    unknown = Side("x", "x", base.kinds, base.facts | {name: "unknown"}, {})
    assert [each.name for each in compare(unknown, unknown).environment if each.refuses] == [name]


@pytest.mark.parametrize("name", ["cpu.model", "memory.total_bytes", "kernel.release", "storage.data.fstype", "storage.wal.devices",
                                  "server.version", "data.schema", "settings.from"])  # fmt: skip
def test_what_both_lack_and_need_is_unknown(name: str, base: Side) -> None:
    lacking = Side("x", "x", base.kinds, {fact: value for fact, value in base.facts.items() if fact != name}, {})
    [refused] = [each for each in compare(lacking, lacking).environment if each.refuses]
    assert refused.text.endswith("unknown against unknown")


def test_without_mitigations_they_are_unknown(base: Side) -> None:
    facts = {name: value for name, value in base.facts.items() if not name.startswith("cpu.mitigation.")}
    found = compare(Side("x", "x", base.kinds, facts, {}), base)
    assert len([each for each in found.environment if each.refuses]) == len(base.facts) - len(facts)


@pytest.mark.parametrize("name", MOMENTS)
def test_what_is_of_the_moment_does_not_refuse(name: str, base: Side) -> None:
    one, other = (Side("x", "x", base.kinds, base.facts | {name: value}, {}) for value in ("100", "1"))
    found = compare(one, other)
    assert [(each.name, each.kind) for each in found.environment] == [(name, VOLATILE)]
    assert found.comparable


def test_the_command_names_it_above_every_number(base: Side, tmp_path: Path, taken: Path) -> None:
    other = planted(Path(base.name), tmp_path / "other.leadline", IDENTITIES["DATA DEVICE: rotational"], SETTING.format("64", "work_mem"))

    def leadline(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "leadline", "compare", base.name, str(other), *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    done = leadline()
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.index("DATA DEVICE: rotational ") < done.stdout.index("not comparable") < done.stdout.index("Database time")
    assert "SETTING: work_mem" in done.stdout and max(map(len, done.stdout.split("Database time")[0].splitlines())) <= 80
    still = leadline("--factor", "work_mem", "--json")
    found = json.loads(still.stdout)
    assert (still.returncode, found["comparable"], found["verdict"]["word"]) == (1, False, "not comparable")
    assert [each["name"] for each in found["environment"] if each["refuses"]] == ["storage.data.device.0.rotational"]
    allowed = leadline("--factor", "work_mem", "--factor", "storage.data")
    assert (allowed.returncode, "NOT COMPARABLE" in allowed.stdout, "The factor" in allowed.stdout) == (0, False, True)
    wrong = leadline("--factor", "wrok_mem")
    assert (wrong.returncode, "there is no fact wrok_mem" in wrong.stderr) == (2, True)


def test_every_fact_of_a_capture_has_a_class(base: Side) -> None:
    without = [name for name in base.facts if row_of(name).called == "fact"]
    assert without == []
    assert {row_of(name).kind for name in base.facts} == {IDENTITY, COVARIATE, VOLATILE}
