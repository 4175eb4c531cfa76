"""Whether the evidence of runs is what it was: files that they made, what they printed, the designs and verdicts of experiments."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from leadline.book.db import Row
from leadline.book.experiments import studies
from leadline.book.experiments.changed import refusals
from leadline.book.experiments.design import METRICS, seal
from leadline.book.experiments.effects import headline, judge
from leadline.book.experiments.trials import check_of, figure_in
from leadline.book.facts import evidence
from leadline.book.log import Log
from leadline.book.query import Book
from leadline.errors import LeadlineError

# Of what differs, and of what cannot be told.
DIFFERS = ("changed", "missing", "added")
UNKNOWN = ("not known", "elsewhere")


@dataclass(frozen=True)
class Check:
    """what: capture, report, ... (kinds of artifacts), output, design, trials, verdict. state: ok, or one of DIFFERS and UNKNOWN."""

    run: str
    what: str
    name: str
    state: str
    detail: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def verify(book: Book, run: dict[str, Any]) -> Iterator[Check]:
    """All that there is of a run of the book (of `details`) that has ended."""
    if run["status"] == "running":
        return
    here = run["host"] == os.uname().nodename
    for artifact in run["artifacts"]:
        if here:
            yield from _artifact(book, run["uid"], artifact)
        else:
            yield Check(run["uid"], artifact["kind"], artifact["path"], "elsewhere", f"on {run['host']}")
    if run["log_hash"] is not None and run["log_hashed"]:
        yield _output(book, run) if here else Check(run["uid"], "output", "", "elsewhere", f"on {run['host']}")
    if run["kind"] in ("experiment", "study"):
        yield from _designed(book, run)


def _artifact(book: Book, uid: str, was: dict[str, Any]) -> Iterator[Check]:
    def check(state: str, detail: str = "", name: str = "") -> Check:
        return Check(uid, was["kind"], os.path.join(was["path"], name) if name else was["path"], state, detail)

    if was["size"] is None:
        yield check("not known", "the run ended before it was whole")
        return
    now = evidence(was["path"], read=was["hash"] is not None)
    if now is None:
        yield check("missing")
        return
    listing = book.content(was["hash"]) if was["hash"] else None
    if was["hash"] is None:
        if now.size != was["size"]:
            yield check("changed", f"{now.size:,} bytes, were {was['size']:,}")
        else:
            yield check("ok", "by its size: it was not read")
    elif now.hash == was["hash"]:
        yield check("ok")
    elif now.listing is None or listing is None:
        said = f"{now.size:,} bytes, were {was['size']:,}" if now.size != was["size"] else "as many bytes as before, but others"
        yield check("changed", said)
    else:
        files, before = (_files(text) for text in (now.listing, listing))
        for name in sorted({*files, *before}):
            if files.get(name) != before.get(name):
                yield check("added" if name not in before else "missing" if name not in files else "changed", "", name)


def _files(listing: str) -> dict[str, str]:
    """Hashes by name."""
    return {name: hash for hash, _, name in (line.partition(" ") for line in listing.splitlines())}


def _output(book: Book, run: dict[str, Any]) -> Check:
    """Of its beginning, up to the end of the command: what that left running may have printed since."""
    uid, length = run["uid"], int(run["log_hashed"])
    name = str(book.place.log_of(uid))
    try:
        log = Log(book.place, uid)
    except (OSError, LeadlineError):
        return Check(uid, "output", name, "missing")
    try:
        if log.size < length:
            return Check(uid, "output", name, "changed", f"{log.size:,} bytes, were {length:,}")
        found = hashlib.sha256()
        for piece in log.pieces(0, length):
            found.update(piece)
    except (OSError, LeadlineError) as e:
        return Check(uid, "output", name, "changed", str(e))
    finally:
        log.close()
    return Check(uid, "output", name, *(("ok",) if found.hexdigest() == run["log_hash"] else ("changed", "other bytes than were printed")))


def _designed(book: Book, run: dict[str, Any]) -> Iterator[Check]:
    """Of an experiment, or of one part of a study: the design by its seal, which each trial has too; its own trials by their runs; the
    verdict by the trials of all parts."""
    uid, rows = run["uid"], book.store.rows("select * from experiment where run = ?", (run["id"],))
    if not rows:
        yield Check(uid, "design", "", "missing", "none was registered")
        return
    row, trials = rows[0], book.store.rows("select * from experiment_leg where run = ? order by part, n", (run["id"],))
    runs = {trial["leg"]: book.details(book.find(trial["leg"])) for trial in trials if _is_there(book, trial["leg"])}
    own = {name: found for name, found in runs.items() if found["parent"] == uid}
    design, parts = studies.read_either(run["kind"], row["design_json"]), studies.parts_of(book.store, row["seal"])
    first = parts[0]["uid"] if parts and run["kind"] == "study" else uid
    yield Check(uid, "design", row["seal"][:16], *_of_design(first, row, trials, own, drawn=studies.is_drawn(design)))
    figures = {(one["n"], one["metric"]): one["value"] for one in book.store.rows("select * from study_figure where run = ?", (run["id"],))}
    if run["kind"] == "experiment":
        figures = {(trial["n"], design["metrics"][0]["name"]): trial["value"] for trial in trials if trial["part"] == "leg"}
    for trial in trials:
        said = _of_trial(book, run, design, trial, runs.get(trial["leg"]), figures)
        if said is not None:
            part = "trial" if trial["part"] == "leg" else trial["part"]  # a trial is stored as a leg, which it was called at first
            yield Check(uid, "trial", f"{part} {trial['n'] + 1}, run {trial['leg'][:5]}", *said)
    if row["verdict"] is not None:
        yield Check(uid, "verdict", row["verdict"], *_of_verdict(book, row, design, parts, trials))


def _of_verdict(book: Book, row: Row, design: dict[str, Any], parts: list[Row], trials: list[Row]) -> State:
    """Without a ratio there is none where something changed meanwhile, or where a trial ended the experiment."""
    ended = bool(refusals(json.loads(row["differs_json"]))) or ("words" in design and any(trial["problem"] for trial in trials))
    if row["verdict"] == "none" and row["ratio"] is None and ended:
        return ("ok",)
    found = headline(judge(design, studies.figures_of(book.store, parts, design)), design)
    if found["verdict"] != row["verdict"]:
        return "changed", f"{row['verdict']}, and the trials have {found['verdict']}"
    for name in ("ratio", "low", "high"):
        was, now = row[name], found[name]
        if (was is None) != (now is None) or (was is not None and not math.isclose(was, now, rel_tol=1e-9)):
            return "changed", f"{name} {was}, and the trials have {now}"
    return ("ok",)


def _of_trial(
    book: Book, part: dict[str, Any], design: dict[str, Any], trial: dict[str, Any], run: dict[str, Any] | None,
    figures: dict[tuple[int, str], float | None],
) -> State | None:  # fmt: skip
    """None where all is as its run has it, or where that cannot be told: a figure of a server is nowhere else."""
    if run is None:
        return None if trial["part"] != "leg" or trial["problem"] else ("not known", "its run is no longer in the book")
    if run["parent"] != part["uid"]:
        return "changed", f"its run is no part of this {part['kind']}"
    if trial["part"] != "leg":
        return None
    numbers = [at for block in design["order"] for at in block]
    if not 0 <= trial["n"] < len(numbers):
        return "changed", "the order has no such trial"
    if trial["side"] != studies.cell_names(design)[numbers[trial["n"]]]:
        return "changed", f"it is of {trial['side']}, which the order does not say"
    for metric in design["metrics"]:
        was = figures.get((trial["n"], metric["name"]))
        if was is None or metric["per"] or metric["source"] not in ("used", "pattern"):
            continue
        try:
            text = metric["text"]
            if text in METRICS:
                value = run["metrics"].get(METRICS[text])
            else:
                value, _ = figure_in(book.place, run["uid"], text, check_of(metric.get("compared", True)))
        except (OSError, LeadlineError) as e:
            return "not known", str(e)
        if value != was:
            return "changed", f"{was!r}, and its run has {value!r}"
    return None


def _is_there(book: Book, uid: str) -> bool:
    return bool(book.store.rows("select 1 from run where uid = ?", (uid,)))


State = tuple[str, str] | tuple[str]


def _of_design(
    uid: str, row: dict[str, Any], trials: list[dict[str, Any]], runs: dict[str, dict[str, Any]], *, drawn: bool
) -> State:  # fmt: skip
    """uid: of the run that registered it. drawn: whether its order is that of its seed."""
    if seal(uid, row["registered"], row["design_json"]) != row["seal"]:
        return "changed", "it does not have its seal"
    seals = {uid: found["inputs"].get("registered") for uid, found in runs.items()}
    other = [trial for trial in trials if trial["leg"] in seals and seals[trial["leg"]] != row["seal"]]
    if other:
        return "changed", f"the seal is not that of trial {other[0]['leg'][:5]}"
    moments = [trial["started"] for trial in trials] + [found["started"] for found in runs.values()]
    if moments and min(moments) < row["registered"]:
        return "changed", "it was registered after a trial had begun"
    if not drawn:
        return "changed", "its order is not that of its seed"
    return ("ok",)
