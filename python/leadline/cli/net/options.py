"""Options that several subcommands of `leadline net` have."""

from __future__ import annotations

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
timeout = click.option("--timeout", default="5s", show_default=True, metavar="TIME", help="How long to wait for each answer.")


def sizes(text: str) -> list[int]:
    """Numbers of bytes separated by commas: 0,250,64k. Raises click.BadParameter."""
    return [int(quantity(part)) for part in text.split(",")]


def quantity(text: str) -> float:
    """A number with k, M or G (1024 each, as for buffers). Raises click.BadParameter."""
    import re

    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmg]?)(?:i?b)?", text.strip(), re.I)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes; use a form such as 250, 8192 or 64k")
    return float(found[1]) * 1024.0 ** " kmg".index(found[2].lower() or " ")


def span(text: str) -> float:
    """Seconds of a short time: 161us, 0.685ms, 20ms, 2s; a bare number is seconds. Raises click.BadParameter."""
    import re

    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|)", text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time; use a form such as 161us, 20ms, 2s or 5m")
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "m": 60.0, "h": 3600.0}.get(found[2], 1.0)


def window(text: str) -> float:
    """Seconds of how long to look, which is more than nothing. Raises click.BadParameter, LeadlineError('usage')."""
    for_s = span(text)
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


def bits(text: str) -> float:
    """Bits a second: 100mbit, 1gbit, 64kbit, 9600. Raises click.BadParameter."""
    import re

    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmg]?)bit(?:/s)?)?", text.strip(), re.I)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a rate; use a form such as 100mbit or 1gbit")
    return float(found[1]) * 1000.0 ** " kmg".index((found[2] or " ").lower())
