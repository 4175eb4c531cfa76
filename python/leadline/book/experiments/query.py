"""An experiment of the book, as every view shows it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from leadline.book.db import Row
from leadline.book.experiments.design import METRICS
from leadline.book.experiments.ingest import read_design
from leadline.book.store import Store
from leadline.lab.verdict import by_chance

MOST_TRIES = 1000
ENDED = ("ok", "failed", "cancelled", "lost")


def tries_of(store: Store, question: str, run: int | None = None) -> list[Row]:
    """Experiments that asked the question, in the order in which they were registered. run: only those before this one."""
    before = "" if run is None else "and (e.registered, e.run) < (select registered, run from experiment where run = ?)"
    return store.rows(
        f"""select r.uid, r.status, r.project, r.template, e.registered, e.verdict, e.seal from experiment e join run r on r.id = e.run
            where e.question = ? {before} order by e.registered, e.run limit {MOST_TRIES}""",
        (question, *([] if run is None else [run])),
    )  # fmt: skip


def experiment(store: Store, run: Row, seen: Callable[[Row], bool] = lambda row: True) -> Row | None:
    """Of a row of `run`; None where no design was registered. seen: whether an earlier try may be named; it is counted in any case."""
    rows = store.rows("select * from experiment where run = ?", (run["id"],))
    if not rows:
        return None
    row, design = rows[0], read_design(rows[0]["design_json"])
    trials = store.rows(
        "select part, n, side, leg as run, started, value, problem from experiment_leg where run = ? order by started, part, n",
        (run["id"],),
    )
    known = {one["uid"]: one for one in tries_of(store, row["question"], run["id"])}
    uids = list(dict.fromkeys([*known, *json.loads(row["earlier_json"])]))
    tries = [{name: known[uid][name] for name in ("uid", "registered", "verdict")} for uid in uids if uid in known and seen(known[uid])]
    number = len(uids) + 1
    pairs = _pairs(design["order"], [trial for trial in trials if trial["part"] == "leg"])
    out = {
        "design": design, "registered": row["registered"], "seal": row["seal"], "question": row["question"], "verdict": row["verdict"],
        "good": None if row["good"] is None else bool(row["good"]), "text": row["text"],
        **{name: row[name] for name in ("ratio", "low", "high")}, "whole_pairs": sum(pair["ratio"] is not None for pair in pairs),
        "differs": [dict(zip(("fact", "before", "after"), one)) for one in json.loads(row["differs_json"])],
        "try": number, "earlier": tries, "pairs": pairs, "legs": trials, "tried": tried(number),
        "quantity": design["metric"] if design["metric"] in METRICS else "figure",
    }  # fmt: skip
    if row["verdict"] is None and run["status"] in ENDED:
        done = sum(trial["part"] == "leg" for trial in trials)
        out |= {"verdict": "none", "text": f"no verdict: it ended after {done} of {len(design['order'])} trials"}
    return out


def tried(number: int) -> str:
    """What to know of a verdict that is not the first on its question; empty for the first."""
    if number < 2:
        return ""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if number % 100 in (11, 12, 13) else ends.get(number % 10, "th")
    chance = f"{100 * by_chance(number):.0f} %"
    return f"this is the {number}{end} try of this question: {number} tries of what is alike show a difference in {chance} of cases"


def _pairs(order: str, trials: list[Row]) -> list[Row]:
    """Each pair of the design with what its trials measured; None for what is not there."""
    by_number, out = {trial["n"]: trial for trial in trials}, list[Row]()
    for at in range(0, len(order) - 1, 2):
        pair: Row = {"pair": at // 2 + 1, "order": order[at : at + 2], "problem": ""}
        for n in (at, at + 1):
            side = "baseline" if order[n] == "B" else "variant"
            trial = by_number.get(n, {})
            pair |= {side: trial.get("value"), f"{side}_run": trial.get("run")}
            if trial.get("problem"):
                pair["problem"] = f"{pair['problem']}; {side}: {trial['problem']}".lstrip("; ")
        bare, with_ = pair.get("baseline"), pair.get("variant")
        ratio = with_ / bare if bare and with_ and bare > 0 and with_ > 0 else math.inf
        pair["ratio"] = ratio if math.isfinite(ratio) else None
        out.append(pair)
    return out
