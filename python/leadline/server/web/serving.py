"""Opens the socket and answers until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.listening import host_and_port, listening, url_of
from leadline.server import background
from leadline.server.accounts import login, oidc

DEFAULT = "127.0.0.1:9191"
GRACE_S = 2  # for answers under way; streams of output are cut then, and taken up again by their byte offset
MOST_AT_ONCE = 2000


@dataclass(frozen=True)
class Options:
    listen: str = DEFAULT
    certificate: str = ""
    key: str = ""
    proxies: tuple[str, ...] = ()
    provider: str = ""
    public_url: str = ""


def warnings_of(loopback: bool, options: Options) -> list[str]:
    """What whoever starts it should know, and may have meant otherwise."""
    out = []
    if os.geteuid() == 0:
        out.append("the server runs as root, and so does everything that a template starts: run it as a user of its own")
    if not loopback and not options.certificate:
        out.append("passwords and tokens cross the network in the clear: --tls-cert and --tls-key, or loopback behind a proxy with TLS")
    return out


def serve(place: Place, options: Options, ready: Callable[[str, str, list[str]], None]) -> None:
    """Until SIGTERM or Ctrl-C. ready: called when it listens, with the address here, that for users, and warnings. Raises LeadlineError."""
    try:
        import uvicorn

        from leadline.server.housekeeping import Housekeeping
        from leadline.server.web.address import read_public
        from leadline.server.web.app import build
        from leadline.server.web.protocol import Impatient
        from leadline.server.web.site import Site
    except ImportError as e:
        raise LeadlineError(
            "unsupported", f"the pages need packages that are not installed ({e.name})", hint="pip install 'leadline[web]'"
        ) from None
    os.umask(0o077)
    public = read_public(options.public_url)
    provider = oidc.Provider(oidc.read_client(options.provider)) if options.provider else None
    store = Store(place)
    sock, loopback = listening(*host_and_port(options.listen, "--listen", DEFAULT), hint="--listen HOST:PORT")
    has_users = login.has_users(store)
    store.close()
    if not loopback and not has_users:
        sock.close()
        raise LeadlineError(
            "usage",
            "without users the server listens on loopback alone",
            hint="leadline user create NAME --admin, then serve again",
            where=options.listen,
        )
    if bool(options.certificate) != bool(options.key):
        raise LeadlineError("usage", "--tls-cert and --tls-key belong together")
    scheme = "https" if options.certificate else "http"
    url = url_of(sock, scheme)
    housekeeping = Housekeeping(place)
    try:
        config = uvicorn.Config(
            build(Site(place, loopback, provider, public, bool(options.proxies)), housekeeping.working),
            log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=GRACE_S, limit_concurrency=MOST_AT_ONCE, timeout_keep_alive=20, lifespan="on",
            ssl_certfile=options.certificate or None, ssl_keyfile=options.key or None,
            proxy_headers=bool(options.proxies), forwarded_allow_ips=list(options.proxies) or None, ws="none", http=Impatient,
            loop="asyncio",
        )  # fmt: skip
        config.load()
    except (OSError, ssl.SSLError) as e:
        raise LeadlineError(
            "usage", f"the certificate cannot be used: {getattr(e, 'strerror', None) or e}", where=options.certificate
        ) from None

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url, public.url if public.origin else url, warnings_of(loopback, options))

    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has ended
        asyncio.run(server.serve([sock]))
    if (there := background.running(place)) is not None and there[0] == os.getpid():
        background.forget(place)
