"""leadline net echo: the other end of `net rtt`."""

from __future__ import annotations

import click

from leadline.cli.net.options import as_json, until_stopped
from leadline.net.address import ECHO_PORT, LOOPBACK
from leadline.units import seconds_of

DEFAULT = f"{LOOPBACK}:{ECHO_PORT}"


@click.command(
    "echo",
    epilog="""\b
Examples:
  leadline net echo --serve
  leadline net echo --serve 0.0.0.0:4747
  leadline net echo --serve [::1]:0 --for 60s --json""",
)
@click.option("--serve", is_flag=False, flag_value=DEFAULT, metavar="[HOST:PORT]", help=f"Address to listen on.  [default: {DEFAULT}]")
@click.option("--for", "duration", metavar="TIME", help="End after this time.  [default: Ctrl-C]")
@as_json
def command(serve: str | None, duration: str | None, as_json: bool) -> None:
    """Answer the requests of `leadline net rtt`.

    There is no login, and nothing is sent but the bytes that a request asks for. Anyone who can connect can use the bandwidth of
    this host. Therefore only this host can connect, unless --serve names another address. Port 0 takes a free port.
    """
    import json

    from leadline._core.net import Echo
    from leadline.net.address import Address, parse_address
    from leadline.output import to_json, to_table

    if serve is None:
        raise click.UsageError("nothing to do: use --serve to listen")
    address = parse_address(serve)
    for_s = None if duration is None else seconds_of(duration)
    server = Echo(address.host, address.port)
    here = Address(*server.address())
    warned = () if here.is_loopback else ("warning: other hosts can connect; there is no login",)
    until_stopped(for_s, f"listening on {here}; stop with Ctrl-C", *warned)
    counts = json.loads(server.stop())
    counts = {"address": str(here), **counts}
    click.echo(to_json(counts) if as_json else to_table(list(counts), [list(counts.values())]))
