"""What an experiment asks, in full: everything that could be chosen afterwards to make the answer nicer is chosen here."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from leadline.book.experiments.cells import COIN, UNSAID, orders_of
from leadline.book.redact import redact, redact_text
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import MOST_PAIRS
from leadline.lab.verdict import BETTER

# Each with the name that it has among the metrics of a run.
METRICS = {"seconds": "wall_s", "cpu_seconds": "cpu_s", "max_rss_bytes": "max_rss_bytes"}
SIDES = ("baseline", "variant")
LONGEST = 8000  # letters of a command
LONGEST_PATTERN = 500
LONGEST_DESIGN = 64 << 10
DRAWN = (COIN, UNSAID)  # how the order of an experiment may have been drawn
MOST_WARMUPS = 1000
_OPERATORS = frozenset("|&;<>()`$")
_SHELL = "an experiment runs no shell: quote it, or write sh -c '...'"


@dataclass(frozen=True)
class Design:
    """metric: one of METRICS, or a regular expression whose first group is the number in the output. margin: a share. directory: where the
    trials run; empty if that is a directory made for this run alone."""

    baseline: str
    variant: str
    hypothesis: str = ""
    metric: str = "seconds"
    better: str = "less"
    margin: float = 0.02
    pairs: int = 10
    warmup: int = 0
    prepare: str = ""
    seed: int = 0
    keep_going: bool = False
    folder: str = ""

    @property
    def order(self) -> str:
        """B and V for each trial of the baseline and of the variant; each two are a pair."""
        return order_of(self.pairs, self.seed, self.drawn)

    @property
    def drawn(self) -> str:
        return COIN

    @property
    def question(self) -> str:
        """The same for designs that ask the same: with more pairs, another margin or seed it is another try, not another question."""
        return _sha256([self.baseline, self.variant, self.prepare, self.metric, self.folder])

    def as_text(self) -> str:
        """What is sealed: without secrets, and with the order of the trials."""
        hidden = {name: hide(getattr(self, name)) for name in ("baseline", "variant", "prepare")}
        values = asdict(self) | hidden | {"hypothesis": redact_text(self.hypothesis), "order": self.order, "drawn": self.drawn}
        return json.dumps(values, ensure_ascii=False, sort_keys=True)

    def as_options(self) -> list[str]:
        """For `leadline experiment`."""
        values = asdict(self) | {"margin": f"{100 * self.margin:.12f}".rstrip("0").rstrip(".") + "%"}
        flags = ["--keep-going"] if values.pop("keep_going") else []
        del values["folder"]
        return [f"--{name}={value}" for name, value in values.items() if value != ""] + flags


def order_of(pairs: int, seed: int, drawn: str) -> str:
    """drawn: one of DRAWN."""
    return "".join("BV"[at] for block in orders_of(len(SIDES), pairs, seed, drawn) for at in block)


def quantity_of(metric: str) -> str:
    return metric if metric in METRICS else "figure"


# What a study calls blocks and levels, an experiment calls otherwise.
WORDS: dict[str, Any] = {"block": "pair", "more": "--pairs", "sides": {"variant": ("the variant", "the baseline")}}


def as_study(design: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment (of ingest.read_design) as the study that it is: one factor of two levels, with pairs for blocks."""
    metric, order = design["metric"], ["BV".index(letter) for letter in design["order"]]
    measured = {
        "name": quantity_of(metric), "source": "used" if metric in METRICS else "pattern", "text": metric, "better": design["better"],
        "margin": design["margin"], "is_time": metric == "seconds", "per": "", "proves": "",
    }  # fmt: skip
    return {
        "factors": [{"name": "", "kind": "command", "levels": [[side, design[side]] for side in SIDES]}], "excluded": [], "dropped": [],
        "cells": [[side] for side in SIDES], "repetitions": design["pairs"], "metrics": [measured], "words": WORDS,
        "order": [order[at : at + 2] for at in range(0, len(order), 2)],
        **{name: design[name] for name in ("seed", "drawn", "margin", "hypothesis")},
    }  # fmt: skip


def hide(command: str) -> str:
    """The command without what is secret in it."""
    return shlex.join(redact(shlex.split(command))) if command else ""


def seal(uid: str, registered: int, text: str) -> str:
    return hashlib.sha256(f"{uid} {registered} {text}".encode("utf-8", "surrogateescape")).hexdigest()


def words(command: str, what: str) -> list[str]:
    """As a shell divides it. Raises LeadlineError, also for what only a shell could do."""
    try:
        found = shlex.split(command)
    except ValueError as e:
        raise LeadlineError("usage", f"{what} cannot be divided into words", detail=str(e), where=what) from None
    if sign := _for_a_shell(command):
        raise LeadlineError("usage", f"{what} has {sign}, which is for a shell", hint=_SHELL, where=what)
    if not found or len(command) > LONGEST:
        raise LeadlineError("usage", f"{what} is empty, or has more than {LONGEST:,} letters", where=what)
    return found


def _for_a_shell(command: str) -> str:
    """The first sign that a shell would take for one of its own, and that is not quoted."""
    quote, escaped = "", False
    for sign in command:
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _OPERATORS:
            return sign
    return ""


def margin_of(text: str) -> float:
    """2% or 0.5 %. Raises LeadlineError."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,20})?)\s*%", text.strip())
    if found is None or not 0 < float(found[1]) < 100:
        raise LeadlineError("usage", f"{text[:40]!r} is not a margin", hint="use a form such as 2% or 0.5%", where="margin")
    return float(found[1]) / 100


def pattern_of(metric: str) -> re.Pattern[str]:
    """Raises LeadlineError for what has no group."""
    hint = f"{', '.join(METRICS)}, or a regular expression with the number in a group: 'tps = ([0-9.]+)'"
    try:
        pattern = re.compile(metric, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as e:
        raise LeadlineError("usage", "the metric is no regular expression", detail=str(e), hint=hint, where="metric") from None
    if not pattern.groups or len(metric) > LONGEST_PATTERN:
        raise LeadlineError("usage", f"there is no metric {metric[:60]!r}", hint=hint, where="metric")
    return pattern


def make(given: Mapping[str, Any]) -> Design:
    """A design of what was given by name; what is None is as by default. margin: text. Raises LeadlineError."""
    known = {field.name: field for field in fields(Design) if field.name != "folder"}
    for name in given:
        if name not in known:
            raise LeadlineError("usage", f"an experiment has no {str(name)[:60]}", hint=f"it has {', '.join(known)}", where="experiment")
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        wanted = str if name == "margin" else {"str": str, "int": int, "bool": bool}[str(known[name].type)]
        if type(value) is not wanted or "\0" in str(value):
            said = {str: "text", int: "whole number", bool: "true or false"}[wanted]
            raise LeadlineError("usage", f"{name} of an experiment is no {said}", hint=EXAMPLE, where=name)
    for name in SIDES:
        if name not in values:
            raise LeadlineError("usage", f"the experiment has no {name}", hint=EXAMPLE, where=name)
    for name in (*SIDES, *(["prepare"] if values.get("prepare") else [])):
        words(values[name], name)
    metric = values.get("metric", "seconds")
    if metric not in METRICS:
        pattern_of(metric)
        if "better" not in values:
            raise LeadlineError("usage", "say whether less or more of it is better", hint="--better more", where="better")
    if values.get("better", "less") not in BETTER:
        raise LeadlineError("usage", "better is neither less nor more", where="better")
    if "margin" in values:
        values["margin"] = margin_of(values["margin"])
    for name, least, most in (("pairs", 1, MOST_PAIRS), ("warmup", 0, MOST_WARMUPS), ("seed", 0, 2**53)):
        if name in values and not least <= values[name] <= most:
            raise LeadlineError("usage", f"{name} is not from {least} to {most:,}", where=name)
    if len(values.get("hypothesis", "")) > LONGEST:
        raise LeadlineError("usage", f"the hypothesis has more than {LONGEST:,} letters", where="hypothesis")
    return Design(**values)


EXAMPLE = '{"baseline": "./load.sh 1", "variant": "./load.sh 2", "hypothesis": "two at once are faster", "pairs": 10}'


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
