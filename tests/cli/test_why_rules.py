"""Causes that no test can plant without harm to the host, its limits on files and processes; and which of two rules answers."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from leadline.why import explain
from leadline.why.cause import Cause
from leadline.why.seen import seen_of

UNLIMITED = [None, None]


def causes(call: str, error: int, exit_code: int = 1, about: dict[str, Any] | None = None, **facts: Any) -> list[Cause]:
    """Of a command whose one failed call this is, with these facts. about: what else is known of the call."""
    process = {
        "pid": 4711, "parent": None, "program": "/opt/server", "exit_code": exit_code, "signal": None, "core": False, "sender": None,
        "forbidden": None, "killed_by_own": False, "exec_ns": 1, "said": "", "first_error": "", "said_ns": None, "said_to": "",
        "printed": "", "printed_ns": None,
        "cpu_s": 0.1, "cpu_limit_s": None, "stack": None, "out_of_memory": None, "lookups": [], "libraries": [],
        "started_ns": 1, "ended_ns": 9,
    }  # fmt: skip
    failure = {
        "process": 0, "call": call, "errno": error, "path": None, "address": None, "count": 1, "said": 0, "said_ns": None,
        "line": "", "before_exec": False, "resolved": False, "detail": {},
        "by_filter": False, "ts_ns": 5, "facts": {"who": {"uid": 26}, **facts}, **(about or {}),
    }  # fmt: skip
    counts = {"left_running": 0, "outputs": [], "processes_left_out": 0, "failures_left_out": 0}
    seen = {"processes": [process], "failures": [failure], "filtered": True, **counts}
    return explain(seen_of(json.dumps(seen)))


def test_the_host_has_no_room_for_more_open_files() -> None:
    [cause] = causes("openat", errno.ENFILE, limits={"Max open files": [1024, 4096]}, open_files=7)
    assert (cause.kind, cause.statement) == ("open_files", "The host has no room for more open files.")
    assert cause.fix == "sysctl fs.file-max=N" and "by server (pid 4711)" in cause.evidence[0]
    assert causes("openat", errno.ENFILE, exit_code=0) == []


def test_the_host_has_no_room_for_more_processes() -> None:
    [cause] = causes("clone3", errno.EAGAIN, limits={"Max processes": UNLIMITED}, group=None)
    assert (cause.kind, cause.statement) == ("processes", "The host has as many processes and threads as the kernel allows.")
    assert "kernel.pid_max" in cause.fix
    [cause] = causes("clone3", errno.EAGAIN, limits={"Max processes": [64, 64]}, group={"path": "/sys/fs/cgroup/x", "most": 99, "has": 7})
    assert cause.statement == "User 26 may have 64 processes and threads, and cannot start one more."
    assert causes("clone3", errno.EAGAIN, exit_code=0, limits={"Max processes": [64, 64]}, group=None) == []


@pytest.mark.parametrize(
    ("call", "error", "about", "facts", "kind"),
    [
        ("inotify_init1", errno.EMFILE, {}, {"limits": {"Max open files": [64, 64]}, "open_files": 7}, "inotify_instances"),
        ("inotify_init1", errno.EMFILE, {}, {"limits": {"Max open files": [64, 64]}, "open_files": 64}, "open_files"),
        ("inotify_add_watch", errno.ENOSPC, {"path": "/srv"}, {}, "inotify_watches"),
        ("mlock", errno.ENOMEM, {}, {"limits": {"Max locked memory": [4096, 4096]}}, "locked_memory"),
        ("mlock", errno.EPERM, {}, {"limits": {"Max locked memory": [0, 0]}}, "locked_memory"),
        ("mount", errno.EPERM, {"by_filter": True}, {}, "seccomp"),
        ("execve", errno.ENOENT, {"path": "/opt/tool", "said": 4}, {}, "program_not_found"),
    ],
)
def test_the_narrower_rule_answers_alone(call: str, error: int, about: dict[str, Any], facts: dict[str, Any], kind: str) -> None:
    assert [cause.kind for cause in causes(call, error, exit_code=127, about=about, **facts)] == [kind]
