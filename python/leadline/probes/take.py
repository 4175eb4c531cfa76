"""Takes a capture: finds what to measure, attaches the probes, and records with them (recording.py)."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.capture import manifest
from leadline.capture.folder import new_capture
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.target import Target, resolve
from leadline.errors import LeadlineError
from leadline.probes.following import Following
from leadline.probes.host import DEFAULT_RATE_HZ as HOST_RATE_HZ
from leadline.probes.host import HostProbe
from leadline.probes.keeper import Keeper
from leadline.probes.kernel import attach as attach_kernel
from leadline.probes.pooler import PoolerProbe
from leadline.probes.probe import Probe
from leadline.probes.recording import Recording, cpu_s
from leadline.probes.sessions import SessionsProbe, attach, follow
from leadline.probes.sockets import SocketsProbe
from leadline.probes.sql_tier import MAX_RATE_HZ
from leadline.probes.wire import WireProbe
from leadline.progress import Progress, Silent

if TYPE_CHECKING:
    from leadline.probes.pcap_filter import Filter

TIERS = ("auto", "shm", "sql")
PROBES = ("sessions", "host", "sockets", "kernel", "wire")
UNASKED = ("sessions", "host", "sockets")  # without --probes
EVERY_INTERFACE = "any"  # clients come from this host and from others
MIN_RATE_HZ, MAX_SHM_RATE_HZ = 1.0, 10_000.0


def take(
    *,
    dsn: str | None = None,
    pid: int | None = None,
    data_dir: str | Path | None = None,
    host: bool = False,
    for_s: float,
    rate_hz: float | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    tier: str = "auto",
    probes: Collection[str] | None = None,
    kernel_tier: str = "auto",
    kernel_detail: str = "events",
    kernel_budget: float = 0.3,
    kernel_retransmits: bool = False,
    only: Filter | None = None,
    keep_going: bool = False,
    stop_with_server: bool = False,
    pooler: str | None = None,
) -> Path:
    """Takes a capture and gives its folder.

    for_s: seconds. rate_hz: passes a second, 1 to 10,000 (over SQL at most 10), 100 unless given; with `host`, which needs no
    server, readings of the host, 0.1 to 10, 1 unless given. out: the capture folder, or an existing folder to put it in; None for
    leadline-DATE-TIME.leadline here. overwrite: replace a capture that is there. probes: names of PROBES; None
    for those of UNASKED, as far as the target allows. kernel_tier: how threads are traced, one of kernel.TIERS;
    kernel_detail: one of kernel.DETAILS. kernel_budget: CPU time that tracing may take, as a share of one core.
    kernel_retransmits: with the segments of TCP that are sent again. only: the packets that are wanted. keep_going: when one probe
    fails, the others go on. stop_with_server: end with an error when the server ends or restarts; else sampling goes on when it is
    back. Ctrl-C or SIGTERM ends the window early and keeps everything.
    pooler: connection string of the console of a PgBouncer before the server, which is asked with the others.
    Raises LeadlineError; when the capture had begun, its `where` is the folder that was kept.
    """
    progress = progress or Silent()
    cpu_at_call = cpu_s()
    rate_hz = (HOST_RATE_HZ if host else 100.0) if rate_hz is None else rate_hz
    chosen = check_options(for_s, rate_hz, tier, host, probes)
    if host and (dsn is not None or pid is not None or data_dir is not None):
        raise LeadlineError("usage", "--host measures the host alone", hint="leave out --host: a server on this host is measured with it")
    if only is not None and "wire" not in chosen:
        raise LeadlineError("usage", "--filter is for packets, which are not captured", hint="add --packets")
    target = None if host else resolve(dsn, pid, data_dir)
    options: dict[str, Any] = {"for_s": for_s, "rate_hz": rate_hz, "tier": tier, "probes": list(chosen), "keep_going": keep_going}
    options["stop_with_server"] = stop_with_server
    kernel = {"tier": kernel_tier, "detail": kernel_detail, "budget": kernel_budget, "retransmits": kernel_retransmits}
    if "kernel" in chosen:
        options |= {f"kernel_{name}": value for name, value in kernel.items()}
    if only is not None:
        options["filter"] = only.expression
    with new_capture(out, overwrite=overwrite) as directory:
        console = None if pooler is None else PoolerProbe(pooler)
        attached, absent, notes = _attach(target, directory, rate_hz, tier, chosen, kernel, only, keep_going, not stop_with_server)
        attached += [console] if console is not None else []
        evidence = this_host() if target is None else target.evidence()
        recording = Recording(directory, evidence, [*attached, Keeper(directory)], progress, options, notes, cpu_at_call)
        recording.manifest.probes |= absent
        recording.run(for_s)
    return directory


def this_host() -> manifest.Target:
    """The host as the target of a capture."""
    return manifest.Target("host", manifest.Host.this().name, cpu_count=os.cpu_count())


def _attach(
    target: Target | None, directory: Path, rate_hz: float, tier: str, chosen: Collection[str], kernel: dict[str, Any],
    only: Filter | None, keep_going: bool, follows: bool,
) -> tuple[list[Probe], dict[str, manifest.ProbeState], list[str]]:
    """The probes, those that were wanted and cannot be had, and what the user should know."""
    if target is None:
        return [HostProbe(directory, rate_hz, required=True)], {}, []
    probes: list[Probe] = []
    absent: dict[str, manifest.ProbeState] = {}
    notes = list(target.notes)
    followed: Following | None = None
    if "sessions" in chosen:
        try:
            attached = attach(target, directory, rate_hz, tier)
            if follows:
                followed = follow(target, attached, directory)
            probes.append(SessionsProbe(target, attached, required=not keep_going))
            notes += attached.notes
        except LeadlineError as e:
            if not keep_going or "host" not in chosen or target.pid is None:
                raise
            absent["sessions"] = _absent(e)
            notes.append(f"sessions are not sampled: {absent['sessions'].why}")
    if "host" in chosen:
        if target.pid is not None:
            alone = not probes
            probes.append(HostProbe(directory, HOST_RATE_HZ, required=alone, pid=target.pid, stored=postmaster.stored_paths(target.pid)))
        elif not probes:
            raise LeadlineError("usage", "the server does not run on this host", hint="take the capture on the server's host")
    if "sockets" in chosen and (target.pid is not None or not probes):
        try:
            sockets = SocketsProbe(directory, *_pid_and_port(target))
            probes.append(sockets)
            if followed is not None:
                followed.on_return.append(lambda now: sockets.follow(*_pid_and_port(now)))
        except LeadlineError as e:
            if not probes:
                raise
            absent["sockets"] = _absent(e)
    if "kernel" in chosen:
        if target.pid is None:
            raise LeadlineError("usage", "the server does not run on this host", hint="take the capture on the server's host")
        try:
            traced = attach_kernel(directory, [target.pid], **kernel, required=not keep_going)
        except LeadlineError as e:
            if not keep_going:
                raise
            absent["kernel"] = _absent(e)
            notes.append(f"threads are not traced: {e.message}")
        else:
            notes += traced.notes
            if traced.probe is not None:
                probes.append(traced.probe)
                if followed is not None:
                    followed.on_return.append(traced.probe.follow)
            elif "host" not in chosen:
                probes.append(HostProbe(directory, HOST_RATE_HZ, required=not keep_going, pid=target.pid))
            if traced.state is not None:
                absent["kernel"] = traced.state
    if "wire" in chosen:
        try:
            port, program = _pid_and_port(target)[1], None if only is None else only.for_kernel()
            probes.append(WireProbe(directory, EVERY_INTERFACE, [port], required=not keep_going, program=program))
        except LeadlineError as e:
            if not keep_going:
                raise
            absent["wire"] = _absent(e)
            notes.append(f"packets are not captured: {e.message}")
    return probes, absent, notes


def _absent(e: LeadlineError) -> manifest.ProbeState:
    return manifest.ProbeState("off", "; ".join(part for part in (e.message, e.detail) if part), e.hint)


def _pid_and_port(target: Target) -> tuple[int, int]:
    """Of a server on this host that listens on TCP. Raises LeadlineError."""
    if target.pid is None:
        raise LeadlineError("usage", "the server does not run on this host", hint="take the capture on the server's host")
    found = postmaster.read_pid_file(postmaster.data_path(target.pid))
    if found is None:
        hint = "run as the owner of the files (often postgres), or as root"
        raise LeadlineError("rights", "cannot tell the server's port: its postmaster.pid cannot be read", hint=hint)
    if not found.listens_on_tcp:
        raise LeadlineError("usage", "the server does not listen on TCP", "Unix sockets have no packets and no windows")
    return target.pid, found.port


def check_options(for_s: float, rate_hz: float, tier: str, host: bool, probes: Collection[str] | None) -> tuple[str, ...]:
    """The names of the probes that are wanted."""
    unknown = sorted(set(probes or ()) - set(PROBES))
    if unknown or (probes is not None and not probes):
        what = f"no probe named {unknown[0]}" if unknown else "no probe was chosen"
        raise LeadlineError("usage", what, hint="probes: " + ", ".join(PROBES))
    if host and probes is not None and set(probes) != {"host"}:
        raise LeadlineError("usage", "with --host the only probe is host", hint="remove --probes, or name a server")
    if tier not in TIERS:
        raise LeadlineError("usage", f"no tier named {tier}", hint="tiers: " + ", ".join(TIERS))
    if not for_s > 0:
        raise LeadlineError("usage", "the window must be longer than nothing", hint="--for 60s")
    if not host and not MIN_RATE_HZ <= rate_hz <= MAX_SHM_RATE_HZ:
        raise LeadlineError(
            "usage",
            f"a rate of {rate_hz:g} passes a second is not possible",
            hint=f"{MIN_RATE_HZ:g} to {MAX_SHM_RATE_HZ:,.0f} passes per second; over SQL at most {MAX_RATE_HZ:g}",
        )
    return ("host",) if host else tuple(name for name in PROBES if name in (UNASKED if probes is None else probes))
