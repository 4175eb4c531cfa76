"""Runs an experiment: the study with one factor of two levels, the commands. Design, words and events are those of experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leadline.book.experiments.cells import COIN
from leadline.book.experiments.design import METRICS, SIDES, Design, quantity_of
from leadline.book.experiments.trials import Tell
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.study.design import Factor, Metric, Study
from leadline.study.perform import StudyRun, Trial

SIDE = "side"


def as_study(design: Design, name: str) -> Study:
    """What is run. Sealed is the design of the experiment."""
    source = "used" if design.metric in METRICS else "pattern"
    return Study(
        name=name, question="", hypothesis=design.hypothesis, margin=design.margin, repetitions=design.pairs, warmup=design.warmup,
        factors=(Factor(SIDE, "command", "", tuple((side, getattr(design, side)) for side in SIDES)),), load={"command": f"{{{SIDE}}}"},
        metrics=(Metric(quantity_of(design.metric), source, design.metric, design.better, design.margin),), seed=design.seed, drawn=COIN,
        reset=({"command": design.prepare},) if design.prepare else (), folder=design.folder,
    )  # fmt: skip


class Experiment(StudyRun):
    """A trial that fails ends it, or its pair is left out."""

    event, block, failures = "experiment", "pair", None

    def __init__(self, design: Design, place: Place, uid: str, name: str, tell: Tell) -> None:
        super().__init__(as_study(design, name), place, uid, tell)
        self.design = design
        self.ends: Trial | None = None

    def perform(self) -> None:
        """Raises LeadlineError when a trial ends it, and KeyboardInterrupt when it was interrupted."""
        before = self._fingerprint()
        self.register(self.design.as_text(), self.design.question)
        self._trials()
        self._judge(before, self._fingerprint())
        if self.ends is not None:
            raise LeadlineError("gone", self._failed(self.ends), hint=f"leadline book log {self.ends.uid[:5]}; or --keep-going")

    def name_of(self, cell: Sequence[str]) -> str:
        return cell[0]

    def goes_on(self, trial: Trial) -> bool:
        if trial.part == "leg" and not self.design.keep_going:
            self.ends = trial
        return self.ends is None

    def prepared(self, outcome: str, uid: str, what: str) -> None:
        if outcome:
            said = f"what prepares {what} (run {uid[:5]}) failed: {outcome}"
            raise LeadlineError("gone", said, hint=f"leadline book log {uid[:5]}")

    def in_event(self, figures: Mapping[str, float | None]) -> dict[str, Any]:
        return {"value": next(iter(figures.values()), None)}

    def said(self, found: Mapping[str, Any], refused: Sequence[str]) -> dict[str, Any]:
        said = super().said(found, refused)
        left_out = [trial for trial in self.recorded if trial.part == "leg" and trial.problem]
        if self.ends is not None:
            none = {"verdict": "none", "good": None, "ratio": None, "low": None, "high": None}
            return said | none | {"text": f"no verdict: {self._failed(self.ends)}"}
        if left_out and not refused:
            sides = ", ".join(f"{sum(trial.name == side for trial in left_out)} of the {side}" for side in SIDES)
            left, of = self.design.pairs - said["pairs"], self.design.pairs
            said["text"] += f"; {left} of {of} pairs are left out, in which trials failed ({sides})"
        return said

    def _failed(self, trial: Trial) -> str:
        return f"trial {trial.number + 1} of {2 * self.design.pairs} ({trial.name}, run {trial.uid[:5]}) failed: {trial.problem}"
