"""The load of a study as a command for one cell, and what its output says."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.book.experiments.cells import Cell
from leadline.book.experiments.design import words
from leadline.book.log import Log
from leadline.book.place import VARIABLE, Place
from leadline.study.design import OF_LOADS, Study
from leadline.study.servers import environment_of, run_sql, without_password

TRIALS = "leadline.study."
MOST_OUTPUT = 64 << 20


@dataclass(frozen=True)
class Command:
    """argv of a trial; shown: as the record has it. makes: its capture."""

    argv: list[str]
    shown: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    makes: dict[str, str] = field(default_factory=dict)


def command_of(study: Study, cell: Cell, dsn: str, directory: Path, number: int, uid: str, standby: str = "") -> Command:
    """dsn: of the server that is set up for the cell; empty without one. standby: of its standby."""
    load = study.load
    if "command" in load:
        env = environment_of(dsn) if dsn else {}
        env |= {factor.target: factor.text_of(cell[at]) for at, factor in study.of_kind("environment")}
        argv = filled(study, cell, load["command"], dsn, standby)
        if of_this(argv) != argv:
            return Command(of_this(argv), argv, env | {VARIABLE: "off"})
        return Command(argv, env=env)
    where, password = without_password(dsn)
    capture = str(load_capture(directory, number, uid))
    line = ["load", "run", where, *_what(study, cell, directory), f"--clients={load['clients']}", f"--for={load['for']}"]
    line += [f"--warm-up={load['warm_up']}", f"--mode={load['mode']}"]
    line += [f"--rate={load['rate']}", *(["--poisson"] if load.get("poisson") else [])] if "rate" in load else []
    line += [f"--threads={load['threads']}"] if "threads" in load else []
    line += [f"--output={capture}", "--json"]
    env = {VARIABLE: "off"} | ({"PGPASSWORD": password} if password else {})
    return Command([sys.executable, "-m", "leadline", *line], ["leadline", *line], env, {"capture": capture})


def of_this(argv: list[str]) -> list[str]:
    """`leadline ...`: this one, whatever is in PATH; it is recorded as the trial. `leadline.study.NAME ...`: a trial of a ready study."""
    return [sys.executable, "-m", *argv] if argv[:1] == ["leadline"] or (argv[:1] and argv[0].startswith(TRIALS)) else argv


def load_capture(directory: Path, number: int, uid: str) -> Path:
    """Of the load of a trial."""
    return directory / f"{number + 1:04}-{uid[:5]}.leadline"


def server_capture(directory: Path, number: int, uid: str) -> Path:
    """Of the server beside a trial. directory: of the study. number: of the trial. uid: of its run."""
    return directory / f"{number + 1:04}-{uid[:5]}-server.leadline"


def _what(study: Study, cell: Cell, directory: Path) -> list[str]:
    load = study.load
    if "workload" in load:
        return [f"--workload={load['workload']}"]
    if "file" in load:
        return [f"--script={load['file']}"]
    script = directory / f"load-{'-'.join(str(factor.labels.index(label)) for factor, label in zip(study.factors, cell))}.sql"
    script.write_text(study.in_place(cell, load["script"]), encoding="utf-8")
    return [f"--script={script}"]


def filled(study: Study, cell: Cell, command: str, dsn: str, standby: str = "") -> list[str]:
    """The words of a command. A level that is a command, alone in a word, may be several words; any other stays within its word."""
    of_commands = {f"{{{factor.name}}}": factor.text_of(cell[at]) for at, factor in study.of_kind("command")}
    out: list[str] = []
    for word in words(command, "load"):
        if word in of_commands:
            out += shlex.split(of_commands[word])
        else:
            word = study.in_place(cell, word).replace("{for}", study.load.get("for", ""))
            out.append(word.replace("{dsn}", without_password(dsn)[0] if dsn else "").replace("{standby}", standby))
    return out


def prepare(study: Study, dsn: str) -> None:
    """Makes what a new database of the study holds. Raises LeadlineError."""
    import subprocess

    from leadline.errors import LeadlineError
    from leadline.load.scale import init
    from leadline.net.login import server_of

    for step in study.prepare:
        if "scale" in step:
            init(server_of(dsn), step["scale"], force=True)
        elif "sql" in step:
            run_sql(dsn, step["sql"], "what prepares the database")
        else:
            import os

            argv = of_this([word.replace("{dsn}", dsn) for word in words(step["command"], "prepare")])
            env = os.environ | environment_of(dsn) | {VARIABLE: "off"}
            done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode:
                detail = (done.stderr or done.stdout).decode(errors="replace").strip()[-300:]
                raise LeadlineError("gone", f"what prepares the database ended with {done.returncode}", detail=detail, where=argv[0])


def printed_by_load(place: Place, uid: str) -> dict[str, Any] | None:
    """What `leadline load run --json` printed; None where that cannot be read."""
    try:
        log = Log(place, uid)
    except OSError:
        return None
    try:
        text = b"".join(log.pieces(0, min(log.size, MOST_OUTPUT))).decode("utf-8", "replace")
    finally:
        log.close()
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        found = json.JSONDecoder().raw_decode(text, at)[0]
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("phases"), list) else None


def figure_of(found: Mapping[str, Any], name: str) -> float | None:
    """One of OF_LOADS."""
    where, scale, _ = OF_LOADS[name]
    value: Any = {**found, **next((phase for phase in found["phases"] if not phase["warm_up"]), {})}
    for key in where.split():
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) * scale if isinstance(value, int | float) else None


def errors_of(found: Mapping[str, Any]) -> list[str]:
    """What its transactions failed with."""
    return [str(error["message"]) for phase in found["phases"] for error in phase["errors"]]


def measured(found: Mapping[str, Any]) -> int:
    """The transactions of a load, without those of its warm-up."""
    return sum(int(phase["done"]) for phase in found["phases"] if not phase["warm_up"])


def transactions_of(found: Mapping[str, Any]) -> int:
    """All of a load, with those of its warm-up: what the server counts meanwhile has them, too."""
    return sum(int(phase["done"]) for phase in found["phases"])
