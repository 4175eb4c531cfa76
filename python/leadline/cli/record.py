"""leadline record: options in, a directory of captures out, until it is stopped."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from leadline.errors import LeadlineError
from leadline.listening import host_and_port, is_local
from leadline.units import MB, bytes_of, seconds_of

if TYPE_CHECKING:
    from leadline.probes.options import Options
    from leadline.recorder.detail import Bounds
    from leadline.recorder.install import Change
    from leadline.recorder.retention import Level
    from leadline.recorder.unit import Wanted as Service

LEAST_PIECE_S, LEAST_EVERY_S = 2.0, 10.0
LEAST_DETAIL_S, LEAST_DETAIL = 1.0, 64 * MB


@click.command(
    "record",
    epilog="\b\nExamples:\n  leadline record postgres:///shop --to /var/lib/leadline/shop\n"
    "  leadline record --pid 4711 --to shop --keep 3d --max-size 5GB\n  leadline record --status shop\n"
    "  leadline record --detail shop --detail-for 60s\n"
    "  leadline record port=5432 port=5433 --to /var/lib/leadline/all\n"
    "  leadline record postgres:///shop --to shop --metrics :9187\n"
    "  leadline record postgres:///shop --to /var/lib/leadline/shop --unit\n"
    "  leadline record postgres:///shop --to /var/lib/leadline/shop --install\n"
    "  leadline record --uninstall /var/lib/leadline/shop\n"
    "  leadline take --from-recorder shop --between 03:00 03:10 -o night",
)
@click.argument("dsns", nargs=-1, metavar="[DSN]...")
@click.option("--pid", type=int, metavar="PID", help="Process of the server (postmaster or any child); needs no connection.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Record the server that runs on this data directory.")
@click.option("--host", is_flag=True, help="Record only this host: processes, devices, network, memory. Needs no database.")
@click.option(
    "--to", "to", type=click.Path(path_type=Path), metavar="DIR", help="Directory to record into; created if it does not exist."
)
@click.option("--keep", default="14d", show_default=True, metavar="TIME", help="Remove pieces that ended longer ago than this.")
@click.option("--keep-detail", metavar="TIME", help="After this time, keep one row per second: 6h.  [default: as --keep]")
@click.option(
    "--keep-seconds", metavar="TIME",
    help="After this time, keep one row per minute: 3d. Needs --keep-detail.  [default: as --keep]",
)  # fmt: skip
@click.option(
    "--max-size", default="20GB", show_default=True, metavar="SIZE",
    help="Maximum size of all pieces together; detail is reduced first.",
)  # fmt: skip
@click.option("--keep-free", default="1GB", show_default=True, metavar="SIZE", help="Write nothing while the disk has less free space.")
@click.option(
    "--findings-every", default="1m", show_default=True, metavar="TIME", help="Evaluate the findings of the last minutes; 0s: never."
)
@click.option("--detail-for", default="30s", show_default=True, metavar="TIME", help="Length of a detail capture.")
@click.option(
    "--detail-budget", default="5m", show_default=True, metavar="TIME", help="Total length of automatic detail captures per hour; 0s: none."
)
@click.option("--detail-max-size", default="2GB", show_default=True, metavar="SIZE", help="Maximum size of all detail captures together.")
@click.option("--no-baseline", is_flag=True, help="Do not look for what is unusual for the hour, and take no automatic detail captures.")
@click.option("--piece", default="10m", show_default=True, metavar="TIME", help="Length of a piece: 30s, 10m, 1h.")
@click.option("--rate", metavar="HZ", help="Samples per second: 1 to 10000; over SQL up to 10; with --host 0.1 to 10.  [default: as take]")
@click.option(
    "--tier", type=click.Choice(["auto", "shm", "sql"]), default="auto", show_default=True, help="Read shared memory or sample over SQL."
)
@click.option(
    "--metrics", metavar="[HOST]:PORT",
    help="Serve metrics for Prometheus at http://HOST:PORT/metrics; without HOST on loopback.",
)  # fmt: skip
@click.option(
    "--metrics-token", type=click.Path(path_type=Path), metavar="FILE",
    help="Serve metrics only to clients that send the token in FILE.",
)  # fmt: skip
@click.option(
    "--otlp", is_flag=False, flag_value="", metavar="[URL]", help="Send metrics to a collector of OpenTelemetry.  [default: from OTEL_...]"
)
@click.option(
    "--status", type=click.Path(path_type=Path), metavar="DIR", help="Show what this directory has, and whether its recorder runs."
)
@click.option(
    "--detail", type=click.Path(path_type=Path), metavar="DIR", help="Have the recorder that runs in DIR take a detail capture now."
)
@click.option("--unit", "as_unit", is_flag=True, help="Do not record: print a systemd unit that records, with the least rights.")
@click.option("--install", is_flag=True, help="Do not record here: install and start that unit. Says what it will do, and asks.")
@click.option(
    "--uninstall", type=click.Path(path_type=Path), metavar="DIR", help="Stop and remove the service that records into DIR. DIR stays."
)
@click.option("--yes", is_flag=True, help="Change the services of this host without asking.")
@click.option("--grafana", is_flag=True, help="Do not record: print a Grafana dashboard of the metrics.")
@click.option("--as", "user", metavar="USER", help="User of the unit.  [default: owner of --data-dir, or postgres]")
@click.option("--json", "as_json", is_flag=True, help="With --status: print it as JSON.")
def command(
    dsns: tuple[str, ...], pid: int | None, data_dir: Path | None, host: bool, to: Path | None, keep: str, keep_detail: str | None,
    keep_seconds: str | None, max_size: str, keep_free: str, findings_every: str, detail_for: str,
    detail_budget: str, detail_max_size: str, no_baseline: bool, piece: str, rate: str | None, tier: str, metrics: str | None,
    metrics_token: Path | None, otlp: str | None, status: Path | None, detail: Path | None, as_unit: bool, install: bool,
    uninstall: Path | None, yes: bool, grafana: bool, user: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Record a server continuously, as a series of captures.

    Runs until Ctrl-C or SIGTERM. Each piece is an ordinary capture, as leadline take writes it, and leadline show works on it. If the
    server is down or the disk is full, leadline waits, and then continues. You can turn any window into one capture: see the last example.

    To record several servers of this host, give a DSN for each. Each server gets its own process and its own directory below --to; they
    share the size limits equally.
    """
    if grafana:
        from leadline.metrics import DASHBOARD

        click.echo(DASHBOARD.read_text(encoding="utf-8"), nl=False)
        return
    if status is not None:
        _show_status(status, as_json=as_json)
        return
    if detail is not None:
        _ask_for_detail(detail, detail_for)
        return
    if uninstall is not None:
        _uninstall(uninstall.absolute(), yes)
        return
    if to is None:
        raise LeadlineError("usage", "no directory was given to record into", hint="--to DIR; or --status DIR to see what one has")
    from leadline.cli.take import parse_rate
    from leadline.metrics.publish import Wanted, published
    from leadline.probes.options import Options
    from leadline.recorder.retention import Limits
    from leadline.recorder.run import Recorder, World

    piece_s = seconds_of(piece)
    if piece_s < LEAST_PIECE_S:
        raise LeadlineError("usage", f"a piece of {piece_s:g} s is too short", hint=f"give {LEAST_PIECE_S:g}s or more; the default is 10m")
    if (keep_s := seconds_of(keep)) <= 0:
        raise LeadlineError("usage", "nothing would be kept", hint="--keep 14d")
    if 0 < (findings_s := seconds_of(findings_every)) < LEAST_EVERY_S:
        raise LeadlineError("usage", f"{findings_every} is too often", hint=f"--findings-every {LEAST_EVERY_S:g}s or more; 0s: never")
    servers = _named(dsns) if len(dsns) > 1 else {}
    bounds = _bounds(detail_for, detail_budget, detail_max_size, max(1, len(dsns)))
    dsn, rate_hz = dsns[0] if len(dsns) == 1 else None, None if rate is None else parse_rate(rate)
    options = Options(dsn=dsn, pid=pid, data_dir=data_dir, host=host, for_s=piece_s, rate_hz=rate_hz, tier=tier)
    limits = Limits(keep_s, bytes_of(max_size), bytes_of(keep_free), _levels(keep_s, keep_detail, keep_seconds))
    if servers and (pid is not None or data_dir is not None or host):
        raise LeadlineError("usage", "several servers are named by connection strings alone", hint="leave out --pid, --data-dir, --host")
    if servers and (metrics, metrics_token, otlp) != (None, None, None):
        raise LeadlineError("usage", "metrics are those of one server", hint="a recorder for each server whose metrics are wanted")
    collector = None
    if otlp is not None:
        from leadline.metrics.collector import read_collector

        collector = read_collector(otlp, os.environ)
    if as_unit or install:
        said: dict[str, str | None] = {"--keep": keep, "--keep-detail": keep_detail, "--keep-seconds": keep_seconds}
        said |= {"--max-size": max_size, "--keep-free": keep_free, "--findings-every": findings_every, "--piece": piece}
        said |= {"--detail-for": detail_for, "--detail-budget": detail_budget, "--detail-max-size": detail_max_size}
        said |= {"--rate": rate, "--tier": tier}
        said |= {"--metrics": metrics, "--metrics-token": None if metrics_token is None else str(metrics_token.absolute())}
        service = _service(dsns, options, to.absolute(), said, user, otlp, no_baseline=no_baseline)
        if as_unit:
            from leadline.recorder.unit import unit

            click.echo(unit(service), nl=False)
        else:
            _install(service, yes)
        return
    if user is not None or yes:
        where = "--yes" if yes else "--as"
        raise LeadlineError("usage", f"{where} is for the unit", hint="--unit prints one, --install starts it", where=where)

    def say(text: str) -> None:
        click.echo(text, err=True)

    if servers:
        from leadline.recorder.servers import Servers
        from leadline.recorder.servers import Wanted as Recorded

        Servers(to, servers, Recorded(options, limits, findings_s, bounds, not no_baseline), say).run()
        click.echo(f"next: leadline record --status {to}", err=True)
        return
    with published(Wanted(metrics or "", metrics_token, collector), say) as watcher:
        world = World(say=say, watcher=watcher)
        Recorder(to, options, limits, world, findings_s=findings_s, detail=bounds, baseline=not no_baseline).run()
    click.echo(f"next: leadline record --status {to}", err=True)


def _named(dsns: Sequence[str]) -> dict[str, str]:
    """The servers by the names of their directories: host and port, which stay the same. Raises LeadlineError('usage')."""
    from leadline.engines.postgres.catalog.connection import parse_dsn

    found: dict[str, str] = {}
    for dsn in dsns:
        given = parse_dsn(dsn)
        host = given.get("host") or given.get("hostaddr") or given.get("service") or os.environ.get("PGHOST") or "local"
        port = given.get("port") or os.environ.get("PGPORT") or "5432"
        name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{host}-{port}").strip("-.")
        if name in found:
            detail = "each has a directory that is called after host and port; one recorder sees all databases of a server"
            raise LeadlineError("usage", f"two of the servers are {name}", detail, "name each server once")
        found[name] = dsn
    return found


def _bounds(for_text: str, budget_text: str, size_text: str, servers: int) -> Bounds:
    """Raises LeadlineError('usage')."""
    from leadline.recorder.detail import Bounds

    bounds = Bounds(_detail_s(for_text), seconds_of(budget_text), bytes_of(size_text))
    if 0 < bounds.budget_s < bounds.for_s:
        detail = f"one takes {for_text}, and {budget_text} may be taken in an hour"
        raise LeadlineError("usage", "the budget is too small for a detail capture", detail, "0s: only by hand", "--detail-budget")
    if bounds.max_bytes < LEAST_DETAIL * servers:
        hint = f"give {64 * servers}MB or more"
        raise LeadlineError("usage", f"{size_text} is too little for detail captures", hint=hint, where="--detail-max-size")
    return bounds


def _detail_s(text: str) -> float:
    """Raises LeadlineError('usage')."""
    from leadline.recorder.asked import LONGEST_S

    if not LEAST_DETAIL_S <= (for_s := seconds_of(text)) <= LONGEST_S:
        raise LeadlineError("usage", f"{text} is no length of a detail capture", hint="give 1s to 1h", where="--detail-for")
    return for_s


def _ask_for_detail(directory: Path, for_text: str) -> None:
    """Raises LeadlineError."""
    from leadline.recorder.asked import ask

    capture = ask(directory, _detail_s(for_text))
    click.echo(f"{capture}: {for_text} are being taken", err=True)
    click.echo(f"next: leadline show {capture}", err=True)


def _levels(keep_s: float, detail: str | None, seconds: str | None) -> tuple[Level, ...]:
    """Raises LeadlineError('usage')."""
    from leadline.recorder.retention import MINUTE_S, SECOND_S, Level

    if seconds is not None and detail is None:
        raise LeadlineError("usage", "rows of a second are made of what --keep-detail no longer keeps", hint="--keep-detail 6h")
    found, before_s = [], 0.0
    for option, text, span_s in (("--keep-detail", detail, SECOND_S), ("--keep-seconds", seconds, MINUTE_S)):
        if text is None:
            continue
        level = Level(span_s, seconds_of(text))
        if level.after_s <= before_s or level.after_s + level.group_s > keep_s:
            detail = "each level is older than the finer one, and its pieces are made before --keep removes them"
            raise LeadlineError("usage", f"{option} {text} is not between the levels beside it", detail, "--keep-detail 6h", option)
        found.append(level)
        before_s = level.after_s + level.group_s
    return tuple(found)


def _service(
    dsns: Sequence[str], options: Options, to: Path, said: Mapping[str, str | None], user: str | None, otlp: str | None, *,
    no_baseline: bool,
) -> Service:  # fmt: skip
    """What the unit is to run. said: options of the command line; those that are as by default are left out. Raises LeadlineError."""
    import sys

    from leadline.engines.postgres.catalog.connection import SECRET_PARAMETERS, parse_dsn
    from leadline.recorder.unit import STATE, Wanted

    if options.pid is not None or not (dsns or options.data_dir or options.host):
        hint = "name it by a connection string or --data-dir: they are the same after a restart"
        raise LeadlineError("usage", "the unit must name its server", hint=hint)
    hosts: list[str] = []
    for given in map(parse_dsn, dsns):
        if any(given.get(name) for name in SECRET_PARAMETERS):
            hint = "put it into ~/.pgpass of the unit's user, or let peer do"
            raise LeadlineError("usage", "a unit is no place for a password", hint=hint)
        hosts += [*str(given.get("host") or "").split(","), *(["address"] if given.get("hostaddr") or given.get("service") else [])]
    program = Path(sys.argv[0]).absolute()
    words = [str(program)] if program.name == "leadline" else [sys.executable, "-m", "leadline"]
    words += ["record", *dsns, *(["--host"] if options.host else []), f"--to={to}"]
    what, owner = ", ".join(dsns) or "the host", "" if options.host else "postgres"
    if options.data_dir is not None:
        directory = Path(options.data_dir).absolute()
        words.append(f"--data-dir={directory}")
        try:
            what, owner = str(directory), directory.owner()
        except (OSError, KeyError) as e:
            raise LeadlineError("not_found", "the owner of the data directory is not known", hint="--as USER", where=str(directory)) from e
    if options.host and user is None and not to.is_relative_to(STATE):
        hint = f"--to {STATE}/NAME, which systemd gives to a user of its own; or --as USER, who owns the directory"
        raise LeadlineError("usage", "the unit needs a user who may write the directory", hint=hint, where=str(to))
    defaults = {option.opts[0]: option.default for option in command.params if isinstance(option, click.Option)}
    words += [f"{name}={value}" for name, value in said.items() if value is not None and value != defaults[name]]
    words += ["--no-baseline"] * no_baseline
    if otlp is not None:
        words.append(f"--otlp={otlp}" if otlp else "--otlp")
    others = _readers(said["--metrics"], otlp)
    over_network = any(host and not host.startswith(("/", "@")) for host in hosts) or not all(map(is_local, others))
    user = owner if user is None else user
    return Wanted(words, what, user, to, over_network, not options.host, bool(others), otlp is not None, max(1, len(dsns)))


def _install(service: Service, yes: bool) -> None:
    from leadline.recorder.install import to_install

    _perform(to_install(service), yes)
    click.echo(f"next: leadline record --status {service.directory}", err=True)


def _uninstall(directory: Path, yes: bool) -> None:
    from leadline.recorder.install import left, to_uninstall

    _perform(to_uninstall(directory), yes)
    for line in left(directory):
        click.echo(line)


def _perform(change: Change, yes: bool) -> None:
    """Raises LeadlineError, click.Abort."""
    from leadline.cli.asked import ask

    if not yes:
        nobody = LeadlineError("usage", "nobody is there to ask whether to change the services of this host", hint="--yes changes them")
        ask(change.lines(), "Do this?", nobody)
    change.perform()


def _readers(metrics: str | None, otlp: str | None) -> list[str]:
    """The hosts whose network metrics use: where they are given, and where they are sent to. Of the environment nothing is known."""
    listen = [] if metrics is None else [host_and_port(metrics, "--metrics", "127.0.0.1:9187")[0]]
    return listen + ([] if otlp is None else [urlsplit(otlp).hostname or ""])


def _show_status(directory: Path, *, as_json: bool) -> None:
    from leadline.output import to_json
    from leadline.recorder.status import as_text, status_of_all

    found = status_of_all(directory)
    click.echo(to_json(found) if as_json else as_text(found))
