"""A study as a TOML file has it: read, checked, and as the text that is sealed."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from leadline.book.experiments.cells import SHUFFLED, TIMES, Cell, all_cells, name_of, orders_of
from leadline.book.experiments.design import LONGEST, METRICS, hide, margin_of, pattern_of, words
from leadline.book.redact import redact_text
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import MOST_PAIRS
from leadline.lab.verdict import BETTER
from leadline.study import places
from leadline.units import seconds_of
from leadline.whole import read_whole

LINKS = ("round_trip", "replay_cpu")  # what is between a private primary and its standby, and the CPU that replay may use
STANDBY = "standby_setting"
OF_PAIRS = (*LINKS, STANDBY)
KINDS = ("setting", "command", "path", "environment", "version", "schema", "layout", *OF_PAIRS)
ALIASES = {"catch-up": "outage"}  # other names of ready studies
NOTHING = "nothing"  # the kind of factor of a calibration: its levels are alike
# Figures of `leadline load run`, and where they are in what it prints as JSON.
OF_LOADS = {
    "tps": ("per_second", 1.0, "more"), "p50_ms": ("latency p50_ns", 1e-6, "less"), "p99_ms": ("latency p99_ns", 1e-6, "less"),
    "mean_ms": ("latency mean_ns", 1e-6, "less"), "max_ms": ("latency max_ns", 1e-6, "less"),
    "p99_9_ms": ("latency p99_9_ns", 1e-6, "less"), "rows_per_s": ("purge rows_per_second", 1.0, "more"),
}  # fmt: skip
OF_SERVERS = {"wal_bytes": "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"}
OF_LINKS = "added_rtt_ms"  # measured by what delays a pair
MOST_CELLS, MOST_FACTORS, LONGEST_FILE = 200, 6, 1 << 20
_KEYS = {
    "": ("question", "hypothesis", "needs", "margin", "repetitions", "warmup", "seed", "profile", "factor", "exclude", "server", "prepare",
         "reset", "load", "metric"),
    "factor": ("name", *KINDS, "levels", "enough"),
    "server": ("version", "pg_bin", "settings", "standby", "standby_settings", "replay_cpu"),
    "prepare": ("scale", "sql", "command"),
    "reset": ("sql", "command"),
    "load": ("workload", "script", "file", "command", "clients", "rate", "poisson", "for", "warm_up", "mode", "threads"),
    "metric": ("name", "value", "pattern", "sql", "difference", "per", "better", "margin", "proves", "compared"),
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Factor:
    """kind: one of KINDS. target: the setting, also of the standby, or the environment variable. levels: label and text of each; the first
    is the baseline. enough: whether the others stand in order, so that the first that is as good as the baseline is enough."""

    name: str
    kind: str
    target: str
    levels: tuple[tuple[str, str], ...]
    enough: bool = False

    @property
    def effect(self) -> str:
        """Of a setting: the name of its effect."""
        return f"standby {self.target}" if self.kind == STANDBY else self.target

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in self.levels]

    def text_of(self, label: str) -> str:
        return dict(self.levels)[label]


@dataclass(frozen=True)
class Metric:
    """source: used (one of METRICS), load (of OF_LOADS), link (OF_LINKS), pattern or sql. difference: of sql, what is after it less what
    was before it. per: transaction or empty. proves: a factor, of which this figure says whether its level had an effect. compared: whether
    levels are compared by it; if not, it may be zero or less."""

    name: str
    source: str
    text: str
    better: str
    margin: float
    difference: bool = False
    per: str = ""
    proves: str = ""
    compared: bool = True

    @property
    def is_time(self) -> bool:
        return self.text in TIMES


@dataclass(frozen=True)
class Study:
    """excluded: cells that are not run, each with its reason. load, server, prepare, reset: as in the file. profile: captures of the
    server have the functions that used its CPU time."""

    name: str
    question: str
    factors: tuple[Factor, ...]
    load: dict[str, Any]
    metrics: tuple[Metric, ...]
    hypothesis: str = ""
    needs: str = ""
    margin: float = 0.03
    repetitions: int = 10
    warmup: int = 0
    seed: int = 0
    profile: bool = False
    excluded: tuple[tuple[Cell, str], ...] = ()
    server: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[dict[str, Any], ...] = ()
    reset: tuple[dict[str, Any], ...] = ()
    path: str = ""  # its file, or the name of a ready one
    dropped: tuple[tuple[str, str], ...] = ()  # levels that the server refuses or that change nothing, and why; their cells are excluded
    notes: tuple[str, ...] = ()  # on levels of which the server made something else
    dsn: str = ""  # of a server that is not ours, without its password
    folder: str = ""
    drawn: str = SHUFFLED  # how the order is drawn

    @property
    def names(self) -> list[str]:
        return [factor.name for factor in self.factors]

    @property
    def baseline(self) -> Cell:
        return tuple(factor.labels[0] for factor in self.factors)

    @property
    def cells(self) -> list[Cell]:
        """Those that are run."""
        left_out = {cell for cell, _ in self.excluded}
        return [cell for cell in all_cells([factor.labels for factor in self.factors]) if cell not in left_out]

    @property
    def order(self) -> list[list[int]]:
        return orders_of(len(self.cells), self.repetitions, self.seed, self.drawn)

    @property
    def needs_server(self) -> bool:
        on_server = any(factor.kind in ("setting", "version", "schema", "layout") for factor in self.factors)
        asks = any(metric.source == "sql" for metric in self.metrics)
        steps = any("sql" in step or "scale" in step for step in (*self.prepare, *self.reset))
        return bool(self.server or self.dsn or on_server or asks or steps or "command" not in self.load)

    @property
    def has_pair(self) -> bool:
        return bool(self.server.get("standby"))

    def of_kind(self, kind: str) -> list[tuple[int, Factor]]:
        return [(at, factor) for at, factor in enumerate(self.factors) if factor.kind == kind]

    def in_place(self, cell: Cell, text: str) -> str:
        """The text with the levels of the cell where {FACTOR} stands."""
        for factor, label in zip(self.factors, cell):
            text = text.replace(f"{{{factor.name}}}", factor.text_of(label))
        return text

    def cell_name(self, cell: Cell) -> str:
        return name_of(self.names, cell)

    @property
    def question_hash(self) -> str:
        """The same for studies that ask the same: with more repetitions or another margin it is another try."""
        import hashlib

        factors = [asdict(factor) for factor in self.factors]
        asked = [factors, self.load, [metric.text for metric in self.metrics], self.server, self.prepare, self.reset, self.dsn, self.folder]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()

    def as_text(self) -> str:
        """What is sealed: all of it, without secrets, with the order of the trials."""
        out = asdict(self) | {"order": self.order, "cells": self.cells}
        return json.dumps(_hidden(out), ensure_ascii=False, sort_keys=True)


def _hidden(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _hidden(one, key) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(one, name) for one in value]
    if isinstance(value, str):
        return hide(value) if name == "command" and _has_words(value) else redact_text(value)
    return value


def _has_words(command: str) -> bool:
    try:
        return shlex.join(shlex.split(command)) == command
    except ValueError:
        return False


def of_text(text: str) -> Study:
    """What as_text gave. Raises KeyError, TypeError or ValueError for what is none."""
    said = json.loads(text)
    values = {name: said[name] for name in ("name", "question", "hypothesis", "needs", "margin", "repetitions", "warmup", "seed", "load",
                                            "server", "dsn", "folder", "path")}  # fmt: skip
    factors = tuple(
        Factor(one["name"], one["kind"], one["target"], tuple((str(a), str(b)) for a, b in one["levels"]), bool(one.get("enough")))
        for one in said["factors"]
    )
    return Study(
        **values, profile=bool(said.get("profile")), factors=factors, metrics=tuple(Metric(**one) for one in said["metrics"]),
        excluded=tuple((tuple(cell), reason) for cell, reason in said["excluded"]), prepare=tuple(said["prepare"]),
        reset=tuple(said["reset"]), notes=tuple(said["notes"]),
        dropped=tuple((level, why) for level, why in said["dropped"]),
    )  # fmt: skip


def ready_pairs() -> list[str]:
    """The ready studies of a primary and its standby."""
    return [name for name in ready() if read(name).has_pair]


def of_replication() -> list[str]:
    """The ready studies of `leadline replication study`: those of pairs, and that of crash recovery, which needs no standby."""
    return sorted([*ready_pairs(), "recovery"])


def ready() -> list[str]:
    directory = resources.files("leadline.study").joinpath("ready")
    return sorted(file.name.removesuffix(".toml") for file in directory.iterdir() if file.name.endswith(".toml"))


def read(name: str) -> Study:
    """A ready study by its name, or a file. Raises LeadlineError."""
    name = ALIASES.get(name, name)
    if name in ready():
        text = resources.files("leadline.study").joinpath("ready", f"{name}.toml").read_text(encoding="utf-8")
        return replace(parse(text, name, f"study {name}"), path=name)
    path = Path(name)
    try:
        data = read_whole(path, LONGEST_FILE)
    except LeadlineError as e:
        if e.kind != "not_found":
            raise
        hint = f"ready studies: {', '.join(ready())}; or give a file NAME.toml"
        raise LeadlineError("not_found", "there is no such study", hint=hint, where=name) from None
    try:
        return replace(parse(data.decode(), path.stem, name), path=name)
    except UnicodeDecodeError as e:
        raise LeadlineError("invalid", "the design is not in UTF-8", detail=f"at byte {e.start}", where=name) from e


def parse(text: str, name: str, where: str = "") -> Study:
    """Raises LeadlineError('usage') that says what is wrong and where."""
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise LeadlineError("usage", "the design is no TOML", detail=str(e), where=where) from e
    try:
        return _study(given, name)
    except LeadlineError as e:
        raise LeadlineError(e.kind, e.message, e.detail, e.hint, f"{where}: {e.where}" if e.where else where) from None


def _study(given: Mapping[str, Any], name: str) -> Study:
    _only(given, "")
    factors = tuple(_factor(one) for one in _tables(given, "factor"))
    if not factors:
        raise _wrong("the design has no factor", "[[factor]] with setting = NAME and levels = [...]", "factor")
    if len({factor.name for factor in factors}) < len(factors) or len(factors) > MOST_FACTORS:
        raise _wrong(f"factors need names of their own, and there are at most {MOST_FACTORS}", "name = ...", "factor")
    margin = margin_of(_text(given, "margin", "3%"))
    load = _load(given.get("load"))
    study = Study(
        name=name, question=_text(given, "question", ""), hypothesis=_text(given, "hypothesis", ""), needs=_text(given, "needs", ""),
        factors=factors, load=load, margin=margin,
        metrics=_metrics(_tables(given, "metric"), load, margin, [factor.name for factor in factors]),
        repetitions=_whole(given, "repetitions", 10, 1, MOST_PAIRS), warmup=_whole(given, "warmup", 0, 0, 100),
        seed=_whole(given, "seed", 0, 0, 2**53), profile=given.get("profile") is True, server=_server(given.get("server", {})),
        prepare=tuple(_step(one, "prepare") for one in _tables(given, "prepare")),
        reset=tuple(_step(one, "reset") for one in _tables(given, "reset")),
    )  # fmt: skip
    if not study.question:
        raise _wrong("the design asks no question", 'question = "Does ... help?"', "question")
    for one in _tables(given, "exclude"):
        levels = {key: value for key, value in one.items() if key != "reason"}
        study = exclude(study, levels, _text(one, "reason", "left out by the design"))
    if len(study.cells) > MOST_CELLS:
        raise _wrong(f"{len(study.cells):,} cells are more than {MOST_CELLS}", "fewer factors or levels", "factor")
    _used(study)
    return study


def _factor(given: Mapping[str, Any]) -> Factor:
    _only(given, "factor")
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        raise _wrong("a factor is exactly one of " + ", ".join(KINDS), 'setting = "work_mem"; version = true', "factor")
    kind, target = kinds[0], given[kinds[0]]
    named = kind in ("setting", "environment", STANDBY)
    if (named and not (isinstance(target, str) and _NAME.fullmatch(target))) or (not named and target is not True):
        raise _wrong(f"{kind} of a factor is {'a name' if named else 'true'}", f"{kind} = {'NAME' if named else 'true'}", "factor")
    name = _text(given, "name", target if named else kind)
    if not _NAME.fullmatch(name):
        raise _wrong(f"{name[:60]!r} is no name of a factor", "letters, digits and _", "factor")
    levels = given.get("levels")
    pairs = list(levels.items()) if isinstance(levels, dict) else [(one, one) for one in levels] if isinstance(levels, list) else []
    texts = [(_level(label), _level(text)) for label, text in pairs]
    if len(texts) < 2 or len({label for label, _ in texts}) < len(texts):
        raise _wrong(f"{name} needs two levels or more, each once", 'levels = ["off", "on"]: the first is the baseline', "levels")
    if any(not label or len(label) > 100 or len(text) > LONGEST or "\0" in text or "=" in label or "," in label for label, text in texts):
        hint = 'levels = { one = "the text", two = "..." } gives a long level a short name'
        raise _wrong(f"a level of {name} has no name of at most 100 letters without = and comma", hint, "levels")
    for _, text in texts:
        _of_kind(kind, text)
    return Factor(name, kind, target if named else "", tuple(texts), given.get("enough") is True)


def _of_kind(kind: str, text: str) -> None:
    """Raises LeadlineError for a text that is no level of such a factor."""
    if kind == "layout":
        places.parse(text)
    elif kind == "round_trip":
        seconds_of(text)
    elif kind == "replay_cpu":
        margin_of(text)


def _level(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value) if isinstance(value, str | int | float) else ""


def _load(given: Any) -> dict[str, Any]:
    hint = '[load] with workload = "tpcb", script = "SQL", file = "FILE.sql" or command = "COMMAND"'
    if not isinstance(given, dict):
        raise _wrong("the design has no load", hint, "load")
    _only(given, "load")
    kinds = [kind for kind in ("workload", "script", "file", "command") if kind in given]
    if len(kinds) != 1 or not isinstance(given[kinds[0]], str):
        raise _wrong("a load is one of workload, script, file and command", hint, "load")
    if kinds == ["command"]:
        if not set(given) <= {"command", "for"}:
            raise _wrong("a command has no clients, rate or warm-up", "put them into the command", "load")
        words(given["command"], "load")
        if ("for" in given) != ("{for}" in given["command"]):
            raise _wrong("a command has a time where {for} stands in it", 'command = "... {for}", for = "10s"', "load")
        if "for" in given:
            seconds_of(_text(given, "for", ""))
        return dict(given)
    load: dict[str, Any] = {kinds[0]: given[kinds[0]], "clients": _whole(given, "clients", 4, 1, 10_000)}
    for name in ("for", "warm_up"):
        load[name] = _text(given, name, {"for": "10s", "warm_up": "1s"}[name])
        seconds_of(load[name])
    if "rate" in given:
        if isinstance(given["rate"], bool) or not isinstance(given["rate"], int | float) or not 0 < given["rate"] < 1e9:
            raise _wrong("rate is no number of transactions a second", "rate = 200", "load")
        load |= {"rate": float(given["rate"]), "poisson": given.get("poisson", True) is True}
    if "threads" in given:
        load["threads"] = _whole(given, "threads", 1, 1, 1024)
    load["mode"] = _text(given, "mode", "prepared")
    if load["mode"] not in ("simple", "extended", "prepared"):
        raise _wrong("mode is simple, extended or prepared", 'mode = "prepared"', "load")
    return load


def _metrics(given: Sequence[Mapping[str, Any]], load: Mapping[str, Any], margin: float, factors: Sequence[str]) -> tuple[Metric, ...]:
    is_command = "command" in load
    default = {"value": "seconds"} if is_command else {"value": "tps"}
    out = []
    for one in given or [default]:
        _only(one, "metric")
        sources = [name for name in ("value", "pattern", "sql") if name in one]
        known = [*METRICS, *OF_SERVERS, OF_LINKS, *([] if is_command else OF_LOADS)]
        if len(sources) != 1 or not isinstance(one[sources[0]], str):
            raise _wrong("a metric has one of value, pattern and sql", f"value = one of {', '.join(known)}", "metric")
        source, text = sources[0], one[sources[0]]
        better, difference = _text(one, "better", ""), bool(one.get("difference", True))
        name = _text(one, "name", text)
        if source == "value" and text not in known:
            raise _wrong(f"there is no value {text[:60]!r}", f"one of {', '.join(known)}", "metric")
        if source == "value":
            source = "used" if text in METRICS else "sql" if text in OF_SERVERS else "link" if text == OF_LINKS else "load"
            better = better or (OF_LOADS[text][2] if source == "load" else "less")
            text = OF_SERVERS.get(text, text)
        elif source == "pattern":
            pattern_of(text)
        proves = _text(one, "proves", "")
        if proves and proves not in factors:
            raise _wrong(f"{proves} is no factor", f"factors: {', '.join(factors)}", "metric")
        if type(one.get("compared", True)) is not bool:
            raise _wrong("compared is true or false", "compared = false", "metric")
        compared = not proves and one.get("compared", True)
        better = better or ("" if compared else "less")
        if better not in BETTER:
            raise _wrong(f"say whether less or more of {name} is better", 'better = "less"', "metric")
        per = _text(one, "per", "")
        if per not in ("", "transaction") or (per and is_command):
            raise _wrong("per is transaction, and only of a load that counts them", 'per = "transaction"', "metric")
        mine = margin_of(_text(one, "margin", "")) if "margin" in one else margin
        out.append(Metric(name[:60], source, text, better, mine, source == "sql" and difference, per, proves, compared))
    if not out[0].compared:
        raise _wrong("the first metric is what the study is about", "put those that are not compared after it", "metric")
    if len({metric.name for metric in out}) < len(out):
        raise _wrong("two metrics have one name", "name = ...", "metric")
    return tuple(out)


def _server(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _wrong("server is a table", "[server]", "server")
    _only(given, "server")
    out: dict[str, Any] = {}
    for name in ("settings", "standby_settings"):
        settings = given.get(name, {})
        if not isinstance(settings, dict) or not all(isinstance(value, str | int | float | bool) for value in settings.values()):
            raise _wrong("settings of the server are names with values", f'{name} = {{ shared_buffers = "256MB" }}', "server")
        out |= {name: settings} if settings else {}
    if type(given.get("standby", False)) is not bool:
        raise _wrong("standby is true or false", "standby = true", "server")
    out |= {"standby": True} if given.get("standby") else {}
    if "replay_cpu" in given:
        margin_of(_text(given, "replay_cpu", ""))
        out["replay_cpu"] = given["replay_cpu"]
    if "version" in given:
        out["version"] = _whole(given, "version", 18, 10, 99)
    if "pg_bin" in given:
        out["pg_bin"] = _text(given, "pg_bin", "")
    return out


def _step(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    _only(given, what)
    if len(given) != 1:
        raise _wrong(f"a step of {what} is one of {', '.join(_KEYS[what])}", f'[[{what}]] sql = "checkpoint"', what)
    if "scale" in given:
        return {"scale": _whole(given, "scale", 1, 1, 100_000)}
    if "command" in given:
        words(_text(given, "command", ""), what)
        return {"command": given["command"]}
    sql = given["sql"]
    statements = [sql] if isinstance(sql, str) else sql
    if not isinstance(statements, list) or not all(isinstance(one, str) and one.strip() for one in statements):
        raise _wrong("sql is a statement, or a list of them", 'sql = "checkpoint"', what)
    return {"sql": statements}


def _used(study: Study) -> None:
    """Each command and path must be somewhere, or its levels are alike."""
    places = [study.load.get("command", ""), study.load.get("script", "")]
    places += [str(part) for step in (*study.prepare, *study.reset) for part in step.values()]
    for factor in study.factors:
        if factor.kind in ("command", "path") and not any(f"{{{factor.name}}}" in place for place in places):
            raise _wrong(f"{{{factor.name}}} stands in no command of the design", f'command = "... {{{factor.name}}} ..."', "load")
        if factor.kind == "environment" and "command" not in study.load:
            raise _wrong("an environment variable is for a load that is a command", "[load] command = ...", "factor")
        if factor.kind in OF_PAIRS and not study.has_pair:
            raise _wrong(f"{factor.kind} is for a server with a standby", "[server] standby = true", "factor")
    if "replay_cpu" in study.server and not study.has_pair:
        raise _wrong("replay_cpu is for a server with a standby", "[server] standby = true", "server")
    if study.has_pair and study.of_kind("layout"):
        raise _wrong("a server with a standby has no layouts of storage", "without standby = true", "server")
    if any(metric.source == "link" for metric in study.metrics) and not study.of_kind("round_trip"):
        raise _wrong(f"{OF_LINKS} needs a factor with a round trip", "[[factor]] round_trip = true", "metric")


def exclude(study: Study, where: Mapping[str, Any], reason: str) -> Study:
    """Without the cells that have these levels. Raises LeadlineError."""
    wanted = {name: _level(value) for name, value in where.items()}
    for name, level in wanted.items():
        factor = next((one for one in study.factors if one.name == name), None)
        if factor is None or level not in factor.labels:
            raise _wrong(f"{name}={level} is no level of a factor", f"factors: {', '.join(study.names)}", "exclude")
    found = [cell for cell in study.cells if all(cell[study.names.index(name)] == level for name, level in wanted.items())]
    if not wanted or not found:
        raise _wrong("what is excluded is no cell", 'updates = "no", kaio = "off"', "exclude")
    left = replace(study, excluded=(*study.excluded, *((cell, reason) for cell in found)))
    if len(left.cells) < 2:
        raise _wrong("nothing is left to compare", "exclude fewer cells", "exclude")
    return left


def include(study: Study, text: str) -> Study:
    """With a cell that the design leaves out: A=x,B=y. Raises LeadlineError."""
    wanted = dict(part.strip().partition("=")[::2] for part in text.split(","))
    cell = tuple(wanted.get(name, "") for name in study.names)
    if set(wanted) != set(study.names) or cell not in {one for one, _ in study.excluded}:
        empty = "; ".join(study.cell_name(one).replace(", ", ",") for one, _ in study.excluded) or "none"
        raise LeadlineError("usage", f"{text[:100]!r} is no cell that the design leaves out", hint=f"left out: {empty}", where="--include")
    return replace(study, excluded=tuple(one for one in study.excluded if one[0] != cell))


def with_setting(study: Study, given: Sequence[str]) -> Study:
    """--setting NAME=LEVEL,LEVEL: takes the place of the factors that are settings; in a study of settings of a standby, of those.

    Raises LeadlineError.
    """
    kind = STANDBY if study.of_kind(STANDBY) and not study.of_kind("setting") else "setting"
    factors = []
    for one in given:
        name, equals, levels = one.partition("=")
        if not equals:
            raise LeadlineError("usage", f"{one[:60]!r} is no setting with levels", hint="--setting work_mem=4MB,64MB", where="--setting")
        factors.append(_factor({kind: name.strip(), "levels": [part.strip() for part in levels.split(",")]}))
    kept = tuple(factor for factor in study.factors if factor.kind != kind)
    named = ", ".join(f"{factor.target} ({' or '.join(factor.labels[1:])} instead of {factor.labels[0]})" for factor in factors)
    same = {factor.target for factor in factors} == {factor.target for _, factor in study.of_kind(kind)}
    hypothesis = study.hypothesis if same else ""  # what the design expects of its own settings
    return replace(study, factors=(*factors, *kept), question=f"Does another {named} help?", hypothesis=hypothesis, excluded=())


def with_layouts(study: Study, given: Sequence[str], *, on_named: bool = False) -> Study:
    """--layout NAME=PLACES, twice or more: takes the place of the factor that is a layout. on_named: of a server that is not ours.

    Raises LeadlineError.
    """
    levels = dict(one.partition("=")[::2] for one in given)
    if len(levels) < 2 or not all(levels.values()):
        hint = "--layout one=/mnt/a --layout two='/mnt/a wal=/mnt/b': the first is the baseline"
        raise LeadlineError("usage", "two layouts or more are compared, each with a name and a place", hint=hint, where="--layout")
    written = {label: _written(places.spaces(text)) if on_named else _absolute(text) for label, text in levels.items()}
    factor = replace(_factor({"layout": True, "levels": dict.fromkeys(written, ".")}), levels=tuple(written.items()))
    kept = tuple(one for one in study.factors if one.kind != "layout")
    if len(kept) == len(study.factors):
        raise LeadlineError("usage", "this study has no factor that is a layout", hint="leadline study plan storage", where="--layout")
    return replace(study, factors=(factor, *kept), excluded=())


def with_round_trips(study: Study, given: str) -> Study:
    """--round-trip A,B: takes the place of the levels of the factor that is one. Raises LeadlineError."""
    at = next((n for n, factor in enumerate(study.factors) if factor.kind == "round_trip"), None)
    if at is None:
        hint = "leadline study plan commit-modes"
        raise LeadlineError("usage", "this study has no factor that is a round trip", hint=hint, where="--round-trip")
    return _with_levels(study, at, given)


def with_levels(study: Study, given: Sequence[str]) -> Study:
    """--levels FACTOR=A,B: takes the place of the levels of a factor. Raises LeadlineError."""
    for one in given:
        name, _, levels = one.partition("=")
        if name.strip() not in study.names:
            hint = f"--levels {study.names[0]}=A,B; factors: {', '.join(study.names)}"
            raise LeadlineError("usage", f"this study has no factor {name[:60]!r}", hint=hint, where="--levels")
        study = _with_levels(study, study.names.index(name.strip()), levels)
    return study


def _with_levels(study: Study, at: int, given: str) -> Study:
    """given: levels apart by commas. One that the factor has keeps its text."""
    factor, labels = study.factors[at], [part.strip() for part in given.split(",")]
    levels = {label: dict(factor.levels).get(label, label) for label in labels}
    new = _factor({factor.kind: factor.target or True, "name": factor.name, "levels": levels, "enough": factor.enough})
    return replace(study, factors=(*study.factors[:at], new, *study.factors[at + 1 :]), excluded=())


def on_named(study: Study) -> Study:
    """Of a private pair, for a pair that is there: without what only a private one can have. Raises LeadlineError."""
    if not study.has_pair:
        return study
    factors = tuple(factor for factor in study.factors if factor.kind not in OF_PAIRS)
    if not factors or "{standby}" in study.load.get("command", ""):
        raise LeadlineError("usage", "this study needs a private pair", hint="without --server", where="--server")
    metrics = tuple(metric for metric in study.metrics if metric.source != "link" and metric.proves not in OF_PAIRS)
    return replace(study, factors=factors, metrics=metrics, server={}, excluded=())


def _absolute(text: str) -> str:
    """A resumed study may go on in another directory."""
    return _written({name: str(Path(where).absolute()) for name, where in places.parse(text).items()})


def _written(layout: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={where}" for name, where in layout.items())


def _only(given: Mapping[str, Any], what: str) -> None:
    for key in given:
        if key not in _KEYS[what]:
            raise _wrong(f"a {what or 'study'} has no {key[:60]}", f"it has {', '.join(_KEYS[what])}", key)


def _tables(given: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _wrong(f"{name} is a list of tables", f"[[{name}]]", name)
    return found


def _text(given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST:
        raise _wrong(f"{name} is no text of at most {LONGEST:,} letters", f'{name} = "..."', name)
    return value


def _whole(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise _wrong(f"{name} is no whole number from {least} to {most:,}", f"{name} = {default}", name)
    return value


def _wrong(message: str, hint: str, where: str) -> LeadlineError:
    return LeadlineError("usage", message, hint=hint, where=where)


def alike(study: Study) -> Study:
    """The load of a study against itself, with the baseline of each factor; nothing is said of what the levels were."""
    server = dict(study.server)
    for kind, name in (("setting", "settings"), (STANDBY, "standby_settings")):
        if kept := study.of_kind(kind):
            server[name] = server.get(name, {}) | {factor.target: factor.levels[0][1] for _, factor in kept}
    for _, factor in study.of_kind("replay_cpu"):
        server["replay_cpu"] = factor.levels[0][1]
    for _, factor in study.of_kind("version"):
        server["pg_bin" if "/" in factor.levels[0][1] else "version"] = factor.levels[0][1]
    metrics = tuple(metric for metric in study.metrics if not metric.proves)
    nothing = Factor(NOTHING, NOTHING, "", (("a", ""), ("b", "")))
    question = f"What is the smallest effect that this host can show, with the load of {study.name}?"

    def of_baseline(part: Any) -> Any:
        """A load or a step."""
        if isinstance(part, dict):
            return {name: of_baseline(one) for name, one in part.items()}
        if isinstance(part, list):
            return [of_baseline(one) for one in part]
        return study.in_place(study.baseline, part) if isinstance(part, str) else part

    return replace(
        study, name=f"calibrate-{study.name}", question=question, hypothesis="both are alike", factors=(nothing,), excluded=(),
        server=server, metrics=metrics, load=of_baseline(study.load), reset=tuple(map(of_baseline, study.reset)),
    )  # fmt: skip
