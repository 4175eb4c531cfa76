"""Studies in the book: their events, and a study as every view shows it. Design and trials are in the tables of experiments.

A study that was killed goes on in another run, which has the same design with the same seal: nothing of a run that has ended changes. The
runs of one seal are the parts of one study.
"""

from __future__ import annotations

import json
from typing import Any

from leadline.book.db import Db, Row
from leadline.book.events import Event, number, run_id, taken, text, whole
from leadline.book.experiments.cells import SHUFFLED, TIMES, all_cells, name_of, orders_of
from leadline.book.experiments.changed import refusals
from leadline.book.experiments.design import as_study
from leadline.book.experiments.effects import judge
from leadline.book.experiments.ingest import read_design as read_experiment
from leadline.book.experiments.ingest import take_design, take_verdict
from leadline.book.experiments.query import ENDED, tried, tries_of
from leadline.book.store import Store
from leadline.lab.signed_rank import MOST_PAIRS

KIND = "study"
PARTS = ("leg", "warmup", "prepare")
LONGEST_DESIGN = 512 << 10
MOST_FIGURES, MOST_TRIALS = 100, 1_000_000
FAILURES = 2  # a cell whose first trials all failed, so many of them, is given up


def read_design(text_: str) -> dict[str, Any]:
    """Of a study. Raises KeyError, TypeError or ValueError for what is none."""
    design = json.loads(text_)
    blocks, levels = whole(design["repetitions"]), [[str(label) for label, _ in one["levels"]] for one in design["factors"]]
    cells, every = [tuple(cell) for cell in design["cells"]], set(all_cells(levels))
    if not 1 <= blocks <= MOST_PAIRS or design["drawn"] != SHUFFLED or not cells or not set(cells) <= every:
        raise ValueError("no design")
    if len(design["order"]) != blocks or any(sorted(block) != list(range(len(cells))) for block in design["order"]):
        raise ValueError("no design")
    for metric in design["metrics"]:
        metric["is_time"] = metric["text"] in TIMES
        if not 0 < number(metric["margin"]) < 1 or metric["better"] not in ("less", "more"):
            raise ValueError("no design")
    for name in ("question", "hypothesis", "name"):
        text(design[name])
    return dict(design)


def read_either(kind: str, text_: str) -> dict[str, Any]:
    """The design of a run of kind experiment or study, as that of a study. Raises as read_design does."""
    return as_study(read_experiment(text_)) if kind == "experiment" else read_design(text_)


def is_drawn(design: dict[str, Any]) -> bool:
    """Whether the order is that of its seed."""
    return bool(design["order"] == orders_of(len(design["cells"]), design["repetitions"], design["seed"], design["drawn"]))


def cell_names(design: dict[str, Any]) -> list[str]:
    return [name_of([one["name"] for one in design["factors"]], tuple(cell)) for cell in design["cells"]]


@taken("study.design")
def design(db: Db, event: Event) -> None:
    take_design(db, event, read_design, LONGEST_DESIGN)


@taken("study.leg")
def trial(db: Db, event: Event) -> None:
    body, run = event.body, run_id(db, event.uid)
    part, at = text(body["part"], 20), whole(body["number"])
    if part not in PARTS or not 0 <= at < MOST_TRIALS:
        raise ValueError("no trial")
    figures = {text(name, 100): None if value is None else number(value) for name, value in list(body["figures"].items())[:MOST_FIGURES]}
    first = next(iter(figures.values()), None)
    values = (run, part, at, text(body["side"], 1000), text(body["leg"], 12), whole(body["started"]), first, text(body["problem"], 500))
    sql = "insert into experiment_leg values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (run, part, n) do nothing"
    if db.execute(sql, values).rowcount == 1 and part == "leg":
        sql = "insert into study_figure values (?, ?, ?, ?) on conflict (run, n, metric) do nothing"
        db.executemany(sql, [(run, at, name, value) for name, value in figures.items()])


@taken("study.verdict")
def verdict(db: Db, event: Event) -> None:
    take_verdict(db, event, more=("smallest_effect",))


def parts_of(store: Store, seal: str) -> list[Row]:
    """The runs of one study, in order; the first registered its design. Of an experiment it is one."""
    return store.rows(
        "select r.id, r.uid, r.kind, r.status, r.started, e.* from experiment e join run r on r.id = e.run where e.seal = ? "
        "order by r.started, r.id", (seal,),
    )  # fmt: skip


def study(store: Store, run: Row) -> Row | None:
    """Of a row of `run`, with all of its parts; None where no design was registered. Ratios are there with the verdict alone: nobody stops
    at a fine moment."""
    rows = store.rows("select seal from experiment where run = ?", (run["id"],))
    if not rows or run["kind"] != KIND:
        return None
    parts = parts_of(store, rows[0]["seal"])
    first, judged = parts[0], next((part for part in parts if part["verdict"] is not None), None)
    row, design = judged or parts[-1], read_design(first["design_json"])
    trials, figures = trials_of(store, parts), figures_of(store, parts, design)
    names = cell_names(design)
    done, of = sum(one["part"] == "leg" for one in trials), len(names) * design["repetitions"]
    seals = {one["seal"] for one in tries_of(store, first["question"], first["run"])} - {first["seal"]}
    number_of_try = max(len(seals), len(json.loads(first["earlier_json"]))) + 1
    out = {
        "design": design, "registered": first["registered"], "seal": first["seal"], "question": first["question"],
        "parts": [part["uid"] for part in parts], "verdict": row["verdict"], "good": None if row["good"] is None else bool(row["good"]),
        "text": row["text"], **{name: row[name] for name in ("ratio", "low", "high")}, "try": number_of_try, "tried": tried(number_of_try),
        "differs": [dict(zip(("fact", "before", "after"), one)) for one in json.loads(row["differs_json"])],
        "legs": trials, "done": done, "of": of,
        "rows": [
            {"metric": metric["name"], "block": block + 1}
            | {name: figures.get((block, at, metric["name"])) for at, name in enumerate(names)}
            for metric in design["metrics"] for block in range(design["repetitions"])
        ],
        "refused": row["verdict"] == "none" and bool(refusals(json.loads(row["differs_json"]))),
    }  # fmt: skip
    out["judged"] = judge(design, figures) if row["verdict"] is not None and not out["refused"] else None
    problems = {trial["side"]: trial["problem"] for trial in trials if trial["problem"]}
    for one in out["judged"]["empty"] if out["judged"] is not None else ():
        if not one["excluded"] and one["cell"] in problems:
            one["reason"] = f"its trials failed: {problems[one['cell']]}"
    if row["verdict"] is None and all(part["status"] in ENDED for part in parts):
        out |= {"text": f"no verdict yet: it ended after {done} of {of} trials; leadline study run --resume {first['uid'][:5]} goes on"}
    return out


def figures_in(found: Row) -> dict[tuple[int, int, str], float | None]:
    """Of what study() gave: by block, number of the cell and metric."""
    names = list(enumerate(cell_names(found["design"])))
    return {(row["block"] - 1, at, row["metric"]): row[name] for row in found["rows"] for at, name in names}


def trials_of(store: Store, parts: list[Row]) -> list[Row]:
    """Each trial once, as it was recorded first."""
    found: dict[tuple[str, int], Row] = {}
    for part in parts:
        sql = "select part, n, side, leg as run, started, problem from experiment_leg where run = ? order by started, part, n"
        for one in store.rows(sql, (part["run"],)):
            found.setdefault((one["part"], one["n"]), one)
    return list(found.values())


def figures_of(store: Store, parts: list[Row], design: dict[str, Any]) -> dict[tuple[int, int, str], float | None]:
    """By block, number of the cell and metric. The one figure of an experiment stands with its trial."""
    many, numbers = len(design["cells"]), [at for block in design["order"] for at in block]
    found: dict[tuple[int, int, str], float | None] = {}
    for part in parts:
        sql, of = "select n, metric, value from study_figure where run = ?", [part["run"]]
        if part["kind"] == "experiment":
            sql, of = "select n, ? as metric, value from experiment_leg where part = 'leg' and run = ?", [design["metrics"][0]["name"], *of]
        for one in store.rows(sql, of):
            if 0 <= one["n"] < len(numbers):
                found.setdefault((one["n"] // many, numbers[one["n"]], one["metric"]), one["value"])
    return found
