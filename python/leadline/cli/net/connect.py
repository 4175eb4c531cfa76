"""leadline net connect: the login hammer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, OUTCOME_INTERRUPTED
from leadline.cli.forms import form, printed
from leadline.cli.net.options import timeout
from leadline.units import seconds_of

if TYPE_CHECKING:
    from leadline.net.login import Server


@click.command(
    "connect",
    short_help="Log in again and again, and count the logins that fail.",
    epilog="""\b
Examples:
  leadline net connect postgresql://app@db01/shop
  leadline net connect DSN --until-failure --max-rate 0.001
  leadline net connect DSN --parallel 20 --pause 100ms --for 10m
  leadline net connect "host=db01 sslmode=require" --logins 10000 --json""",
)
@click.argument("dsn", metavar="DSN")
@click.option("--until-failure", is_flag=True, help="End at the first login that fails.")
@click.option(
    "--confidence", type=click.FloatRange(0.5, 0.999999), default=0.95, show_default=True, metavar="C", help="Confidence of all intervals."
)
@click.option(
    "--max-rate", type=click.FloatRange(1e-6, 0.5), default=0.01, show_default=True, metavar="R", help="Failure rate to rule out."
)
@click.option("--logins", type=click.IntRange(1), metavar="N", help="Make N logins.  [default: as many as rule out R if none fails]")
@click.option(
    "--parallel", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N", help="Number of concurrent loops of logins."
)
@click.option("--pause", default="0", metavar="TIME", help="Pause between two logins of the same loop.  [default: none]")
@click.option("--for", "duration", metavar="TIME", help="End after this time at the latest.")
@timeout
@form()
def command(
    dsn: str,
    until_failure: bool,
    confidence: float,
    max_rate: float,
    logins: int | None,
    parallel: int,
    pause: str,
    duration: str | None,
    timeout: str,
    form: str | None,
) -> int:
    """Log in to PostgreSQL again and again, and count the logins that fail.

    If 299 logins in a row succeed, fewer than 1 % fail, with a confidence of 95 %. That is how long it runs unless told otherwise.
    Failures are grouped by phase and cause: an SQLSTATE, an errno, or timeout. It ends early if none of the first 5 logins succeeds.

    The password is read from DSN, PGPASSWORD or the password file. Methods: trust, password, md5, scram-sha-256, each with
    and without TLS; GSSAPI and client certificates are not supported. Certificates are checked with sslmode=verify-ca and
    verify-full only.

    Exit code 1 if a login failed.
    """
    from leadline.net import hammer
    from leadline.net.login import server_of
    from leadline.progress import TerminalLine

    server = server_of(dsn)
    for_s = None if duration is None else seconds_of(duration)
    rule = hammer.Rule(confidence, max_rate, logins, until_failure, for_s, parallel, seconds_of(pause))
    line = TerminalLine()
    found = hammer.run(
        server, rule, seconds_of(timeout), lambda n, failed: line.share(n, rule.planned, f"{n} logins, {failed} failed")
    )
    line.done()
    told = {"server": str(server), **found.as_dict()}
    phases = [{"phase": name.removesuffix("_ns"), **times} for name, times in told["times"].items()]
    if not printed(form, phases, told):
        click.echo(_text(told, server))
    if found.ended == "interrupted":
        return OUTCOME_INTERRUPTED
    return OUTCOME_FINDINGS if found.failures else OUTCOME_FINE


def _text(told: dict[str, Any], server: Server) -> str:
    import textwrap

    from leadline.figures import one_line
    from leadline.net.text import us
    from leadline.output import to_table, width_here

    n, failed, (low, high) = told["logins"], told["failures"], told["interval"]
    how = f" by {told['method']}, {'with' if told['encrypted'] else 'without'} TLS" if told["method"] else ""
    lines = [f"{n} logins to {server}{how}: {failed} failed; {told['ended']}"]
    if told["per_second"] is not None:
        at_a_time = "one after the other" if told["parallel"] == 1 else f"{told['parallel']} at a time"
        lines.append(f"{told['per_second']:,.1f} logins a second, {at_a_time}")
    if n:
        sure = f"{100 * told['confidence']:g} %"
        lines.append(f"failure rate {100 * told['rate']:.3g} %, {sure} interval {100 * low:.3g} to {100 * high:.3g} %")
        verdict = "is below" if told["below_max_rate"] else "may be above"
        bound = f"one-sided bound {100 * told['upper_bound']:.3g} %"
        lines.append(f"the rate {verdict} {100 * told['max_rate']:g} % at a confidence of {sure} ({bound})")
    for cause in told["causes"]:
        where = f"{cause['count']} failed in the phase {cause['phase']} ({cause['cause']}), the first was login {cause['first']}: "
        lines += textwrap.wrap(where + one_line(cause["text"]), width_here(), subsequent_indent="    ")
    if told["times"]:
        columns = ("p50_ns", "p90_ns", "p99_ns", "max_ns")
        rows = [[name.removesuffix("_ns"), *(us(times[c]) for c in columns)] for name, times in told["times"].items()]
        lines += ["", "logins that succeeded, in us", to_table(["phase", "p50", "p90", "p99", "max"], rows)]
    return "\n".join(lines)
