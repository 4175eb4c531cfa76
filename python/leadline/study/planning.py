"""What a study will take and what it can show, before anything runs."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from leadline.book.query import Book
from leadline.lab.verdict import enough
from leadline.study.design import Study
from leadline.units import seconds_of

START_S, TRIAL_S, RESTART_S = 4.0, 3.0, 3.0  # a private server; what a trial takes besides its load; a restart
LINK_S = 1.0  # until a standby streams through another link
SCALE_BYTES, CAPTURE_BYTES, SERVER_BYTES = 16 << 20, 200_000, 120 << 20
WATCH_BYTES = 700_000  # the capture of the server beside a trial
WAL_BYTES = 1 << 30  # max_wal_size, where the design does not say


def seconds_of_study(study: Study, known: Mapping[str, float]) -> float | None:
    """About so long; None for a command of which nothing is known. known: seconds of a trial, of an earlier study of this question."""
    trials = len(study.cells) * (study.repetitions + study.warmup)
    if "trial" in known:
        each = known["trial"]
    elif "command" in study.load:
        return None
    else:
        each = seconds_of(study.load["for"]) + seconds_of(study.load["warm_up"]) + TRIAL_S
    scale = sum(step.get("scale", 0) for step in study.prepare)
    databases = math.prod([len(factor.levels) for _, factor in study.of_kind("schema")] or [1])
    each += LINK_S if study.of_kind("round_trip") else 0
    return float(trials * each + (START_S if study.needs_server and not study.dsn else 0) + scale * databases)


def bytes_of_study(study: Study) -> int:
    scale = sum(step.get("scale", 0) for step in study.prepare)
    databases = math.prod([len(factor.levels) for _, factor in study.of_kind("schema")] or [1])
    versions = math.prod([len(factor.levels) for kind in ("version", "layout") for _, factor in study.of_kind(kind)] or [1])
    captures = 0 if "command" in study.load else len(study.cells) * (study.repetitions + study.warmup) * CAPTURE_BYTES
    if not study.needs_server:
        return captures
    captures += len(study.cells) * study.repetitions * WATCH_BYTES
    own = 0 if study.dsn else SERVER_BYTES + WAL_BYTES
    own *= 2 if study.has_pair else 1
    return int(captures + versions * (own + scale * databases * SCALE_BYTES))


def smallest_effect(book: Book | None, study: Study) -> dict[str, Any] | None:
    """What the last calibration on this host says of so many blocks; None without one."""
    import os

    if book is None:
        return None
    rows = book.store.rows(
        """select r.uid, r.started, m.value, e.pairs from metric m join run r on r.id = m.run join experiment e on e.run = r.id
           where m.name = 'smallest_effect' and r.host = ? order by r.started desc limit 1""", (os.uname().nodename,),
    )  # fmt: skip
    if not rows or not rows[0]["pairs"]:
        return None
    found = rows[0]
    share = (1 + found["value"]) ** math.sqrt(found["pairs"] / study.repetitions) - 1
    return {"share": share, "run": found["uid"], "started": found["started"], "blocks": found["pairs"]}


def plan(study: Study, book: Book | None) -> dict[str, Any]:
    """Everything that `leadline study plan` prints."""
    comparisons = sum(len(factor.levels) - 1 for factor in study.factors) * sum(metric.compared for metric in study.metrics)
    private = "pair" if study.has_pair else "private" if study.needs_server else None
    return {
        "name": study.name, "question": study.question, "hypothesis": study.hypothesis, "needs": study.needs, "margin": study.margin,
        "factors": [{"name": one.name, "kind": one.kind, "levels": one.labels} for one in study.factors],
        "metrics": [{"name": one.name, "better": one.better, "margin": one.margin} for one in study.metrics],
        "cells": [study.cell_name(cell) for cell in study.cells], "repetitions": study.repetitions, "warmup": study.warmup,
        "excluded": [{"cell": study.cell_name(cell), "reason": reason} for cell, reason in study.excluded],
        "order": study.order, "seed": study.seed, "legs": len(study.cells) * study.repetitions, "comparisons": comparisons,
        "least_repetitions": enough(comparisons), "seconds": seconds_of_study(study, known_of(book, study)),
        "disk_bytes": bytes_of_study(study), "free_bytes": shutil.disk_usage(tempfile.gettempdir()).free,
        "smallest_effect": smallest_effect(book, study), "server": study.dsn or private,
    }  # fmt: skip


def known_of(book: Book | None, study: Study) -> dict[str, float]:
    """How long a trial took, in the last study that asked the same."""
    if book is None:
        return {}
    rows = book.store.rows(
        """select avg(m.value) as trial from experiment e join experiment_leg l on l.run = e.run join run r on r.uid = l.leg
           join metric m on m.run = r.id and m.name = 'wall_s' where e.question = ? and l.problem = ''""", (study.question_hash,),
    )  # fmt: skip
    return {"trial": float(rows[0]["trial"]) + TRIAL_S / 4} if rows and rows[0]["trial"] is not None else {}
