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

COMMANDS = {
    "demo": "Start a private PostgreSQL with planted problems, capture it and write a report.",
    "take": "Capture the activity of a PostgreSQL server and its host, or of a host alone.",
    "trace": "Trace system calls, sleeps and waits for a CPU of any process.",
    "threads": "Show where the threads of a trace spent their time.",
    "events": "List system calls and stays off the CPU in the order in which they began.",
    "flame": "Show which functions the threads of a trace spent their time in.",
    "calls": "Fold a function-call trace into a tree with counts.",
    "why": "Run a command that fails, or succeeds wrongly, and explain why.",
    "top": "Watch a running PostgreSQL: waits, sessions, locks, hot blocks.",
    "show": "Show what is in a capture: where the time went, and why.",
    "findings": "List what is wrong in a capture, most costly first.",
    "report": "Write a capture as one HTML file that opens offline.",
    "sql": "Run SQL over the tables of a capture.",
    "tables": "List the tables of a capture, their columns, units and meaning.",
    "doctor": "Show what can be measured here, and how to enable the rest.",
    "page": "Inspect PostgreSQL pages directly in files.",
    "rows": "Print the rows of a table, including dead ones, directly from files.",
    "alter": "Find rows that ALTER TABLE left in an old form, and rewrite only those.",
    "wal": "Read PostgreSQL WAL without a server: what is in it and what it costs.",
    "recover": "Recover a crashed PostgreSQL or a base backup by page, or plan it.",
    "net": "Measure round trips, logins and fetches, and delay them.",
    "serve": "Serve the logbook as pages and REST.",
    "template": "Manage what can be started; start, end and approve its runs.",
    "schedule": "Start templates by the clock.",
    "hook": "Let signed requests start templates, and tell others how runs ended.",
    "variables": "Store values that templates of a project share.",
    "secret": "Store secrets, which runs get and nobody is shown.",
    "user": "Manage users, projects and roles of the served logbook; show its audit.",
    "token": "Manage the tokens with which programs log in.",
    "import": "Import the output of another database's own tools as tables.",
    "run": "Run a command and record it: output, exit code, cost, labels.",
    "experiment": "Compare two commands in pairs of runs, and say what may be said.",
    "ansible": "Record runs of Ansible, and run playbooks.",
    "book": "Show what was run: commands of leadline, and those given to `leadline run`.",
}
OUTCOME_FINE, OUTCOME_FINDINGS, OUTCOME_ERROR, OUTCOME_INTERRUPTED = 0, 1, 2, 130
COMPLETE_VARIABLE = "_LEADLINE_COMPLETE"
force = click.option("--force", is_flag=True, help=FORCE_HELP)  # of every command that writes what -o names
kernel_tier = click.option(  # of every command that traces threads
    "--kernel-tier", type=click.Choice(["auto", "bpf", "perf", "proc"]), default="auto", show_default=True,
    help="Trace by BPF programs or perf events, or only read /proc.",
)  # fmt: skip
kernel_detail = click.option(
    "--kernel-detail", type=click.Choice(["events", "sums"]), default="events", show_default=True,
    help="Record every call and sleep, or, for long traces, sums of the calls of each thread once a second.",
)  # fmt: skip
kernel_budget = click.option(
    "--kernel-budget", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="PERCENT",
    help="CPU time the trace may take, in percent of one core. Above it, stacks are left out, then single events.",
)  # fmt: skip
kernel_retransmits = click.option(
    "--kernel-retransmits", is_flag=True, help="Also record each segment of TCP that is sent again, of the whole host.",
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
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"leadline {version()}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings=SETTINGS,
    epilog="\b\nExamples:\n  leadline demo\n  leadline take --pid 4711 --for 60s\n  leadline show *.leadline\n  leadline COMMAND --help",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version and exit.")
def group() -> None:
    """Show where a database server spends its time, measured from outside, without SQL.

    Data goes to stdout, messages to stderr. Exit code 0: success; 1: findings (`findings`),
    problems (`page check`) or work left over (`alter`); 2: error.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and gives its exit code. Errors are printed here, in the one shape, and nowhere else."""
    with end_of_command() as end:
        end.rc = _run(arguments)
    return end.rc


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
    except OSError as e:  # of a file or folder that nobody else said anything of
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
