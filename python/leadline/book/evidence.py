"""Whether the evidence of runs is what it was: files that they made, what they printed, the designs and verdicts of experiments."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from leadline.book.experiments.design import METRICS, order_of, seal
from leadline.book.experiments.ingest import read_design
from leadline.book.experiments.perform import figure_in
from leadline.book.facts import evidence
from leadline.book.log import Log
from leadline.book.query import Book
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import signed_rank_ratio

# Of what differs, and of what cannot be told.
DIFFERS = ("changed", "missing", "added")
UNKNOWN = ("not known", "elsewhere")


@dataclass(frozen=True)
class Check:
    """what: capture, report, ... (kinds of artifacts), output, design, legs, verdict. state: ok, or one of DIFFERS and UNKNOWN."""

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
    if run["kind"] == "experiment":
        yield from _experiment(book, run)


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


def _experiment(book: Book, run: dict[str, Any]) -> Iterator[Check]:
    """The design by its seal, which each leg has too; the legs by their runs; the verdict by the legs."""
    uid = run["uid"]
    rows = book.store.rows("select * from experiment where run = ?", (run["id"],))
    if not rows:
        yield Check(uid, "design", "", "missing", "none was registered")
        return
    row = rows[0]
    legs = book.store.rows("select * from experiment_leg where run = ? order by part, n", (run["id"],))
    runs = {leg["leg"]: book.details(book.find(leg["leg"])) for leg in legs if _is_there(book, leg["leg"])}
    parts = {leg: run for leg, run in runs.items() if run["parent"] == uid}
    yield Check(uid, "design", row["seal"][:16], *_of_design(uid, row, legs, parts))
    for leg in legs:
        said = _of_leg(book, uid, read_design(row["design_json"]), leg, runs.get(leg["leg"]))
        if said is not None:
            yield Check(uid, "leg", f"{leg['part']} {leg['n'] + 1}, run {leg['leg'][:5]}", *said)
    if row["verdict"] is not None:
        yield Check(uid, "verdict", row["verdict"], *_of_verdict(row, [leg for leg in legs if leg["part"] == "leg"]))


def _is_there(book: Book, uid: str) -> bool:
    return bool(book.store.rows("select 1 from run where uid = ?", (uid,)))


State = tuple[str, str] | tuple[str]


def _of_design(uid: str, row: dict[str, Any], legs: list[dict[str, Any]], runs: dict[str, dict[str, Any]]) -> State:
    design = read_design(row["design_json"])
    if seal(uid, row["registered"], row["design_json"]) != row["seal"]:
        return "changed", "it does not have its seal"
    other = [leg for leg in legs if (found := runs.get(leg["leg"])) is not None and found["inputs"].get("registered") != row["seal"]]
    if other:
        return "changed", f"the seal is not that of leg {other[0]['leg'][:5]}"
    moments = [leg["started"] for leg in legs] + [found["started"] for found in runs.values()]
    if moments and min(moments) < row["registered"]:
        return "changed", "it was registered after a leg had begun"
    if order_of(design["pairs"], design["seed"], design["drawn"]) != design["order"]:
        return "changed", "its order is not that of its seed"
    return ("ok",)


def _of_leg(book: Book, uid: str, design: dict[str, Any], leg: dict[str, Any], run: dict[str, Any] | None) -> State | None:
    """None where the value is that of its run, or the run was pruned. Of a run that is none of its parts, nothing is said."""
    if run is None:
        return None if leg["part"] != "leg" else ("not known", "its run is no longer in the book")
    if run["parent"] != uid:
        return "changed", "its run is no part of this experiment"
    if leg["part"] == "leg" and leg["side"] != ("baseline" if design["order"][leg["n"] : leg["n"] + 1] == "B" else "variant"):
        return "changed", f"it is of the {leg['side']}, which the order does not say"
    if leg["value"] is None:
        return None
    metric = design["metric"]
    try:
        value = run["metrics"].get(METRICS[metric]) if metric in METRICS else figure_in(book.place, run["uid"], metric)[0]
    except (OSError, LeadlineError) as e:
        return "not known", str(e)
    return None if value == leg["value"] else ("changed", f"{leg['value']!r}, and its run has {value!r}")


def _of_verdict(row: dict[str, Any], legs: list[dict[str, Any]]) -> State:
    by_number, order, pairs = {leg["n"]: leg["value"] for leg in legs}, read_design(row["design_json"])["order"], []
    for at in range(0, len(order) - 1, 2):
        one, other = by_number.get(at), by_number.get(at + 1)
        if one is not None and other is not None and one > 0 and other > 0:
            pairs.append((one, other) if order[at] == "B" else (other, one))
    if row["ratio"] is None:
        return ("ok",)
    if not pairs or len(pairs) != row["pairs"]:
        return "changed", f"of {row['pairs']} pairs, and {len(pairs)} are there"
    again = signed_rank_ratio(pairs)
    same = [again.estimate == row["ratio"], row["low"] in (None, again.low), row["high"] in (None, again.high)]
    return ("ok",) if all(same) else ("changed", f"ratio {row['ratio']:.6g}, and the legs have {again.estimate:.6g}")
