"""leadline recover: WAL replay page by page, after a crash and of a base backup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, SETTINGS, force
from leadline.cli.backup_options import key_file
from leadline.errors import LeadlineError
from leadline.output import to_json
from leadline.units import bytes_of


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Bytes as PostgreSQL writes them: 256MB, 4GB."""
    return None if value is None else bytes_of(value, bare=False, least=1)


@click.command(
    "recover",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline recover /var/lib/postgresql/18/main --plan
  leadline recover /var/lib/postgresql/18/main --verify
  leadline recover /var/lib/postgresql/18/main
  leadline recover /var/lib/postgresql/18/main -o recovery.leadline
  leadline recover /restored --archive /backup/wal --to-end
  leadline recover /restored --archive /backup/wal \\
      --to-time '2026-11-24 12:00:00+00'""",
)
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
@click.option("--plan", "--dry-run", "dry_run", is_flag=True, help="Read the WAL and report what recovery would do; write nothing.")
@click.option("--verify", is_flag=True, help="Recover one copy with the server and one with leadline, and compare every byte.")
@click.option("--pg-bin", type=click.Path(path_type=Path), metavar="DIR", help="With --verify: use postgres from this directory.")
@click.option(
    "--scratch", type=click.Path(path_type=Path), metavar="DIR", help="With --verify: directory for the copies.  [default: beside DATA_DIR]"
)
@click.option("--archive", metavar="DIR", type=click.Path(), help="Directory with the archived WAL of a base backup.")
@key_file
@click.option(
    "--restore-command", "command", metavar="CMD", help="Fetch archived WAL with this command, as restore_command does (%f and %p)."
)
@click.option("--to-lsn", metavar="LSN", help="Recovery target, as recovery_target_lsn.")
@click.option("--to-time", metavar="TIME", help="Recovery target, as recovery_target_time, with a UTC offset.")
@click.option("--to-xid", metavar="XID", help="Recovery target, as recovery_target_xid.")
@click.option("--to-name", metavar="NAME", help="Recovery target, as recovery_target_name.")
@click.option("--to-end", is_flag=True, help="No recovery target: replay to the end of the archived WAL.")
@click.option("--exclusive", is_flag=True, help="Stop just before the target: recovery_target_inclusive is off.")
@click.option(
    "--to-timeline",
    "timeline",
    metavar="TLI",
    help="As recovery_target_timeline: latest, current or a number.  [default: from the settings, or latest]",
)
@click.option(
    "--memory",
    callback=_size,
    metavar="SIZE",
    help="Memory to use for pages and WAL records, such as 4GB.  [default: a quarter of the memory]",
)
@click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads to use.  [default: one per CPU]")
@click.option("-o", "--output", metavar="CAPTURE", type=click.Path(path_type=Path), help="Recover, and write a capture of what was done.")
@force
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    data_dir: str,
    dry_run: bool,
    verify: bool,
    pg_bin: Path | None,
    scratch: Path | None,
    archive: str | None,
    key_file: Path | None,
    command: str | None,
    to_lsn: str | None,
    to_time: str | None,
    to_xid: str | None,
    to_name: str | None,
    to_end: bool,
    exclusive: bool,
    timeline: str | None,
    memory: int | None,
    threads: int | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Replay the WAL of a crashed server or a backup, page by page.

    --plan only reports. For PostgreSQL 13 to 18. All CPUs read the WAL; each page is rolled forward in memory and written once. Run it
    as the owner of the files or as root. You can stop or kill it at any time: until it prints "Recovered", the server can still do its
    own recovery. If leadline cannot recover the directory, it refuses before it writes anything.

    After a crash, leadline replays all the WAL, and the server starts without replaying anything.

    A base backup has a backup_label, and recovery.signal or standby.signal. Give its archived WAL with --archive or
    --restore-command. leadline replays up to the last checkpoint before the recovery target; the server replays the rest and promotes,
    by its own settings. The recovery target comes from the settings in DATA_DIR, unless you give one.

    --verify changes nothing in DATA_DIR. It needs disk space for two copies, and the server's binaries. Exit code 1: the copies differ.
    """
    from leadline.files import recovery
    from leadline.files.backup_key import backup_key
    from leadline.files.recovery_target import target_of
    from leadline.progress import TerminalLine

    targets = {"lsn": to_lsn, "time": to_time, "xid": to_xid, "name": to_name, "end": "" if to_end else None}
    given = {kind: text for kind, text in targets.items() if text is not None}
    if sum((dry_run, verify, output is not None)) > 1:
        raise LeadlineError("usage", "give one of --plan, --verify and -o")
    if archive and command:
        raise click.UsageError("--archive and --restore-command exclude each other")
    if not archive and not command and (given or exclusive or timeline):
        raise click.UsageError("a recovery target needs the archived WAL: --archive or --restore-command")
    if verify:
        if archive or command:
            raise LeadlineError("usage", "--verify is for a server that crashed, not for a base backup")
        return _verify(data_dir, memory, threads, pg_bin, scratch, as_json=as_json)
    notes: tuple[str, ...] = ()
    if archive or command:
        target = target_of(data_dir, given, exclusive=exclusive, timeline=timeline)
        notes = target.notes

        def work() -> Any:
            key = backup_key(key_file)
            return recovery.restore(data_dir, archive, command, target, memory, threads, key=key, dry_run=dry_run, line=TerminalLine())
    else:

        def work() -> Any:
            return recovery.recover(data_dir, memory, threads, dry_run=dry_run, line=TerminalLine())

    if output is None:
        report = work()
    else:
        from leadline.files.recovery_capture import captured

        report, directory = captured(data_dir, output, {"memory": memory, "threads": threads}, work, overwrite=force)
    if as_json:
        click.echo(to_json(report if output is None else {"capture": str(directory)} | report))
    else:
        click.echo(recovery.text(report, dry_run=dry_run))
        if output is not None:
            click.echo(f"next: leadline show {directory} shows what was done")
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return OUTCOME_FINE


def _verify(
    data_dir: str, memory: int | None, threads: int | None, pg_bin: Path | None, scratch: Path | None, *, as_json: bool
) -> int:
    from leadline.files.verify import text, verify
    from leadline.progress import TerminalLine

    verdict = verify(data_dir, memory, threads, pg_bin=pg_bin, scratch=scratch, line=TerminalLine())
    click.echo(to_json({"is_equal": verdict.is_equal, **vars(verdict)}) if as_json else text(verdict))
    return OUTCOME_FINE if verdict.is_equal else OUTCOME_FINDINGS
