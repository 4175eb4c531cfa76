"""leadline serve: the logbook as pages and REST."""

from __future__ import annotations

import click


def warn(lines: list[str]) -> None:
    for line in lines:
        click.echo(f"warning: {line}", err=True)


@click.command(
    "serve",
    epilog="\b\nExamples:\n  leadline serve\n  leadline serve --background\n  leadline serve --stop\n"
    "  leadline user create ann --admin && leadline serve --listen 0.0.0.0:9191",
)
@click.option(
    "--listen", default="127.0.0.1:9191", show_default=True, metavar="HOST:PORT", help="Address to listen on; port 0 takes a free port."
)
@click.option("--background", is_flag=True, help="Start it in the background and print its address.")
@click.option("--stop", is_flag=True, help="Stop the server in the background. Runs continue.")
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate (PEM), to serve https.")
@click.option("--tls-key", default="", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option(
    "--proxy", "proxies", multiple=True, metavar="ADDRESS", help="Trust X-Forwarded-For and X-Forwarded-Proto headers from this proxy."
)
@click.option(
    "--provider",
    default="",
    metavar="FILE",
    help="Let users log in with OpenID Connect; FILE has the issuer, client id and client secret as JSON.",
)
@click.option(
    "--public-url", default="", metavar="URL", help="Address for users, if they reach it through a proxy: https://ops.example/leadline."
)
@click.option("--json", "as_json", is_flag=True, help="Print address and process as JSON.")
def command(
    listen: str, background: bool, stop: bool, tls_cert: str, tls_key: str, proxies: tuple[str, ...], provider: str, public_url: str,
    as_json: bool,
) -> None:
    """Serve the logbook as web pages and a REST API.

    It serves the logbook that `leadline book` shows to the same user. As long as the logbook has no users, it listens only on loopback
    and answers only the user who runs it. Once there is a user, everybody must log in, and it may listen on other addresses.
    """
    import os
    from pathlib import Path

    from leadline.book.place import find_place
    from leadline.errors import LeadlineError
    from leadline.output import to_json
    from leadline.server import background as behind
    from leadline.server.web.serving import Options, serve

    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="LEADLINE_BOOK=DIRECTORY leadline serve")
    if stop:
        ended = behind.stop(place)
        click.echo(to_json({"stopped": ended}) if as_json else f"stopped: process {ended}")
        return
    if background:
        options = ["--listen", listen, *(word for proxy in proxies for word in ("--proxy", proxy))]
        options += ["--public-url", public_url] if public_url else []
        for name, file in (("--tls-cert", tls_cert), ("--tls-key", tls_key), ("--provider", provider)):
            options += [name, str(Path(file).absolute())] if file else []
        pid, url = behind.start(place, options)
        warn(warnings := behind.warned(place))
        told = f"{url} (process {pid}; output in {behind.log_of(place)})"
        click.echo(to_json({"url": url, "pid": pid, "warnings": warnings}) if as_json else told)
        return

    def ready(url: str, public: str, warnings: list[str]) -> None:
        behind.announce(place, url, public, warnings)
        click.echo(to_json({"url": url, "pid": os.getpid(), "warnings": warnings}) if as_json else url)
        warn(warnings)
        click.echo("Ctrl-C ends it", err=True)

    serve(place, Options(listen, tls_cert, tls_key, proxies, provider, public_url), ready)
