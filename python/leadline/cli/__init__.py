"""The command line: one group, one file per command, and the one place that prints errors and exits.

A command is cli/NAME.py with a click command called `command`. It is imported only when it is asked for, so that
`leadline --help` needs neither DuckDB nor rich; its line in the list of commands therefore stands here too (a test
compares the two). A command whose module is not there is not listed. Each command that begins is recorded in the logbook
(recorded.py).

Completion is click's: eval "$(_LEADLINE_COMPLETE=bash_source leadline)", or zsh_source, fish_source.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

from leadline.cli.light import click
from leadline.cli.recorded import end_of_command, recorded, summarise, with_arguments
from leadline.cli.streams import OutputLost, forget_stdout
from leadline.errors import LeadlineError
from leadline.replacing import FORCE_HELP
from leadline.version import version

GROUPS = {
    "Watch a live server": {
        "top": "Watch a running PostgreSQL: waits, sessions, locks, hot blocks.",
        "take": "Capture a PostgreSQL server and its host, or a host alone.",
        "record": "Record a server continuously, as a series of captures.",
        "doctor": "Show what can be measured here, and how to enable the rest.",
        "replication": "Forecast when a standby catches up, and study pairs of servers.",
        "demo": "Try leadline on a private PostgreSQL with planted problems.",
    },
    "Read a capture": {
        "show": "Show what is in a capture: where the time went, and why.",
        "findings": "List what is wrong in a capture, most costly first.",
        "report": "Write a capture as one HTML file that opens offline.",
        "explore": "Look into a capture over time, in a browser.",
        "sql": "Run SQL over the tables of a capture.",
        "tables": "List the tables of a capture, their columns, units and meaning.",
        "export": "Give a capture to other tools: pprof, Perfetto, CSV, Arrow.",
        "compare": "Show where the time moved between two captures or runs.",
        "import": "Turn the output of Informix's onstat into a capture.",
    },
    "Trace a host and its programs": {
        "trace": "Trace the system calls, sleeps and CPU waits of any process.",
        "threads": "Show where the threads of a trace spent their time.",
        "events": "List the system calls and sleeps of a trace in time order.",
        "flame": "Show in which functions the threads of a trace spent time.",
        "calls": "Fold a function-call trace into a tree with counts.",
        "why": "Run a command and explain why it fails, or what error it hides.",
    },
    "Read the files of a server, without the server": {
        "page": "Inspect PostgreSQL pages directly in files.",
        "rows": "Print the rows of a table from its files, dead rows too.",
        "alter": "Find and rewrite the rows that ALTER TABLE left in an old form.",
        "wal": "Read PostgreSQL WAL: what is in it and what it costs.",
        "recover": "Replay the WAL of a crashed server or a backup, page by page.",
        "salvage": "Bring a dead cluster's data home: SQL, and a file per table.",
    },
    "Measure the network": {
        "net": "Measure round trips, logins and fetches, and simulate latency.",
    },
    "Make a load": {
        "load": "Run a load on PostgreSQL and measure what an application sees.",
    },
    "Forecast storage": {
        "storage": "Simulate disk arrays: drives, RAID, caches, and a load on them.",
    },
    "Record and compare runs": {
        "run": "Run a command and record it: output, exit code, cost, labels.",
        "book": "Show the logbook of runs: status, output, cost, differences.",
        "experiment": "Compare two commands in interleaved pairs of runs.",
        "study": "Change one thing, or several, and measure what it does.",
        "ansible": "Record Ansible runs, and run playbooks.",
    },
    "Share the logbook with a team": {
        "serve": "Serve the logbook as web pages and a REST API.",
        "template": "Manage templates; start, cancel and approve their runs.",
        "schedule": "Start templates at set times.",
        "hook": "Start templates by webhook, and notify others when runs end.",
        "recorder": "Let a team look into what leadline record has recorded.",
        "variables": "Store values that the templates of a project share.",
        "secret": "Store secrets that runs receive and no user can read.",
        "user": "Manage users, projects and roles, and show the audit log.",
        "token": "Manage the tokens with which programs log in.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
OUTCOME_FINE, OUTCOME_FINDINGS, OUTCOME_ERROR, OUTCOME_INTERRUPTED = 0, 1, 2, 130
WIDEST = max(map(len, COMMANDS))  # the lines of all groups begin in one column
COMPLETE_VARIABLE = "_LEADLINE_COMPLETE"
force = click.option("--force", is_flag=True, help=FORCE_HELP)  # of every command that writes what -o names
kernel_tier = click.option(  # of every command that traces threads
    "--kernel-tier", type=click.Choice(["auto", "bpf", "perf", "proc"]), default="auto", show_default=True,
    help="Trace with BPF programs or perf events, or only read /proc.",
)  # fmt: skip
kernel_detail = click.option(
    "--kernel-detail", type=click.Choice(["events", "sums"]), default="events", show_default=True,
    help="Record every call and sleep; or, for long traces, only sums per thread and second.",
)  # fmt: skip
kernel_budget = click.option(
    "--kernel-budget", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="PERCENT",
    help="CPU limit of the trace's reader, in percent of one core. Above it, the trace drops stacks, then single events.",
)  # fmt: skip
kernel_retransmits = click.option(
    "--kernel-retransmits", is_flag=True, help="Also record each TCP segment that the host retransmits.",
)  # fmt: skip
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


FILES = {"run": "run_"}  # `leadline.cli.run` is a function


def _module(name: str) -> str:
    return f"leadline.cli.{FILES.get(name, name)}"


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(_module(name)) is not None


class LazyGroup(click.Group):
    """Commands by name from leadline.cli.NAME, imported when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _is_there(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _is_there(cmd_name):
            return None
        command = importlib.import_module(_module(cmd_name)).command
        assert isinstance(command, click.Command)
        return recorded(command, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In groups, as git does: readers know what they want to do before they know what it is called."""
        for title, lines in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(WIDEST), line) for name, line in lines.items() if _is_there(name)])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"leadline {version()}")
        ctx.exit()


def _answer_over_ssh(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """The other side of `take --with ssh:HOST`."""
    if value and not ctx.resilient_parsing:
        from leadline.engines.postgres.probes.far_side import answer

        answer()
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings=SETTINGS,
    epilog="\b\nExamples:\n  leadline demo\n  leadline top postgres:///shop\n  leadline take --pid 4711 --for 60s -o slow\n"
    "  leadline show slow.leadline\n  leadline COMMAND --help",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version and exit.")
@click.option("--answer-over-ssh", is_flag=True, hidden=True, expose_value=False, is_eager=True, callback=_answer_over_ssh)
def group() -> None:
    """Show where a database server spends its time, measured from outside, without SQL.

    Data goes to stdout, messages to stderr. Exit code 0: success; 2: error; 130: interrupted. Commands that check
    something exit with 1 if they find something, as their --help says.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and gives its exit code. Errors are printed here, in the one shape, and nowhere else."""
    with end_of_command() as end:
        end.rc = _run(arguments)
        _tell_left_out()
    return end.rc


def _tell_left_out() -> None:
    engines = sys.modules.get("leadline.engines")  # not imported for this alone
    for error in engines.left_out() if engines is not None else ():
        click.echo(f"warning: {error.as_text().removeprefix('error: ')}", err=True)


def _run(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    try:
        outcome = _outcome(arguments)
        sys.stdout.flush()  # what cannot be written shows up here rather than at exit
        return outcome
    except LeadlineError as e:
        return _fail(e, as_json=as_json)
    except click.ClickException as e:
        return _fail(_usage_error(e), as_json=as_json)
    except OutputLost as e:
        forget_stdout()
        return OUTCOME_FINE if e.is_read_no_more else _fail(e.as_error(), as_json=False)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return OUTCOME_INTERRUPTED
    except BrokenPipeError:
        forget_stdout()
        return OUTCOME_FINE
    except OSError as e:  # of a file or directory that nobody else said anything of
        where = "" if e.filename is None else os.fsdecode(e.filename)
        return _fail(LeadlineError("storage", str(e.strerror or e), where=where), as_json=as_json)


def _outcome(arguments: Sequence[str]) -> int:
    try:
        if instruction := os.environ.get(COMPLETE_VARIABLE):
            from click.shell_completion import shell_complete

            return shell_complete(group, {}, "leadline", COMPLETE_VARIABLE, instruction)
        with group.make_context("leadline", list(arguments)) as context:  # not main(): it exits 1 on a closed pipe
            with_arguments(context, arguments)
            outcome = group.invoke(context)
        return outcome if isinstance(outcome, int) else OUTCOME_FINE
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        return OUTCOME_ERROR
    except click.exceptions.Exit as e:
        return e.exit_code


def _usage_error(e: click.ClickException) -> LeadlineError:
    context = getattr(e, "ctx", None)
    hint = f"{context.command_path} --help" if context is not None else "leadline --help"
    return LeadlineError("usage", e.format_message().rstrip("."), hint=hint)


def _fail(error: LeadlineError, *, as_json: bool) -> int:
    summarise(f"error: {error.message}")
    try:
        if as_json:
            from leadline.output import to_json

            click.echo(to_json({"error": error.as_dict()}))
            return OUTCOME_ERROR
    except OutputLost:
        forget_stdout()
    click.echo(error.as_text(), err=True)
    return OUTCOME_ERROR
