"""leadline events: the system calls and stays off the CPU of a trace, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leadline.cli.forms import form, printed
from leadline.errors import LeadlineError
from leadline.output import more_than, together

_OPENING = ("open", "openat", "openat2", "creat", "socket", "accept", "accept4")
_EVENTS = """
with c as (select ts_from from capture),
event as (
  select ts_from as began, ts, tid, pid, comm, call as what, duration_ns, ret, error, partial, sleep_ns, runq_ns,
         [arg0, arg1, arg2, arg3, arg4, arg5] as args, '' as slept_in, 0 as waker_tid, file, null as waker
  from call
  union all
  select o.ts - o.duration_ns, o.ts, n.tid, n.pid, n.comm, case when o.state = 0 then 'preempted' else 'sleep' end, o.duration_ns, null,
         null, false, o.sleep_ns, o.duration_ns - o.sleep_ns, [], coalesce(k.wait_function, ''), o.waker_tid, null, w.comm
  from off_cpu o join thread_name n using (thread_id) left join kernel_stack k using (stack_id)
  left join task_name w on w.tid = o.waker_tid
)
"""


@click.command(
    "events",
    epilog="\b\nExamples:\n  leadline events slow.leadline --pid 4711 --limit 50\n  leadline events slow.leadline --call semget --failed\n"
    "  leadline events slow.leadline --from 1.5 --to 1.6 --json",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--pid", type=int, metavar="PID", help="Only this process or thread.")
@click.option("--from", "from_s", type=float, metavar="SECONDS", help="Only events that began this many seconds after the start, or later.")
@click.option("--to", "to_s", type=float, metavar="SECONDS", help="Only events that began before this many seconds after the start.")
@click.option("--call", "call", metavar="NAME", help="Only this system call.")
@click.option("--failed", is_flag=True, help="Only calls that failed.")
@click.option("--limit", type=int, default=1000, show_default=True, metavar="N", help="Print at most N events.")
@form("Print a JSON list; times in ns, from_s in seconds from the start.")
def command(
    capture: Path, pid: int | None, from_s: float | None, to_s: float | None, call: str | None, failed: bool, limit: int, form: str | None
) -> None:
    """List the system calls and sleeps of a trace in time order.

    Each line has the seconds from the start of the trace, the thread, its command, the call with its arguments, the return value, and
    the elapsed time in microseconds; also the time asleep and in the run queue, if there was any. Events are in order of their start.
    """
    from leadline.capture.reader import open_capture

    if limit < 1:
        raise LeadlineError("usage", f"{limit} events cannot be printed", hint="--limit 1000")
    opened = open_capture(capture)
    try:
        if why := opened.unavailable("syscall"):
            raise LeadlineError("not_found", "this capture has no trace of threads", detail=why, hint="leadline trace -p PID --for 20s")
        if opened.scalar("select not exists (from syscall) and exists (from syscall_sum)"):
            raise LeadlineError(
                "not_found",
                "this trace has sums of calls, not single calls",
                hint="leadline threads shows the sums; for single calls trace with --kernel-detail events",
            )
        conditions = ["true"]
        if pid is not None:
            conditions.append(f"(pid = {pid} or tid = {pid})")
        if from_s is not None:
            conditions.append(f"began >= c.ts_from + {int(from_s * 1e9)}")
        if to_s is not None:
            conditions.append(f"began < c.ts_from + {int(to_s * 1e9)}")
        if failed:
            conditions.append("error is not null")
        if call is not None:
            quoted = call.replace("'", "''")
            conditions.append(f"what = '{quoted}'")
        found = f"from event cross join c where {' and '.join(conditions)}"
        columns = "(began - c.ts_from) / 1e9 as from_s, event.* exclude (began)"
        rows = opened.rows(f"{_EVENTS} select {columns} {found} order by began, ts limit {limit + 1}")
        said = ""
        if len(rows) > limit:
            rows.pop()
            there = opened.scalar(f"{_EVENTS} select count(*) {found}")  # not of the list: it would be put in order for it
            said = more_than(limit, int(there), "--limit N prints more; --from, --to, --pid, --call choose")
    finally:
        opened.close()
    if not printed(form, rows):
        for part in together(f"{_line(row)}\n" for row in rows):
            click.echo(part, nl=False)
    if said:
        click.echo(said, err=True)


def _line(e: dict[str, Any]) -> str:
    us = f"{e['duration_ns'] / 1e3:.1f} us"
    off = "".join(f", {name} {e[key] / 1e3:.1f}" for key, name in (("sleep_ns", "sleep"), ("runq_ns", "run queue")) if e[key])
    if e["ret"] is None:
        text = e["what"] + (f" in {e['slept_in']}" if e["slept_in"] else "")
        if e["waker_tid"]:
            text += f", woken by {e['waker_tid']}" + (f" {e['waker']}" if e["waker"] else "")
    else:
        args = "..." if e["partial"] else ", ".join(_argument(a) for a in e["args"])
        if e["file"] and not e["partial"] and e["what"] not in _OPENING:  # as strace -y
            first, _, rest = args.partition(",")
            args = f"{first}<{e['file']}>,{rest}"
        opened = f"<{e['file']}>" if e["file"] and e["what"] in _OPENING else ""
        text = f"{e['what']}({args}) = {e['error'] or e['ret']}{opened}"
    return f"{e['from_s']:12.6f} {e['tid']:>7} {e['comm'] or '':<15} {text}  {us}{off}"


def _argument(value: int) -> str:
    """As strace would: small numbers in decimal, others in hex."""
    return str(value) if abs(value) < 1 << 16 else hex(value % (1 << 64))
