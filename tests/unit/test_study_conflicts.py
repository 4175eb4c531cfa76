"""What the study `conflict` says: the account of a trial, and who pays in each cell."""

from __future__ import annotations

from leadline.engines.postgres.forecast import Reading
from leadline.study import conflicts
from leadline.study.conflict import account
from test_study_outages import found


def test_a_trial_says_what_replay_the_reader_and_the_primary_paid() -> None:
    held = [Reading(n / 10, 10 * n + 10, 10 * n + 10, 10 if n < 20 else 10 * n + 10) for n in range(30)]
    assert account(held, [(0, 5), (700, 12), (3, 90)], 2, 1) == {
        "behind_s": 1.9, "stalled_s": 1.8, "finished": 2, "cancelled": 1, "held_xids": 700, "dead_rows": 90,
    }  # fmt: skip
    even = [Reading(n / 10, n, n, n) for n in range(30)]
    assert account(even, [(0, 5)], 0, 0)["behind_s"] == 0.05, "no less than two readings are apart"


def test_who_pays_is_said_of_each_cell_with_the_pair_that_it_was() -> None:
    def values(behind: float, cancelled: int, xids: int) -> dict[str, list[float]]:
        of = {"seconds behind, most": [behind] * 3, "seconds without replay, longest": [behind / 2] * 3, "snapshots kept": [2.0] * 3}
        of |= {"snapshots cancelled": [float(cancelled)] * 3, "transactions held back": [float(xids)] * 3}
        return of | {"dead rows kept": [0.0] * 3}

    of = found("conflict", {("30s", "off"): values(3.0, 0, 0), ("0", "off"): values(0.5, 2, 0), ("30s", "on"): values(0.25, 0, 900)})
    waits, cancels, keeps = conflicts.conflicts(of)
    assert (waits.name, waits.behind_s, waits.stalled_s, waits.finished) == (
        "max_standby_streaming_delay=30s, hot_standby_feedback=off", 3.0, 1.5, 6,
    )  # fmt: skip
    assert (cancels.cancelled, keeps.cancelled, keeps.held_xids) == (6, 0, 900)
    text = "\n".join(conflicts.lines(of))
    assert "(a loopback pair)" in text and text.count("hot_standby_feedback=") == 3
    heading, *plots = conflicts.drawn(of)
    assert "a loopback pair" in heading and len(plots) == 3 and all("30s, on</text>" in plot for plot in plots)
    assert conflicts.as_dicts(of)[1]["cancelled"] == 6
    assert conflicts.lines(of | {"judged": None}) == conflicts.drawn(found("outage", {})) == []
