"""What `leadline load run` warns of: that figures say something else than they seem to."""

from __future__ import annotations

from typing import Any

from leadline.load.text import warnings


def found(*, done: int = 100, failed: int = 0, **others: Any) -> dict[str, Any]:
    phase = {"warm_up": False, "busiest_thread": 0.1, "longest_queue": 0.0, "done": done, "failed": failed, "due": 1000}
    none = {"not_begun": 0, "first_late_ns": 0, "unfinished": 0, "clients_gone": 0, "clients": 4, "interrupted": False}
    return {"phases": [phase], "realtime_priority": None} | none | others


def test_a_load_that_went_well_warns_of_nothing() -> None:
    assert warnings(found(failed=100)) == []


def test_a_load_that_mostly_failed_says_whose_times_it_has() -> None:
    assert warnings(found(failed=300)) == ["WARNING: 75 % of the transactions failed; the times above are of the others, see Errors"]


def test_what_was_due_without_clients_is_no_fault_of_the_server() -> None:
    assert warnings(found(not_begun=768, clients_gone=4)) == [
        "WARNING: 768 transactions would have been due after the last client had ended",
        "WARNING: 4 of 4 clients ended early by an error; see Errors",
    ]
    late, gone = warnings(found(not_begun=768, first_late_ns=1_500_000_000, clients_gone=3))
    assert late.startswith("WARNING: 768 transactions were due and not begun when the time was over, the first for 1.5 s: the server ")
    assert gone.startswith("WARNING: 3 of 4 clients")


def test_what_was_due_at_the_very_end_says_nothing_of_the_server() -> None:
    assert warnings(found(not_begun=1, first_late_ns=400_000)) == [
        "note: 1 transaction was due and not begun when the time was over, the first for 0.0004 s"
    ]
    for left, late_s in ((11, 0.1), (10, 1.0)):
        [said] = warnings(found(not_begun=left, first_late_ns=round(late_s * 1e9)))
        assert said.startswith(f"WARNING: {left} transactions were due and not begun when the time was over, the first for {late_s:g} s: ")
