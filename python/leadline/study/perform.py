"""Runs a study within a run of the book: proves its settings, registers the design, runs the trials that are missing, and judges."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from leadline.book.command import cancel
from leadline.book.experiments.cells import Cell
from leadline.book.experiments.changed import changes, refusals
from leadline.book.experiments.effects import headline, judge
from leadline.book.experiments.studies import FAILURES, figures_of, parts_of, read_either
from leadline.book.experiments.trials import Registered, Tell, check_of, ended, figure_in, fingerprint, now_us
from leadline.book.place import VARIABLE, Place
from leadline.book.query import Book
from leadline.book.spool import new_uid
from leadline.errors import LeadlineError
from leadline.host import proc
from leadline.replacing import write_durably
from leadline.study import loads, places
from leadline.study.design import NOTHING, STANDBY, Metric, Study
from leadline.study.servers import NamedServer, PrivateServers, Servers, environment_of, run_sql
from leadline.study.watch import Watcher

HOW_TO_SEE = "leadline book list --kind trial; leadline book log RUN"
WAIT_S = 60.0  # for what a killed study has left: a trial that ends, a guard that puts settings back


@dataclass(frozen=True)
class Before:
    """A study that goes on. first: the uid of the run that registered it. trials: what is there, by part and number: cell and problem."""

    first: str
    seal: str
    registered: int
    text: str
    question: str
    trials: Mapping[tuple[str, int], tuple[str, str]]


@dataclass(frozen=True)
class Trial:
    """One that was run. name: of its cell. problem: empty if there is none."""

    part: str
    number: int
    name: str
    uid: str
    problem: str


class StudyRun(Registered):
    """dsn: of the server that the user named, with its password; empty for private ones. before: what goes on here.

    event, block: what its events and its blocks are called. failures: a cell whose first trials all failed, so many, is given up.
    """

    event, block = "study", "block"
    failures: int | None = FAILURES

    def __init__(
        self, study: Study, place: Place, uid: str, tell: Tell, *, dsn: str = "", restart: str = "", pg_bin: str | None = None,
        before: Before | None = None,
    ) -> None:  # fmt: skip
        super().__init__(place, uid, study.name, tell, self.event)
        self.study, self.dsn, self.restart, self.pg_bin, self.before = study, dsn, restart, pg_bin, before
        self.first = before.first if before is not None else uid
        self.directory = place.study_of(self.first)
        self.done: dict[tuple[str, int], tuple[str, str]] = dict(before.trials) if before is not None else {}
        self.servers: Servers | None = None
        self.recorded: list[Trial] = []  # by this part
        self._watcher = Watcher()
        self._not_captured: set[str] = set()  # what was told

    def name_of(self, cell: Cell) -> str:
        return self.study.cell_name(cell)

    def goes_on(self, trial: Trial) -> bool:
        """Whether more trials are run after one that failed."""
        return True

    def prepared(self, outcome: str, uid: str, what: str) -> None:
        """A command ran before a trial. outcome: its problem. What is raised as of kind query leaves the place of the trial empty."""
        if outcome:
            raise LeadlineError("query", f"reset failed: {outcome}")

    def in_event(self, figures: Mapping[str, float | None]) -> dict[str, Any]:
        """What the event of a trial says of its figures."""
        return {"figures": figures}

    def perform(self) -> None:
        """Raises LeadlineError when it cannot go on, and KeyboardInterrupt when it was interrupted; the server is then as it was."""
        with ExitStack() as self._locks:
            lock = self._locks.enter_context(held(self.directory, self._end_trials))
            self._look_again()
            self._look_for_paths()
            try:
                self._open(lock)
                before = self._facts()
                if self.before is None:
                    self._prove()
                    self.register(self.study.as_text(), self.study.question_hash)
                else:
                    self._go_on(self.before)
                self._trials()
                if isinstance(self.servers, NamedServer):
                    self.servers.close()
                after = self._fingerprint()
            finally:
                self._watcher.close()
                if self.servers is not None:
                    self.servers.close()
            self._judge(before, after)

    def _look_again(self) -> None:
        """What another process recorded while we waited for it. Raises LeadlineError if it has ended the study."""
        if self.before is None:
            return
        book = Book(self.place)
        try:
            self.before = before_of(book, book.find(self.first))
        finally:
            book.close()
        self.done = dict(self.before.trials)

    def _look_for_paths(self) -> None:
        for _, factor in self.study.of_kind("layout") if not self.dsn else ():
            places.check(dict(factor.levels))
        for _, factor in self.study.of_kind("path"):
            for label in factor.labels:
                if not Path(factor.text_of(label)).exists():
                    raise LeadlineError("not_found", f"there is no path for {factor.name}={label}", where=factor.text_of(label))

    def _go_on(self, before: Before) -> None:
        self.seal = before.seal
        self.events.append(
            "design", design=before.text, question=before.question, registered=before.registered, seal=before.seal, earlier=[],
        )  # fmt: skip
        have = sum(part == "leg" for part, _ in self.done)
        self.tell(f"goes on with study {before.first[:5]}: {have} of {len(self.study.cells) * self.study.repetitions} trials are there")

    def _open(self, lock: int) -> None:
        study = self.study
        if not study.needs_server:
            return
        if self.dsn:
            named = NamedServer(study, self._made, self.dsn, self.restart, self.directory, self.first)
            directory = self.directory.parent / f"server-{named.identity}"
            of_server = self._locks.enter_context(held(directory, _nothing, "a study on this server"))
            named.open([lock, of_server])
            self.servers = named
        else:
            self.servers = PrivateServers(study, self._made, self.tell, self.pg_bin)

    def _made(self, dsn: str) -> None:
        self.tell("preparing a database")
        loads.prepare(self.study, dsn)

    def _prove(self) -> None:
        """Tries each level of each setting before the design is sealed: what the server refuses, or what changes nothing, is no cell."""
        study, servers = self.study, self.servers
        settings = [*study.of_kind("setting"), *study.of_kind(STANDBY)]
        if servers is None or not settings:
            return
        versions = study.of_kind("version")
        notes: list[str] = []
        for version in [label for _, factor in versions for label in factor.labels] or [""]:
            bare = list(study.baseline)
            if versions:
                bare[versions[0][0]] = version
            _, effects = servers.set_up(tuple(bare))
            for at, factor in settings:
                shown = effects[factor.effect].shown
                self.tell(f"{factor.effect}: the baseline has {shown}")
                for label in factor.labels[1:]:
                    why, note = self._try(servers, tuple([*bare[:at], label, *bare[at + 1 :]]), factor.effect, shown)
                    if note:
                        notes.append(f"{factor.name}={label}: {note}")
                    if why:
                        study = _without(study, at, label, versions[0][0] if versions else -1, version, why)
                        self.tell(f"left out: {factor.name}={label}: {why}")
        if len(study.cells) < 2:
            why = "; ".join(sorted({reason for _, reason in study.excluded}))
            raise LeadlineError("usage", "nothing is left to compare with the baseline", detail=why)
        for note in notes:
            self.tell(f"note: {note}")
        self.study = replace(study, notes=tuple(notes))

    @staticmethod
    def _try(servers: Servers, cell: Cell, name: str, bare: str) -> tuple[str, str]:
        """Why a level is no cell, and what else is to be said of it."""
        try:
            _, effects = servers.set_up(cell)
        except LeadlineError as e:
            if e.kind != "invalid":
                raise
            return f"{e.message}: {e.detail}" if e.detail else e.message, ""
        effect = effects[name]
        if effect.shown == bare:
            said = effect.note or f"the server has {effect.shown}"
            return f"no effect: {said}, as with the baseline", ""
        return "", effect.note

    def _trials(self) -> None:
        study = self.study
        for n in range(study.warmup * len(study.cells)):
            if ("warmup", n) not in self.done and not self._trial("warmup", n, study.cells[n % len(study.cells)]):
                return
        numbers = [at for block in study.order for at in block]
        failed = {at: [self.done[("leg", n)][1] for n, one in enumerate(numbers) if one == at and ("leg", n) in self.done]
                  for at in set(numbers)}  # fmt: skip
        given_up = set[int]()
        for n, at in enumerate(numbers):
            if ("leg", n) in self.done:
                continue
            if n % len(study.cells) == 0:
                self.tell(f"{self.block} {n // len(study.cells) + 1} of {study.repetitions}")
            if self.failures is not None and len(failed[at]) >= self.failures and all(failed[at]):
                if at not in given_up:
                    self.tell(f"given up: {study.cell_name(study.cells[at])} failed {len(failed[at])} times: {failed[at][-1]}")
                given_up.add(at)
                if len(given_up) >= len(study.cells) - 1:
                    why = f"all combinations but {len(study.cells) - len(given_up)} fail"
                    raise LeadlineError("gone", why, detail=failed[at][-1], hint=HOW_TO_SEE)
                continue
            goes_on = self._trial("leg", n, study.cells[at])
            failed[at].append(self.recorded[-1].problem)
            if not goes_on:
                return
        if self.failures is not None and all(problem for problems in failed.values() for problem in problems):
            raise LeadlineError("gone", "all trials fail", detail=failed[numbers[-1]][-1], hint=HOW_TO_SEE)

    def _trial(self, part: str, n: int, cell: Cell) -> bool:
        """Whether more are run."""
        study, uid = self.study, new_uid()
        name, dsn, figures, problem = self.name_of(cell), "", dict.fromkeys(m.name for m in study.metrics), ""
        inputs: dict[str, Any] = {part: n + 1, "side": name}
        started = now_us()
        try:
            if self.servers is not None:
                dsn, effects = self.servers.set_up(cell)
                inputs |= {f"setting {name}": effect.shown for name, effect in effects.items()}
            self._reset(cell, dsn, f"{part} {n + 1}")
            if self.servers is not None:
                self.servers.settle(dsn)
            before = self._asked(dsn)
        except LeadlineError as e:
            if e.kind not in ("invalid", "query"):
                raise
            problem = f"{e.message}: {e.detail}" if e.detail else e.message
        else:
            standby = self.servers.standby if self.servers is not None else ""
            command = loads.command_of(study, cell, dsn, self.directory, n, uid, standby)
            with self._watched(part, dsn, standby, loads.server_capture(self.directory, n, uid)):
                started = now_us()
                outcome = self.run_trial(uid, name, command.argv, inputs, env=command.env, shown=command.shown, makes=command.makes)
            problem = ended(outcome)
            found = None if "command" in study.load else loads.printed_by_load(self.place, uid)
            if problem and found is not None:
                problem += "".join(f": {message}" for message in loads.errors_of(found)[:1])
            if not problem and part == "leg":
                after = self._asked(dsn)
                for metric in study.metrics:
                    value, why = self._figure(metric, uid, outcome, found, before, after)
                    of = f"{metric.name}: " if len(study.metrics) > 1 else ""
                    figures[metric.name], problem = value, problem or (f"{of}{why}" if why else "")
        of_figures = self.in_event(figures)
        self.events.append("leg", part=part, number=n, side=name, leg=uid, started=started, problem=problem, **of_figures)
        self.done[(part, n)] = (name, problem)
        trial = Trial(part, n, name, uid, problem)
        self.recorded.append(trial)
        if not problem:
            return True
        self.tell(f"trial {n + 1} ({name}) failed: {problem}")
        return self.goes_on(trial)

    @contextmanager
    def _watched(self, part: str, dsn: str, standby: str, directory: Path) -> Iterator[None]:
        """With a capture of the server, where there is one; of a trial that counts."""
        if part != "leg" or not dsn:
            yield
            return
        with self._watcher.watching(dsn, directory, standby, self.study.profile):
            yield
        if not self._watcher.problem:
            self.events.made("server", directory)
        found = {"the server is": self._watcher.problem, "the CPU time of its functions is": self._watcher.not_profiled}
        for what, problem in found.items():
            if problem and what not in self._not_captured:
                self._not_captured.add(what)
                self.tell(f"note: {what} not captured beside the trials: {problem}")

    def _reset(self, cell: Cell, dsn: str, what: str) -> None:
        for step in self.study.reset:
            if "sql" in step:
                run_sql(dsn, [self.study.in_place(cell, text) for text in step["sql"]], "reset")
            else:
                uid, started = new_uid(), now_us()
                argv = loads.filled(self.study, cell, step["command"], dsn, self.servers.standby if self.servers is not None else "")
                env = environment_of(dsn) | {VARIABLE: "off"} if dsn else {}
                outcome = self.run_trial(uid, "prepare", loads.of_this(argv) if dsn else argv, {"before": what}, env=env, shown=argv)
                problem, number = ended(outcome), self._prepared
                none = self.in_event({})
                self.events.append("leg", part="prepare", number=number, side="", leg=uid, started=started, problem=problem, **none)
                self._prepared += 1
                self.prepared(problem, uid, what)

    _prepared = 0

    def _asked(self, dsn: str) -> dict[str, float]:
        """What the queries of metrics say now."""
        queries = [metric for metric in self.study.metrics if metric.source == "sql"]
        if not queries:
            return {}
        try:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name="leadline study") as connection:
                rows = {metric.name: connection.execute(metric.text).fetchone() for metric in queries}
            return {name: float(row[0]) for name, row in rows.items() if row is not None and row[0] is not None}
        except (psycopg.Error, ValueError, TypeError) as e:
            raise LeadlineError("query", "a metric cannot be read", detail=str(e).strip().partition("\n")[0]) from e

    def _figure(
        self, metric: Metric, uid: str, outcome: Any, found: dict[str, Any] | None, before: Mapping[str, float], after: Mapping[str, float],
    ) -> tuple[float | None, str]:  # fmt: skip
        check = check_of(metric.compared)
        if metric.source == "used":
            value, why = self.value(metric.text, uid, outcome)
        elif metric.source == "pattern":
            value, why = figure_in(self.place, uid, metric.text, check)
        elif metric.source == "link":
            added = self.servers.added_rtt_ms() if self.servers is not None else None
            value, why = (None, "what delays the pair did not say it") if added is None else check(added)
        elif metric.source == "sql":
            value = after.get(metric.name)
            if value is not None and metric.difference:
                value = None if metric.name not in before else value - before[metric.name]
            value, why = (None, "the query gave nothing") if value is None else check(value)
        else:
            value = None if found is None else loads.figure_of(found, metric.text)
            value, why = (None, "the load did not say it") if value is None else check(value)
            if value is None and found is not None and not loads.measured(found):
                why = "no transaction ended while the load was measured; --for gives it more time"
        if value is not None and metric.per:
            done = 0 if found is None else loads.transactions_of(found)
            return (value / done, "") if done else (None, "no transaction was done")
        return value, why

    def _facts(self) -> dict[str, str]:
        """What all parts of the study must have been run on: as its first part found it."""
        path = self.directory / "facts.json"
        if self.before is not None and path.exists():
            return {str(name): str(value) for name, value in json.loads(path.read_text(encoding="utf-8")).items()}
        found = self._fingerprint()
        write_durably(path, json.dumps(found).encode())
        return found

    def _judge(self, before: dict[str, str], after: dict[str, str]) -> None:
        book = Book(self.place)
        try:
            parts = parts_of(book.store, self.seal)
            design = read_either(parts[0]["kind"], parts[0]["design_json"])
            found = judge(design, figures_of(book.store, parts, design))
        finally:
            book.close()
        differs = changes(before, after)
        refused = refusals(differs)
        said = self.said(headline(found, design), refused)
        smallest = None if refused else smallest_effect(design, found)
        self.events.append("verdict", **said, differs=differs, smallest_effect=smallest)

    def said(self, found: Mapping[str, Any], refused: Sequence[str]) -> dict[str, Any]:
        """What the verdict says. found: the headline."""
        if not refused:
            return dict(found)
        none = {"verdict": "none", "good": None, "ratio": None, "low": None, "high": None}
        return dict(found) | none | {"text": f"no verdict, as this changed meanwhile: {'; '.join(refused)}"}

    def _fingerprint(self) -> dict[str, str]:
        study = self.study
        paths = [[factor.text_of(label)] for _, factor in study.of_kind("path") for label in factor.labels]
        lines = [step["command"] for step in (study.load, *study.reset) if "command" in step]
        commands = [loads.filled(study, cell, line, "") for line in lines for cell in study.cells]
        found = fingerprint([*commands, *paths, *([[study.load["file"]]] if "file" in study.load else [])])
        return found | (self.servers.facts() if isinstance(self.servers, NamedServer) else {})

    def _end_trials(self) -> None:
        """Trials of an earlier part that a kill has left running."""
        book = Book(self.place)
        try:
            parts = parts_of(book.store, self.before.seal) if self.before is not None else []
            marks = ", ".join("?" * len(parts))
            rows = book.store.rows(f"select * from run where status = 'running' and kind = 'leg' and parent in ({marks})",
                                   [part["uid"] for part in parts]) if parts else []  # fmt: skip
        finally:
            book.close()
        for row in rows:
            cancel(row)


def _nothing() -> None:
    """Trials of another study are not ours to end."""


def _without(study: Study, at: int, label: str, version_at: int, version: str, why: str) -> Study:
    cells = [cell for cell in study.cells if cell[at] == label and (version_at < 0 or cell[version_at] == version)]
    named = f"{study.names[at]}={label}" + (f" with {study.names[version_at]}={version}" if version_at >= 0 else "")
    return replace(
        study, excluded=(*study.excluded, *((cell, why[:500]) for cell in cells)), dropped=(*study.dropped, (named, why[:500]))
    )  # fmt: skip


def smallest_effect(design: Mapping[str, Any], found: Mapping[str, Any]) -> float | None:
    """Of a calibration: half of the interval's width, as a share: a difference below it would most often not be shown."""
    row = found["effects"][0] if found["effects"] else None
    if design["factors"][0]["kind"] != NOTHING or row is None or row["low"] is None or row["low"] <= 0:
        return None
    return float((row["high"] / row["low"]) ** 0.5 - 1)


@contextmanager
def held(directory: Path, end_trials: Callable[[], None], what: str = "the study") -> Iterator[int]:
    """Nobody else works on the study, or changes its server, meanwhile. What a killed one has left (a trial, the guard) has the lock until
    it ends. Raises LeadlineError while one runs.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline, asked = time.monotonic() + WAIT_S, False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                said = re.fullmatch(rb"(\d{1,10}) (\d{1,20})\n?", os.pread(fd, 64, 0))
                if said is not None and proc.lives(int(said[1]), int(said[2])):
                    hint = "wait for it, or leadline book cancel RUN"
                    raise LeadlineError("usage", f"{what} still runs, as process {int(said[1])}", hint=hint) from None
                if time.monotonic() > deadline:
                    raise LeadlineError("gone", f"what {what} had left does not end", hint=f"see who has {directory}/lock open") from None
                if not asked:
                    end_trials()
                    asked = True
                time.sleep(0.02)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {proc.start_ticks(os.getpid())}\n".encode(), 0)
        yield fd
    finally:
        with suppress(OSError):
            os.close(fd)


def before_of(book: Book, run: dict[str, Any]) -> Before:
    """What there is of a study. Raises LeadlineError for one that has ended, or that is none."""
    rows = book.store.rows("select seal from experiment where run = ?", (run["id"],))
    if run["kind"] != "study" or not rows:
        raise LeadlineError("usage", f"run {run['uid'][:5]} is no study that was registered", hint="leadline book list --kind study")
    parts = parts_of(book.store, rows[0]["seal"])
    if any(part["verdict"] is not None for part in parts):
        raise LeadlineError("usage", f"study {run['uid'][:5]} has ended", hint=f"leadline study show {run['uid'][:5]}")
    trials: dict[tuple[str, int], tuple[str, str]] = {}
    for part in parts:
        for one in book.store.rows("select part, n, side, problem from experiment_leg where run = ?", (part["run"],)):
            trials.setdefault((one["part"], one["n"]), (one["side"], one["problem"]))
    first = parts[0]
    return Before(first["uid"], first["seal"], first["registered"], first["design_json"], first["question"], trials)
