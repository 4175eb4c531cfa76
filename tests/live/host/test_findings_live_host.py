"""The findings on settings, the host and its limits, planted for real: settings of a server, of the kernel, a quota of CPU.

Not planted, because it would hurt what else runs on the host: SWAP needs a swap device and RECLAIM-STALL a host without free
memory (reclaim within a control group is not counted by the counters of the host). CPU-STEAL needs a hypervisor that is asked for more than
it has, CPU-FREQUENCY a kernel that sets it. Their tests are in test_findings_host.py and test_findings_host_probe.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, running, wait_until
from host_changes import control_group, kernel_setting
from leadline.capture.reader import open_capture
from leadline.findings import all_findings, evaluate
from live import captured, clients, storm

pytestmark = pytest.mark.live

# What else runs on this host decides.
OF_THE_HOST = {"ZONE-RECLAIM", "RECLAIM-STALL", "THP", "SWAP", "CPU-STEAL", "INTERRUPT-LOAD", "CPU-FREQUENCY"}


def test_a_sound_server_with_a_light_load_has_no_findings_of_any_rule(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(18, fsync=True)
    server.sql("create table account (id int primary key, v int)")
    server.sql("insert into account select n, 0 from generate_series(1, 1000) n")

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("select v from account where id = 5")
            db.execute("update account set v = v + 1 where id = 5")
        stop.wait(0.5)

    with clients(server, ("pool", pay)) as (client,):
        wait_until(lambda: client.done)
        result = captured(server, tmp_path, 3, None)
    assert [f.statement for f in result.findings if f.id not in OF_THE_HOST] == []
    not_in_every_kernel = {"ZONE-RECLAIM", "THP", "CGROUP-CPU-THROTTLE", "CPU-FREQUENCY"}
    without_tcp = {"WINDOW-LIMITED", "RETRANSMITS", "CLIENT-GONE"}
    without_statements = {"PLANNING-TIME", "JIT-COST", "PLAN-INVALIDATION"}  # pg_stat_statements
    assert {name for name, _ in result.not_evaluated} <= not_in_every_kernel | without_tcp | without_statements
    told = {f.id for f in result.findings} | {name for name, _ in [*result.not_evaluated, *result.not_applicable]}
    assert set(result.clean) == {d.id for d in all_findings()} - told
    assert {name for name, _ in result.not_applicable} == {d.id for d in all_findings() if d.domain not in ("postgres", "host", "sockets")}


def test_the_host_rules_follow_the_facts_of_this_host(servers: Callable[[int], Server], tmp_path: Path) -> None:
    result = captured(servers(16), tmp_path, 3, ["ZONE-RECLAIM", "THP", "RECLAIM-STALL", "SWAP", "HUGEPAGES-OFF"])
    found = {f.id for f in result.findings}
    with closing(open_capture(tmp_path / "live.leadline")) as capture:
        facts = {row["name"]: row["value"] for row in capture.rows("select name, value from host_fact")}
    assert ("ZONE-RECLAIM" in found) == (facts.get("vm.zone_reclaim_mode", "0") != "0")
    assert ("THP" in found) == (facts.get("thp.enabled") == facts.get("thp.defrag") == "always")
    assert "HUGEPAGES-OFF" not in found
    assert {name for name, _ in result.not_evaluated} <= {"ZONE-RECLAIM", "THP"}


@pytest.mark.parametrize(
    ("settings", "subject", "severity"),
    [({"fsync": False}, "setting fsync", "critical"), ({"fsync": True, "full_page_writes": False}, "setting full_page_writes", "high")],
)
def test_settings_that_let_a_crash_destroy_data(
    fresh_server: Callable[..., Server], tmp_path: Path, settings: dict[str, object], subject: str, severity: str
) -> None:
    (finding,) = captured(fresh_server(14, **settings), tmp_path, 1, ["DURABILITY-OFF"]).findings
    assert (finding.subject, finding.severity) == (subject, severity)


@pytest.mark.parametrize("major", [13, 18])
def test_large_buffers_mapped_with_small_pages(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, huge_pages=False, shared_buffers="128MB")
    assert captured(server, tmp_path, 1, ["HUGEPAGES-OFF"]).clean == ["HUGEPAGES-OFF"]  # far from the 8 GB where it begins to cost
    with closing(open_capture(tmp_path / "live.leadline")) as capture:
        (finding,) = evaluate(capture, ["HUGEPAGES-OFF"], {"shared_buffers_gb": 0.125}).findings
    assert (finding.subject, finding.confidence) == ("huge_pages", "high")
    assert "shared_buffers of 0.1 GB are mapped with small pages (huge_pages off" in finding.statement
    assert finding.evidence[0]["shared_buffers_bytes"] == 128 * 1024 * 1024


def test_zone_reclaim_of_the_kernel(servers: Callable[[int], Server], tmp_path: Path) -> None:
    path = "/proc/sys/vm/zone_reclaim_mode"
    with kernel_setting(path, "1"):
        (finding,) = captured(servers(16), tmp_path, 1, ["ZONE-RECLAIM"]).findings
    assert finding.subject == "vm.zone_reclaim_mode"
    assert finding.statement.startswith("vm.zone_reclaim_mode is 1 on a host with")


def test_transparent_huge_pages_of_the_kernel(servers: Callable[[int], Server], tmp_path: Path) -> None:
    enabled, defrag = (f"/sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag"))
    with kernel_setting(enabled, "always"), kernel_setting(defrag, "always"):
        (finding,) = captured(servers(16), tmp_path, 1, ["THP"]).findings
    assert finding.subject == "transparent huge pages"
    assert finding.statement.startswith("Transparent huge pages are always with defrag always: ")


def test_a_server_at_the_quota_of_its_control_group(tmp_path: Path) -> None:
    with control_group("cpu", "20000", "cpu.cfs_quota_us", "cpu.max") as group, running(16) as server:  # of each 100 ms
        (group / "cgroup.procs").write_text(str(server.pid))  # its later children are born there
        with storm(server, tmp_path, "select count(*) from generate_series(1, 20000)", 4):
            (finding,) = captured(server, tmp_path, 6, ["CGROUP-CPU-THROTTLE"], {"quota_min_s": 3}).findings
    assert finding.subject == "CPU quota of the control group"
    assert finding.statement.startswith("The server used up its quota of 0.20 CPUs (cpu.max 20000 100000) in ")
