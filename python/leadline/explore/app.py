"""The page over HTTP: on loopback, for the user who started it, under a name of this host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from leadline.errors import LeadlineError
from leadline.explore.address import State, read_state
from leadline.explore.answers import Explorer
from leadline.server.operation import Refused, status_of
from leadline.server.web.app import STATIC as SITE
from leadline.server.web.app import Guard, as_json, asked, failed, html, is_for_people
from leadline.server.web.protocol import Impatient
from leadline.server.web.site import check_origin, is_loopback, peer_uid

STATIC = Path(__file__).parent / "static"
HOST = "127.0.0.1"
GRACE_S = 1
ERROR = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>leadline explore</title>
<link rel="stylesheet" href="/static/explore.css"><main><h1>This cannot be shown</h1><p role="alert">{message}</p><p>{hint}</p>
<p><a href="/">The whole capture</a></p></main></html>"""


def listening(port: int) -> socket.socket:
    out = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        out.bind((HOST, port))
    except OSError as e:
        out.close()
        raise LeadlineError(
            "connection", f"cannot listen: {e.strerror}", hint="--port 0 takes a free port", where=f"{HOST}:{port}"
        ) from None
    return out


def check(request: Request) -> None:
    """Raises Refused for who is not the user that started it, and for other sites, also under a name that they gave this host."""
    who = asked(request)
    name = who.host.rsplit(":", 1)[0] if not who.host.endswith("]") else who.host
    if not is_loopback(who.client[0]) or (name != "localhost" and not is_loopback(name.strip("[]"))):
        raise Refused(403, "rights", "this page is answered only under localhost")
    check_origin(who, False)
    if peer_uid(*who.client) not in (os.getuid(), 0):
        raise Refused(403, "rights", "this page is answered only to the user who started it")


def build(explorer: Explorer) -> ASGIApp:
    def state(request: Request) -> State:
        return read_state(request.url.query, explorer.ts_from, explorer.ts_to)

    answers: Mapping[str, Callable[[Request], Any]] = {
        "/api/about": lambda request: explorer.about(),
        "/api/findings": lambda request: explorer.findings(),
        "/api/time": lambda request: explorer.over_time(state(request).asked),
        "/api/ranking": lambda request: explorer.ranking(state(request).asked, state(request).by),
        "/api/locks": lambda request: explorer.locks(state(request).asked),
    }

    def refused(request: Request, error: LeadlineError) -> Response:
        if is_for_people(request):
            return html(ERROR.format(message=escape(error.message), hint=escape(error.hint)), status_of(error))
        return failed(error)

    def api(answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
        def answered(request: Request) -> Response:
            check(request)
            return as_json(answer(request))

        async def handle(request: Request) -> Response:
            try:
                return await run_sync(answered, request)
            except LeadlineError as e:
                return refused(request, e)

        return handle

    def file(path: Path, takes_state: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                check(request)
                if takes_state:
                    state(request)
            except LeadlineError as e:
                return refused(request, e)
            return FileResponse(path)

        return handle

    async def missing(request: Request, _error: Exception) -> Response:
        return refused(request, LeadlineError("not_found", "there is no such page"))

    async def broken(request: Request, _error: Exception) -> Response:
        return refused(request, LeadlineError("fault", "leadline itself failed", hint="please report it"))

    routes = [Route(path, api(answer)) for path, answer in answers.items()]
    routes += [Route(f"/static/{path.name}", file(path)) for path in sorted(STATIC.iterdir()) if path.suffix != ".html"]
    routes.append(Route("/static/icon.svg", file(SITE / "icon.svg")))
    routes.append(Route("/", file(STATIC / "index.html", takes_state=True)))
    app = Starlette(routes=routes, exception_handlers={404: missing, 500: broken})
    app.router.redirect_slashes = False
    return Guard(app)


def serve(explorer: Explorer, port: int, ready: Callable[[str], None]) -> None:
    """Until SIGTERM or Ctrl-C. ready: called with the address when it listens. Raises LeadlineError."""
    sock = listening(port)
    url = f"http://{HOST}:{sock.getsockname()[1]}/"
    config = uvicorn.Config(
        build(explorer), log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE_S, proxy_headers=False,
        ws="none", http=Impatient, loop="asyncio", lifespan="off",
    )  # fmt: skip

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url)

    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has ended
        asyncio.run(Server(config).serve([sock]))
