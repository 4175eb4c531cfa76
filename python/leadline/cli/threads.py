"""leadline threads: where the threads of a trace spent their time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import click

from leadline.cli.forms import form, printed
from leadline.figures import fit_path, percent, quantity
from leadline.output import UNLIMITED, shown, terminal_width, to_table, width_here
from leadline.units import sized
from leadline.views.threads import PARTS, Report, call_list, report, thread_list

BESIDE_FILE = 56  # columns of figures in the list of files
MOST_THREADS, MOST_CALLS, MOST_WAITS = 40, 30, 5
MOST_FAILURES, MOST_FRAMES = 5, 8
ORDERS = {
    "time": "elapsed_ns", "count": "calls", "failed": "failed", "max": "max_ns", "sleep": "sleep_ns", "runq": "runq_ns", "cpu": "cpu_ns",
}  # fmt: skip


@click.command(
    "threads",
    epilog="\b\nExamples:\n  leadline threads slow.leadline\n  leadline threads slow.leadline --sort failed\n"
    "  leadline threads slow.leadline 4711\n"
    "  leadline threads slow.leadline 4711 --json | jq '.calls[0]'",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.argument("pid", type=int, required=False)
@click.option("--sort", type=click.Choice(list(ORDERS)), default="time", show_default=True, help="Order of the system calls.")
@form("Print all numbers as JSON; times in ns.", "Print the threads, or the system calls of PID, as CSV; times in ns.")
def command(capture: Path, pid: int | None, sort: str, form: str | None) -> None:
    """Show where the threads of a trace spent their time.

    Without PID: all threads, and their system calls in total. With the id of a process or thread: its scheduling; its system
    calls, with the time asleep, in the run queue and on a CPU; what it slept in; and who woke it.
    """
    from leadline.capture.reader import open_capture

    opened = open_capture(capture)
    try:
        if pid is None:
            threads = thread_list(opened)
            if not printed(form, threads, threads):
                click.echo(f"{_list(threads)}\n\n{_all_calls(call_list(opened), sort)}")
        else:
            found = report(opened, pid)
            of = {"calls": "count"}.get(ORDERS[sort], ORDERS[sort])
            found.calls.sort(key=lambda call: -call[of])
            if not printed(form, found.calls, asdict(found)):
                click.echo("\n".join(_report(found)))
        traced = opened.manifest.probe("kernel")
        if traced.tier == "perf" and form is None:
            click.echo(textwrap.fill(traced.why, width_here()))
    finally:
        opened.close()


def _list(threads: list[dict[str, Any]]) -> str:
    def ms(*values: int) -> float:
        return round(sum(values) / 1e6, 1)

    # How they are scheduled is told where one is scheduled in a way of its own.
    told = any((t["policy"] or "other", t["priority"] or 0) != ("other", 0) for t in threads)
    names = ("pid", "tid", "comm", *(("policy",) if told else ()), "user ms", "sys ms", "runq ms", "sleep ms", "calls", "failed")
    rows = [
        (
            t["pid"], t["tid"], t["comm"], *((f"{t['policy'] or ''} {t['priority'] or 0}",) if told else ()),
            ms(t["user_ns"]), ms(t["system_ns"]), ms(t["runq_preempt_ns"], t["runq_wake_ns"]),
            ms(t["sleep_ns"], t["sleep_d_ns"], t["stopped_ns"]), t["calls"], t["failed_calls"],
        )
        for t in threads[:MOST_THREADS]
    ]  # fmt: skip
    more = len(threads) - MOST_THREADS
    return to_table(names, rows) + (f"\n{more} more: --json lists all" if more > 0 else "")


def _all_calls(calls: list[dict[str, Any]], sort: str) -> str:
    names = ("call", "count", "per s", "failed", "total s", "sleep s", "runq s", "CPU s", "max ms")
    seconds = ("elapsed_ns", "sleep_ns", "runq_ns", "cpu_ns")
    rows = [
        (
            c["call"], c["calls"], round(c["per_s"] or 0, 1), c["failed"], *(round(c[n] / 1e9, 3) for n in seconds),
            round(c["max_ns"] / 1e6, 1),
        )
        for c in sorted(calls, key=lambda c: -c[ORDERS[sort]])[:MOST_CALLS]
    ]  # fmt: skip
    more = len(calls) - MOST_CALLS
    return "SYSTEM CALLS\n" + to_table(names, rows) + (f"\n{more} more: leadline sql CAPTURE \"from call_sum\"" if more > 0 else "")


def _report(r: Report) -> Iterator[str]:
    time, traced = r.time, r.time["traced_ns"] or 1
    comm = r.threads[-1]["comm"]
    yield f"PID {r.pid} {comm}: {len(r.threads)} thread{'s' if len(r.threads) > 1 else ''}, traced {traced / 1e9:.3f} s"
    yield ""
    yield "SCHEDULER ACTIVITY                  seconds   share"
    for name, label in PARTS:
        if time[name] or not label.startswith(("stopped", "sleep,", "unknown")):
            yield f"  {label:<30}{time[name] / 1e9:>11.6f}  {time[name] / traced:>6.2%}"
    yield (
        f"  {time['sleeps']:,} sleeps, {time['preemptions']:,} preemptions, {time['calls']:,} calls, {time['failed_calls']:,} failed"
        + (f"; last on CPU {r.last_cpu}" if r.last_cpu is not None else "")
    )
    yield f"  {time['migrations']:,} moves to another CPU{_to_other_nodes(r)}"
    for one in r.policies:
        of = f" ({one['threads']:,} threads)" if len(r.policies) > 1 else ""
        yield f"  scheduled as {_policy(one)}{of}"
    if time["minor_faults"] or time["major_faults"]:
        yield f"  {time['minor_faults']:,} page faults, {time['major_faults']:,} more with I/O"
    if time["interrupt_ns"]:
        yield f"  {time['interrupt_ns'] / 1e9:.6f} s of user and system were interrupts"
    yield ""
    yield f"{'SYSTEM CALLS':<26}{'count':>8}{'total s':>11}{'avg us':>9}{'p99 us':>9}{'max us':>10}{'errors':>7}"
    for call in r.calls[:MOST_CALLS]:
        yield _line(call["call"], call["count"], call["elapsed_ns"], call["p99_ns"], call["max_ns"], call["failed"])
        rate = f"{quantity(call['per_s'])} a second" if call["per_s"] else ""
        if call["bytes"]:
            each, per_s = call["bytes"] / call["count"], call["bytes"] / r.window_s
            rate += f", {sized(each)} each, {sized(per_s)}/s"
        if rate and call["count"] > 1:
            yield f"  {rate}"
        if call["sleeps"]:
            yield _line("  sleep", call["sleeps"], call["sleep_ns"])
            for wait in [w for w in call["waits"] if w["wait_function"]][:MOST_WAITS]:
                yield _line(f"    {wait['wait_function']}", wait["sleeps"], wait["sleep_ns"], None, wait["max_ns"])
        if call["sleep_ns"] or call["runq_ns"]:
            yield _line("  run queue", None, call["runq_ns"])
            yield _line("  CPU", None, call["cpu_ns"])
        if call["unknown_ns"]:
            yield _line("  unknown", None, call["unknown_ns"])
        for error, count in call["errors"].items():
            yield _line(f"  {error}", count)
    if len(r.calls) > MOST_CALLS:
        yield f"{len(r.calls) - MOST_CALLS} more: --json lists all"
    yield from _failures(r)
    short = "(shorter than the threshold)"
    all_ns = sum(w["sleep_ns"] for w in r.waits) or 1
    slept = [
        (w["wait_function"] or short, w["sleeps"], w["sleep_ns"] / 1e9, percent(w["sleep_ns"] / all_ns),
         w["sleeps"] and round(w["sleep_ns"] / w["sleeps"] / 1e3, 1), w["max_ns"] and round(w["max_ns"] / 1e3, 1))
        for w in r.waits
    ]  # fmt: skip
    yield from _table("SLEPT IN", ("function", "sleeps", "total s", "share", "avg us", "max us"), slept)
    for title, wakings in (("WOKEN BY", r.wakers), ("WOKE", r.woken)):
        rows = [(w["tid"], w["comm"], w["wakings"], w["sleep_ns"] / 1e9) for w in wakings]
        yield from _table(title, ("tid", "comm", "wakings", "after s"), rows)
    room = max((terminal_width() or UNLIMITED) - BESIDE_FILE, 16)
    files = [
        (fit_path(f["file"], room), f["calls"], *(sized(f[n]) if f[n] else "" for n in ("read_bytes", "written_bytes")),
         round(f["elapsed_ns"] / 1e9, 6), round(f["p99_ns"] / 1e3, 1), round(f["max_ns"] / 1e3, 1))
        for f in r.files
    ]  # fmt: skip
    yield from _table("FILES AND SOCKETS", ("file", "calls", "read", "written", "total s", "p99 us", "max us"), files)
    disks = [
        (d["device"], d["operation"], d["requests"], sized(d["bytes"]), *(round(d[n] / d["requests"] / 1e3, 1) for n in
         ("queue_ns", "service_ns")), round(d["p99_ns"] / 1e3, 1), round(d["max_ns"] / 1e3, 1))
        for d in r.disks
    ]  # fmt: skip
    yield from _table("DISKS", ("device", "operation", "count", "bytes", "queue us", "device us", "p99 us", "max us"), disks)
    yield ""
    yield f"check: the parts differ from the traced time by {r.closes_ns} ns"
    for check in r.checks:
        apart, allowed = (check["trace_ns"] - check["kernel_ns"]) / 1e6, check["allowed_ns"] / 1e6
        yield f"check: the scheduler counted {check['kernel_ns'] / 1e9:.6f} s {check['what']}"
        verdict = "within" if check["holds"] else "more than"
        yield f"       the trace differs by {apart:+.3f} ms, {verdict} the {allowed:.3f} ms that are allowed"
    if time["lost_records"]:
        yield f"lost: {time['lost_records']:,} events are missing above, except in the scheduler activity"


def _to_other_nodes(r: Report) -> str:
    if r.numa_nodes == 1:
        return "; the host has one NUMA node"
    return "" if not r.policies else f", {r.time['node_moves']:,} of them to another NUMA node"


def _policy(of: dict[str, Any]) -> str:
    """As chrt and nice say it."""
    what = {"fifo": "priority", "rr": "priority", "deadline": None}.get(of["policy"], "nice")
    return str(of["policy"]) + (f", {what} {of['priority']}" if what else "")


def _failures(r: Report) -> Iterator[str]:
    known = [f for f in r.failures if f["frames"]]
    if not known:
        return
    yield ""
    yield "FAILED CALLS, AND WHERE MOST WERE MADE"
    for failure in known[:MOST_FAILURES]:
        of = f" ({failure['samples']} of {failure['of_samples']} stacks taken)"
        yield shown(f"{failure['call']} {failure['error']}, {failure['count']:,} in {failure['elapsed_ns'] / 1e9:.6f} s{of}")
        for frame, line in list(zip(failure["frames"], failure["lines"]))[:MOST_FRAMES]:
            yield shown(f"  {frame}{f' ({PurePath(line).name})' if line else ''}")
        if len(failure["frames"]) > MOST_FRAMES:
            yield f"  {len(failure['frames']) - MOST_FRAMES} more"


def _line(
    name: str,
    count: int | None = None,
    ns: int | None = None,
    p99_ns: int | None = None,
    max_ns: int | None = None,
    failed: int | None = None,
) -> str:
    mean = "" if not count or ns is None else f"{ns / count / 1e3:.1f}"
    return (
        f"{shown(name, 25):<25} {'' if count is None else count:>8}{'' if ns is None else f'{ns / 1e9:.6f}':>11}{mean:>9}"
        f"{'' if p99_ns is None else f'{p99_ns / 1e3:.1f}':>9}{'' if max_ns is None else f'{max_ns / 1e3:.1f}':>10}{failed or '':>7}"
    ).rstrip()


def _table(title: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield title
    yield to_table(names, rows[:12])
    if len(rows) > 12:
        yield f"{len(rows) - 12} more: --json lists all"
