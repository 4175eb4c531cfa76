"""leadline study run: runs what is planned, or what is missing of it."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from leadline.cli.asked import ask
from leadline.cli.study.options import as_json, find_study, study_of, what
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.book.place import Place
    from leadline.study.design import Study
    from leadline.study.perform import Before

SERVER = "LEADLINE_STUDY_SERVER"  # in the environment of a study: the DSN of its server, which may have a password in it


@click.command(
    "run",
    short_help="Run a study, or go on with one.",
    epilog="""\b
Examples:
  leadline study run settings --setting wal_compression=off,lz4
  leadline study run my-study.toml --repetitions 20
  leadline study run settings --setting work_mem=4MB,64MB \\
    --server postgres:///shop --yes
  leadline study run --resume 4k7q2""",
)
@click.argument("name", metavar="NAME|FILE.toml", required=False)
@what
@click.option("--resume", metavar="RUN", help="Continue a study that was killed or interrupted: run only the missing trials.")
@click.option("--yes", is_flag=True, help="Change the server that --server names without asking.")
@as_json
def command(name: str | None, resume: str | None, yes: bool, as_json: bool, **given: Any) -> int:
    """Run a study: each combination of levels once per block, in random order.

    First each level of a setting is applied and read back from pg_settings. A level that the server refuses, or that changes nothing, is
    left out, and the report says so. Then the design is sealed in the logbook, and the trials run. Each trial is a run of its own, with
    its capture. A trial that fails leaves its place empty; a combination whose first two trials fail is given up.

    A private server is removed at the end. On a server that --server names, the old settings are restored and read back, even if the
    study is killed.

    Exit code 0: the study ended, whatever its verdict; 2: error; 130: interrupted; --resume continues it.
    """
    return start(name, given, resume, yes, as_json)


def start(name: str | None, given: dict[str, Any], resume: str | None, yes: bool, as_json: bool) -> int:
    """given: the options of a design (`what`). Raises LeadlineError."""
    from leadline.book.experiments.trials import JOIN
    from leadline.book.place import find_place

    if (name is None) == (resume is None) and not (name and resume):
        raise click.UsageError("give the name of a study, its file, or --resume RUN")
    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="a study is registered before it begins")
    uid = os.environ.pop(JOIN, "")
    given["server"] = os.environ.pop(SERVER, "") or given["server"]
    before, study, dsn = None, None, ""
    if resume is not None:
        before, study, dsn = _resumed(place, resume, name, given)
    else:
        assert name is not None
        study, dsn = study_of(name, given)
    if uid:
        return perform(study, place, uid, dsn, given, before, as_json)
    from dataclasses import replace

    if before is None:
        study = replace(study, seed=secrets.randbelow(10**9) if given["seed"] is None else given["seed"])
    if dsn and not yes:
        _ask(study, dsn, given["restart"] or "")
    return as_run(study, given, dsn, name=name, resume=before.first if before else None, as_json=as_json)


def as_run(study: Study, given: dict[str, Any], dsn: str, *, name: str | None, resume: str | None, as_json: bool, verb: str = "run") -> int:
    """The study as a run of the book: the same command, with the uid of that run."""
    from leadline.book.command import run_request
    from leadline.book.experiments.trials import JOIN
    from leadline.book.spool import new_uid
    from leadline.book.supervisor import Request

    uid = new_uid()
    line = [verb, *([name] if name else []), *(f"--setting={one}" for one in given["settings"])]
    line += [f"--layout={one}" for one in given["layouts"]]
    line += [f"--levels={one}" for one in given["levels"]]
    line += [f"--include={one}" for one in given["includes"]]
    options = {"round_trips": "round-trip", "repetitions": "repetitions", "duration": "for", "clients": "clients", "margin": "margin",
               "pg_bin": "pg-bin", "restart": "restart"}  # fmt: skip
    line += [f"--{option}={given[key]}" for key, option in options.items() if given.get(key)]
    line += [f"--resume={resume}"] if resume else [f"--seed={study.seed}"]
    shown = ["leadline", "study", *line, *([f"--server={study.dsn}"] if dsn else [])]
    request = Request(
        [sys.executable, "-m", "leadline", "study", *line, *(["--json"] if as_json else [])], uid, "study", study.name,
        env={JOIN: uid} | ({SERVER: dsn} if dsn else {}), shown=shown, interrupted_code=130,
        labels={"resumes": resume} if resume else {},
    )  # fmt: skip
    return run_request(request)


def _resumed(place: Place, resume: str, name: str | None, given: dict[str, Any]) -> tuple[Before, Study, str]:
    from leadline.book.query import Book
    from leadline.book.redact import HIDDEN
    from leadline.study.design import of_text
    from leadline.study.perform import before_of

    book = Book(place)
    try:
        before = before_of(book, find_study(book, resume))
    finally:
        book.close()
    try:
        study = of_text(before.text)
    except (KeyError, TypeError, ValueError) as e:
        raise LeadlineError("invalid", "the design of this study cannot be read", hint="it is of another version of leadline") from e
    if name is not None:
        from dataclasses import replace

        again, dsn = study_of(name, given)
        again = replace(again, seed=study.seed, excluded=study.excluded, notes=study.notes, folder=study.folder)
        if again.as_text() != before.text:
            raise LeadlineError("usage", "this is another design than the one that was sealed", hint=f"--resume {resume} without a name")
        return before, again, dsn
    if HIDDEN in before.text:
        raise LeadlineError("usage", "a command of this study holds a secret, which is not recorded", hint="name its design, too")
    if study.dsn:
        from leadline.study.servers import without_password

        if given["server"] and without_password(given["server"])[0] != study.dsn:
            raise LeadlineError("usage", "the study ran on another server", detail=study.dsn, where="--server")
        return before, study, given["server"] or study.dsn
    if given["server"]:
        raise LeadlineError("usage", "the study ran on a private server", where="--server")
    return before, study, ""


def perform(study: Study, place: Place, uid: str, dsn: str, given: dict[str, Any], before: Before | None, as_json: bool) -> int:
    """Within its run."""
    from dataclasses import replace
    from pathlib import Path

    from leadline.cli.study.show import print_study
    from leadline.interrupt import terminated_as_interrupted
    from leadline.study.perform import StudyRun

    if before is None:
        study = replace(study, seed=given["seed"] or 0)
        if "command" in study.load:
            made_for_it = os.path.realpath(Path.cwd()) == os.path.realpath(place.work_of(uid))
            study = replace(study, folder="" if made_for_it else str(Path.cwd()))
    tell = lambda text: click.echo(text, err=True)  # noqa: E731
    running = StudyRun(study, place, uid, tell, dsn=dsn, restart=given["restart"] or "", pg_bin=given["pg_bin"], before=before)
    try:
        with terminated_as_interrupted():
            running.perform()
    except BaseException:
        if running.seal:
            click.echo(f"next: leadline study run --resume {running.first[:5]}", err=True)
        raise
    print_study(uid, as_json)
    return 0


def _ask(study: Study, dsn: str, restart: str) -> None:
    """What will be changed on a server that is not ours. Raises LeadlineError where nobody can answer, click.Abort for a no."""
    nobody = LeadlineError("usage", "nobody is there to ask whether to change this server", hint="--yes changes it", where=study.dsn)
    ask(to_be_changed(study, dsn, restart), "Change this server?", nobody)


def to_be_changed(study: Study, dsn: str, restart: str) -> list[str]:
    """Raises LeadlineError."""
    import psycopg

    from leadline.engines.postgres.server.settings import known

    settings = study.of_kind("setting")
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
            about = known(connection, [factor.target for _, factor in settings])
    except psycopg.Error as e:
        said = " ".join(str(e).split())
        raise LeadlineError("connection", "cannot connect to the server of the study", detail=said, where=study.dsn) from e
    lines = [f"The study changes the server {study.dsn}:"]
    for _, factor in settings:
        needs = "a restart" if about[factor.target].context == "postmaster" else "a reload"
        if about[factor.target].context == "postmaster" and not restart:
            raise LeadlineError("usage", f"{factor.target} needs a restart", hint="--restart COMMAND restarts this server")
        has = about[factor.target].shown
        lines.append(f"  {factor.target} becomes {', '.join(factor.labels)} in turn, with {needs} each time; it has {has}")
    layouts = study.of_kind("layout")
    if study.of_kind("schema") or study.prepare or layouts:
        lines.append("  databases leadline_study_... are created, and dropped at the end")
        lines += [f"  layout {label}: {text}" for _, factor in layouts for label, text in factor.levels]
    else:
        lines.append("  the load runs in the database that the connection string names, and changes what is in it")
    lines.append("Settings are put back and read back at the end, and if the study is killed.")
    return lines


COMMANDS = (command,)
