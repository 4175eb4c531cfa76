"""What can be measured on this host and target, what cannot, and the exact command that would allow it.

Nothing is changed and little is read: an engine attaches its probe once, calibrates it and lets go.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterator
from typing import Any

from leadline._core.kernel import check as check_kernel_tier
from leadline.engines.check import INFO, LIMITED, MISSING, OK, Check, judge
from leadline.engines.live import Server, all_live, live_of
from leadline.errors import LeadlineError
from leadline.host import proc

CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23, "CAP_CHECKPOINT_RESTORE": 40}
AREAS = ("host", "server", "memory", "sql", "capture")


def doctor(server: Server | None) -> list[Check]:
    """All checks, host first. Without a server: the host only, and which servers it runs."""
    checks = list(_host_checks())
    if server is None:
        return checks + [check for live in all_live() for check in live.servers_here()]
    return sorted([*checks, *live_of(server).checks(server)], key=lambda check: AREAS.index(check.area))


def tiers(checks: list[Check]) -> list[str]:
    """The tiers on which a capture is possible, the best first."""
    return [check.name for check in checks if check.area == "capture" and check.status in (OK, LIMITED)]


def _host_checks() -> Iterator[Check]:
    machine, system = platform.machine(), platform.system()
    known = system == "Linux" and machine == "x86_64"
    found = f"{system} {platform.release()}, {machine}"
    yield judge("host", "platform", known, found, "shared memory can be read only on Linux x86_64; sampling over SQL works", bad=LIMITED)
    clock_file = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    clock = (proc.read_text(clock_file) or "").strip() or "not shown by this kernel"
    fast = clock not in ("hpet", "acpi_pm", "jiffies")
    yield judge(
        "host", "clock source", fast, clock, "reading the clock is slow, also for the server", f"echo tsc | sudo tee {clock_file}", LIMITED
    )
    own = [name for name, bit in CAPABILITIES.items() if has_capability(bit)]
    yield Check("host", "own rights", INFO, f"uid {os.geteuid()}, " + (", ".join(own) if own else "no special capabilities"))
    scope = (proc.read_text("/proc/sys/kernel/yama/ptrace_scope") or "").strip()
    free = scope in ("", "0") or has_capability(CAPABILITIES["CAP_SYS_PTRACE"])
    found = f"kernel.yama.ptrace_scope = {scope}" if scope else "no Yama"
    effect = "memory of processes that are not our children cannot be read"
    yield judge("host", "ptrace scope", free, found, effect, "sudo sysctl kernel.yama.ptrace_scope=0", LIMITED)
    on_time = has_capability(CAPABILITIES["CAP_SYS_NICE"]) or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] != 0
    found = "allowed" if on_time else "CAP_SYS_NICE is missing"
    effect = "on a busy host passes are late, and waits for a hot row read up to 15 % low"
    yield judge("host", "real-time priority", on_time, found, effect, "sudo leadline ...", LIMITED)
    schedstat = (proc.read_text("/proc/self/schedstat") or "").split()
    counts = len(schedstat) >= 2 and schedstat[0] != "0"
    found = "/proc/PID/schedstat counts" if counts else "/proc/PID/schedstat is absent or 0"
    effect = "CPU cannot be split into running and waiting to run"
    yield judge("host", "scheduler times", counts, found, effect, "use a kernel with CONFIG_SCHED_INFO (all distributions have it)")
    delay = (proc.read_text("/proc/sys/kernel/task_delayacct") or "").strip()
    found = f"kernel.task_delayacct = {delay}" if delay else "not in this kernel"
    command = "sudo sysctl kernel.task_delayacct=1" if delay else "use a kernel with CONFIG_TASK_DELAY_ACCT"
    yield judge("host", "delay accounting", delay == "1", found, "block I/O delay per session reads 0", command)
    pressure = bool(proc.read_text("/proc/pressure/cpu"))  # a kernel that could count it and does not has the file, too
    found = "/proc/pressure" if pressure else "the kernel counts no pressure"
    yield judge("host", "pressure", pressure, found, "host-wide stalls cannot be seen", "boot the kernel with psi=1")
    yield from _kernel_tiers()


def _kernel_tiers() -> Iterator[Check]:
    """How threads can be traced, and what stands against a better way."""
    refused: dict[str, LeadlineError] = {}
    for tier, name in (("bpf", "BPF programs"), ("perf", "perf events")):
        try:
            check_kernel_tier(tier)
        except LeadlineError as e:
            refused[tier] = e
        effect = "" if tier not in refused else f"threads cannot be traced with --kernel-tier {tier}"
        found = refused[tier].message if tier in refused else "the kernel gives them"
        yield judge("host", name, tier not in refused, found, effect, _command(refused.get(tier)))
    if "bpf" not in refused:
        yield Check("host", "kernel tier", OK, "bpf: threads are traced, and added up in the kernel")
    elif "perf" not in refused:
        effect = "requests of disks, stacks of sleeps and of failing calls"
        yield Check("host", "kernel tier", LIMITED, "perf: threads are traced at a higher cost", effect, _command(refused["bpf"]))
    else:
        effect = "leadline trace and take --kernel cannot trace threads"
        yield Check("host", "kernel tier", MISSING, "proc: processes are read from /proc", effect, _command(refused["bpf"]))


def _command(error: LeadlineError | None) -> str:
    """What would mend it, for this Python."""
    python = os.path.realpath(sys.executable)
    return "" if error is None else error.hint.replace("run as root, or: ", "sudo ").replace("on the Python that runs leadline", python)


def has_capability(bit: int) -> bool:
    effective = int(proc.status_fields(os.getpid()).get("CapEff", "0"), 16)
    return bool(effective >> bit & 1)


def verdict(checks: list[Check], server: Server | None) -> str:
    """One line: what a capture of this target would be."""
    if server is None:
        return "Run leadline doctor PID, DATA_DIR or DSN to check one server."
    found = tiers(checks)
    if not found:
        return "This target cannot be captured from here."
    return f"This target can be captured with {found[0]}."


def as_json(checks: list[Check], server: Server | None) -> dict[str, Any]:
    """What `leadline doctor --json` prints."""
    return {
        "target": None if server is None else server.named_by(),
        "tiers": tiers(checks),
        "verdict": verdict(checks, server),
        "checks": [check.as_dict() for check in checks],
    }
