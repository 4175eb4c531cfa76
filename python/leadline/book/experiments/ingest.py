"""The events of experiments. What was said first counts: a design, a trial or a verdict is never replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from leadline.book.db import Db
from leadline.book.events import Event, number, run_id, taken, text, whole
from leadline.book.experiments.design import DRAWN, LONGEST_DESIGN, SIDES
from leadline.book.runs import index_words, put_labels
from leadline.lab.signed_rank import MOST_PAIRS

PARTS = ("leg", "warmup", "prepare")
MOST_EARLIER = 1000
MOST_DIFFERENCES = 200
_TEXTS = ("baseline", "variant", "hypothesis", "metric", "better", "prepare", "folder", "order")


def read_design(text_: str) -> dict[str, Any]:
    """Raises KeyError, TypeError or ValueError for what is none."""
    design = json.loads(text_)
    out: dict[str, Any] = {name: text(design[name], LONGEST_DESIGN) for name in _TEXTS}
    out |= {name: whole(design[name]) for name in ("pairs", "warmup", "seed")}
    margin = number(design["margin"])
    out["drawn"] = text(design.get("drawn", ""), LONGEST_DESIGN)
    if out["drawn"] not in DRAWN:
        raise ValueError("no design")
    if set(out["order"]) - set("BV") or not 1 <= out["pairs"] <= MOST_PAIRS or len(out["order"]) != 2 * out["pairs"] or not 0 < margin < 1:
        raise ValueError("no design")
    return out | {"margin": margin, "keep_going": bool(design["keep_going"])}


def take_design(db: Db, event: Event, read: Callable[[str], Any], longest: int) -> None:
    """The design of an experiment or a study, which `read` must be able to read."""
    body = event.body
    said = text(body["design"], longest)
    read(said)
    earlier = json.dumps([text(uid, 12) for uid in body["earlier"][:MOST_EARLIER]])
    values = (run_id(db, event.uid), text(body["question"], 64), whole(body["registered"]), said, text(body["seal"], 64), earlier)
    columns = "run, question, registered, design_json, seal, earlier_json"
    db.execute(f"insert into experiment ({columns}) values (?, ?, ?, ?, ?, ?) on conflict (run) do nothing", values)


def take_verdict(db: Db, event: Event, more: tuple[str, ...] = ()) -> None:
    """The verdict of an experiment or a study. more: metrics that it may have besides."""
    body, run = event.body, run_id(db, event.uid)
    word, said = text(body["verdict"], 20), text(body["text"], 1000)
    figures = {name: None if body[name] is None else number(body[name]) for name in ("ratio", "low", "high")}
    changes = [[text(one[part], 500) for part in range(3)] for one in body["differs"][:MOST_DIFFERENCES]]
    differs = json.dumps(changes, ensure_ascii=False)
    good = None if body["good"] is None else int(bool(body["good"]))
    columns = "verdict = ?, good = ?, text = ?, ratio = ?, low = ?, high = ?, pairs = ?, differs_json = ?"
    values = (word, good, said, *figures.values(), whole(body["pairs"]), differs, run)
    if db.execute(f"update experiment set {columns} where run = ? and verdict is null", values).rowcount != 1:
        return
    named = {"ratio": figures["ratio"], "ratio_low": figures["low"], "ratio_high": figures["high"]}
    named |= {name: number(body[name]) for name in more if body.get(name) is not None}
    sql = "insert into metric values (?, ?, ?) on conflict (run, name) do update set value = excluded.value"
    db.executemany(sql, [(run, name, value) for name, value in named.items() if value is not None])
    put_labels(db, run, [("verdict", word)])
    db.execute("update run set summary = ? where id = ?", (said[:500], run))
    index_words(db, run)


@taken("experiment.design")
def design(db: Db, event: Event) -> None:
    take_design(db, event, read_design, LONGEST_DESIGN)


@taken("experiment.leg")
def trial(db: Db, event: Event) -> None:
    body = event.body
    part, side = text(body["part"], 20), text(body["side"], 20)
    if part not in PARTS or side not in (*SIDES, ""):
        raise ValueError("no trial")
    value = None if body["value"] is None else number(body["value"])
    values = (run_id(db, event.uid), part, whole(body["number"]), side, text(body["leg"], 12), whole(body["started"]), value,
              text(body["problem"], 500))  # fmt: skip
    db.execute("insert into experiment_leg values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (run, part, n) do nothing", values)


@taken("experiment.verdict")
def verdict(db: Db, event: Event) -> None:
    take_verdict(db, event)
