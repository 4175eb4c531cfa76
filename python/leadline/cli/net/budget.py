"""leadline net budget: round trips for each transaction, and what other round-trip times would give."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli.forms import form, printed
from leadline.cli.net.wire import filter_of, filter_option, ports_of, ports_option
from leadline.units import bits_of, seconds_of

DEFAULT = "0.021ms,0.161ms,0.685ms,5ms,20ms"


@click.command(
    "budget",
    short_help="Count round trips, and predict rates at other round-trip times.",
    epilog="""\b
Examples:
  leadline net budget traffic.leadline
  leadline net budget traffic.pcap --port 5432 --rtt 0.5ms,1ms,2ms
  leadline net budget pooler.leadline --port 6432 --client 10.0.0.7
  leadline net budget postgresql://app@db01/shop --for 30s
  leadline net budget traffic.pcap --filter 'not host 10.0.0.9'
  leadline net budget traffic.leadline --base-rtt 0.1ms --bandwidth 100mbit""",
)
@click.argument("source", metavar="CAPTURE|PCAP|DSN", type=click.Path())
@click.option("--rtt", "rtts", default=DEFAULT, show_default=True, metavar="TIME[,TIME...]", help="Round-trip times to predict for.")
@click.option("--base-rtt", metavar="TIME", help="Round-trip time when the packets were captured.  [default: the shortest that they show]")
@click.option("--bandwidth", metavar="RATE", help="Also add the transmission time at this bandwidth, such as 100mbit.")
@click.option("--for", "duration", metavar="TIME", help="With DSN: how long to capture.  [default: 10s]")
@ports_option
@click.option("--client", default="", metavar="ADDRESS", help="Only this client.  [default: all]")
@filter_option
@form()
def command(
    source: str, rtts: str, base_rtt: str | None, bandwidth: str | None, duration: str | None, ports: tuple[str, ...], client: str,
    expression: str | None, form: str | None,
) -> None:
    """Count round trips for each transaction and predict the throughput at other round-trip times.

    Each client and each port of a server has its own budget. The time of a transaction is a + (N + C) * RTT: N is its number of round
    trips, C the number of round trips for connecting, and a the rest, the work of client and server. RTT is the shortest of
    three times: those of handshakes, acknowledgements and round trips. The prediction holds if the same connections stay busy. The 95 %
    intervals come from a bootstrap over parts of the time, and include the error of the model.

    With DSN, leadline captures the packets between the server and its clients that pass this host. This needs the capability
    CAP_NET_RAW, but no login. Before that, it measures the round-trip time from this host with 20 handshakes.
    """
    import tempfile
    from contextlib import closing
    from pathlib import Path

    from leadline.capture.reader import open_capture
    from leadline.engines.live import is_connection_string
    from leadline.net import budget_source as place
    from leadline.net.budget import Known, budgets
    from leadline.net.budget_text import lines
    from leadline.progress import Silent, TerminalLine

    wanted = [1000 * seconds_of(part) for part in rtts.split(",")]
    only = filter_of(expression)
    known = None if base_rtt is None else Known(1000 * seconds_of(base_rtt))
    chosen: dict[str, Any] = {"client": client, "bits_per_s": None if bandwidth is None else bits_of(bandwidth)}
    with tempfile.TemporaryDirectory(prefix="leadline-") as scratch:
        if is_connection_string(source):
            if ports:
                raise click.UsageError("--port is for files: a connection string has the port of its server")
            watched = place.watch_server(source, seconds_of(duration or "10s"), Path(scratch), Silent() if form else TerminalLine(), only)
            known = known or watched.known
            chosen["server"] = watched.address
            directory = watched.directory
        else:
            if duration:
                raise click.UsageError("--for is for the connection string of a server")
            chosen["ports"] = ports_of(ports)
            directory = place.capture_of(source, chosen["ports"], Path(scratch), only)
        with closing(open_capture(directory)) as capture:
            found = budgets(capture, wanted, known=known, **chosen)
    whole = found.as_dict()
    if printed(form, whole["budgets"], whole):
        return
    for line in lines(found):
        click.echo(line)
