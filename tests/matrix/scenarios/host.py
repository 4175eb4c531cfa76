"""What the host does to the server: settings of the kernel, disks and memory that others use. See also clients.py: CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from host_changes import kernel_setting
from host_loads import direct_reads, memory_hog

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario

PAGES = "/sys/kernel/mm/transparent_hugepage"


@scenario(window_s=2.0)
def kernel_that_reclaims_by_zone(g: Ground) -> Iterator[Truth]:
    """vm.zone_reclaim_mode is 1."""
    with kernel_setting("/proc/sys/vm/zone_reclaim_mode", "1"):
        yield lambda: [Expected("ZONE-RECLAIM", "vm.zone_reclaim_mode", None, ("is 1",))]


@scenario(window_s=2.0)
def kernel_that_always_looks_for_huge_pages(g: Ground) -> Iterator[Truth]:
    """Transparent huge pages are on for all memory, and each fault may stop to compact it."""
    with kernel_setting(f"{PAGES}/enabled", "always"), kernel_setting(f"{PAGES}/defrag", "always"):
        yield lambda: [Expected("THP", "transparent huge pages", None, ("always with defrag always",))]


@scenario(window_s=8.0, busy=True)
def stranger_that_reads_the_same_disk(g: Ground) -> Iterator[Truth]:
    """Something beside the server reads a file past the page cache, one request after the other."""
    number = g.stack.enter_context(direct_reads(g.folder, "leadcopy"))
    device = Path(f"/sys/dev/block/{number}").resolve().name
    yield lambda: [Expected("DEVICE-SATURATED", f"device {device}", None, ("leadcopy",))]


@scenario(window_s=8.0, busy=True)
def stranger_at_the_limit_of_its_memory(g: Ground) -> Iterator[Truth]:
    """A program beside the server reads more than its control group may keep."""
    group = g.stack.enter_context(memory_hog(g.folder, "leadhog"))
    yield lambda: [Expected("MEMORY-PRESSURE", f"memory of control group /{group.name}", None, ("leadhog",), "medium")]
