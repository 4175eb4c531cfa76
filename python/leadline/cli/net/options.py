"""Options that several subcommands of `leadline net` have."""

from __future__ import annotations

import click

from leadline.units import bytes_of, seconds_of

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
timeout = click.option("--timeout", default="5s", show_default=True, metavar="TIME", help="How long to wait for each answer.")


def sizes(text: str) -> list[int]:
    """Numbers of bytes separated by commas: 0,250,64k. Raises LeadlineError."""
    return [bytes_of(part) for part in text.split(",")]


def window(text: str) -> float:
    """Seconds of how long to look, which is more than nothing. Raises LeadlineError('usage')."""
    for_s = seconds_of(text)
    if not for_s > 0:
        from leadline.errors import LeadlineError

        raise LeadlineError("usage", "the window must be longer than nothing", hint="--for 10s")
    return for_s


def until_stopped(for_s: float | None, *announced: str) -> None:
    """Says on stderr what is ready, and waits for some time, or until Ctrl-C or SIGTERM. Who reads that may signal at once.

    A job that a script starts in the background ignores SIGINT: here it counts.
    """
    from leadline.probes.recording import stop_on_signal

    with stop_on_signal() as stop:
        for line in announced:
            click.echo(line, err=True)
        stop.wait(for_s)
