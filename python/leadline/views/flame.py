"""Stacks of a trace, folded: how much time (or how many calls) each path of functions stands for.

A path begins with the name of the process; functions of the kernel end in `_[k]`, as other tools for folded stacks have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError

# Kind of flame graph: rows of stack_sample, title, unit of the weights.
KINDS = {
    "on-cpu": ("on_cpu", "On a CPU", "ns"),
    "off-cpu": ("asleep", "Asleep in system calls", "ns"),
    "waker": ("asleep", "Asleep in system calls, by who woke", "ns"),
    "failed": ("failed", "Failed system calls (a sample of them)", "calls"),
}
# The user stack goes on beyond what was copied, or through a file without unwind tables.
CUT = "[cut]"

Folded = dict[tuple[str, ...], int]


def folded(capture: Capture, kind: str, pid: int | None = None) -> Folded:
    """Weight by path, the root first; ns, or calls of `failed`. Raises LeadlineError when there are no such samples."""
    return {path: weight for path, (weight, _) in stacks(capture, kind, pid).items()}


def stacks(capture: Capture, kind: str, pid: int | None = None, condition: str = "true") -> dict[tuple[str, ...], tuple[int, int]]:
    """The same with the number of samples behind each weight. condition: SQL over a row `s` of stack_sample."""
    if why := capture.unavailable("stack_sample"):
        raise LeadlineError("not_found", "this capture has no stacks", detail=why, hint="leadline trace -p PID --for 20s")
    rows = capture.rows(
        f"""
        select n.comm, u.frames, coalesce(u.complete, true) as complete, k.functions, coalesce(c.name, '') as call,
               coalesce(e.name, s.errno::varchar) as error, s.waker_tid, w.comm as waker, sum(s.weight)::bigint as weight,
               count(*) as samples
        from stack_sample s join thread_name n using (thread_id) left join user_frames u using (user_stack_id)
        left join kernel_stack k using (stack_id) left join syscall_name c on c.nr = s.nr left join errno_name e on e.errno = s.errno
        left join task_name w on w.tid = s.waker_tid
        where s.kind = '{KINDS[kind][0]}' and {f"n.pid = {pid}" if pid is not None else "true"} and {condition} group by all
        """
    )
    if not rows:
        of = f" of process {pid}" if pid is not None else ""
        raise LeadlineError("not_found", f"no {kind} stacks{of} in this capture", hint=f"leadline threads {capture.path}")
    paths: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in rows:
        path = [row["comm"]]
        frames = row["frames"] or []
        # Where a program begins, its unwind tables do not say that nothing is above.
        if not row["complete"] and frames[-1:] != ["_start"]:
            path.append(CUT)
        path += reversed(frames)
        path += [f"{name}_[k]" for name in reversed(row["functions"] or [])]
        if kind == "failed":
            path.append(f"{row['call']} {row['error']}")
        elif kind != "on-cpu" and not row["functions"]:
            path.append(f"{row['call']} (short sleeps)")
        if kind == "waker":
            path.append(f"woken by {row['waker'] or row['waker_tid'] or 'an interrupt'}")
        weight, samples = paths.get(tuple(path), (0, 0))
        paths[tuple(path)] = (weight + row["weight"], samples + row["samples"])
    return paths


def as_lines(paths: Folded) -> Iterable[str]:
    """`root;caller;function weight`, a line for each path."""
    for path, weight in sorted(paths.items()):
        yield f"{';'.join(name.replace(';', ':') for name in path)} {weight}"


@dataclass(frozen=True)
class Function:
    """A function: what it stands for by itself, and with all that it called."""

    name: str
    itself: int
    total: int


def functions(paths: Folded) -> list[Function]:
    """All functions, those that cost most by themselves first."""
    itself: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for path, weight in paths.items():
        itself[path[-1]] += weight
        for name in set(path[1:]):
            total[name] += weight
    return sorted((Function(name, itself[name], total[name]) for name in total), key=lambda f: (-f.itself, -f.total, f.name))
