"""The page over HTTP: on loopback, for the user who started it, under a name of this host."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

from leadline.capture.reader import Tell
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.explore.opening import Opening
from leadline.explore.overview import OF_RECORDER, Overview
from leadline.explore.shown import ANSWERS, Shown
from leadline.explore.windows import Windows
from leadline.listening import LOOPBACK, listening, url_of
from leadline.progress import TerminalLine
from leadline.server.operation import Refused, status_of
from leadline.server.web.app import STATIC as SITE
from leadline.server.web.app import Guard, as_json, asked, failed, html, is_for_people
from leadline.server.web.protocol import Impatient
from leadline.server.web.site import check_origin, is_loopback, peer_uid

STATIC = Path(__file__).parent / "static"
GRACE_S = 1
ERROR = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>leadline explore</title>
<link rel="stylesheet" href="/static/explore.css"><main><h1>This cannot be shown</h1><p role="alert">{message}</p><p>{hint}</p>
<p><a href="/">The whole capture</a></p></main></html>"""


def on_loopback(port: int) -> socket.socket:
    return listening(LOOPBACK, port, hint="--port 0 takes a free port")[0]


def check(request: Request) -> None:
    """Raises Refused for who is not the user that started it, and for other sites, also under a name that they gave this host."""
    who = asked(request)
    name = who.host.rsplit(":", 1)[0] if not who.host.endswith("]") else who.host
    if not is_loopback(who.client[0]) or (name != "localhost" and not is_loopback(name.strip("[]"))):
        raise Refused(403, "rights", "this page is answered only under localhost")
    check_origin(who, False)
    if peer_uid(*who.client) not in (os.getuid(), 0):
        raise Refused(403, "rights", "this page is answered only to the user who started it")


def build(opening: Opening[Shown] | Opening[Overview], windows: Windows | None = None) -> ASGIApp:
    """windows: of a recorder, whose overview the opening then is."""

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

    def page(opening_of: Callable[[Request], Opening[Any]]) -> Callable[[Request], Awaitable[Response]]:
        def respond(request: Request) -> Response:
            check(request)
            found = opening_of(request)
            if found.is_ready:  # else the page says what is wrong, when it can be known
                found.get().state(request.url.query)
            return FileResponse(STATIC / "index.html")

        return handler(respond)

    def handler(respond: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                return respond(request)
            except LeadlineError as e:
                return refused(request, e)

        return handle

    def file(path: Path) -> Callable[[Request], Awaitable[Response]]:
        def respond(request: Request) -> Response:
            check(request)
            return FileResponse(path)

        return handler(respond)

    async def missing(request: Request, _error: Exception) -> Response:
        return refused(request, LeadlineError("not_found", "there is no such page"))

    async def broken(request: Request, _error: Exception) -> Response:
        return refused(request, LeadlineError("fault", "leadline itself failed", hint="please report it"))

    def under(prefix: str, opening_of: Callable[[Request], Opening[Any]], answers: Mapping[str, Callable[[Any, str], Any]]) -> list[Route]:
        def ask(answer: Callable[[Any, str], Any]) -> Callable[[Request], Any]:
            return lambda request: answer(opening_of(request).get(), request.url.query)

        return [
            Route(f"{prefix}/", page(opening_of)),
            Route(f"{prefix}/api/opening", api(lambda request: opening_of(request).state())),
            *(Route(f"{prefix}/api/{name}", api(ask(answer))) for name, answer in answers.items()),
        ]

    routes = under("", lambda _: opening, ANSWERS if windows is None else OF_RECORDER)
    if windows is not None:
        routes += under("/at/{window}", lambda request: windows.opening(request.path_params["window"]), ANSWERS)
    routes += [Route(f"/static/{path.name}", file(path)) for path in sorted(STATIC.iterdir()) if path.suffix != ".html"]
    routes.append(Route("/static/icon.svg", file(SITE / "icon.svg")))
    app = Starlette(routes=routes, exception_handlers={404: missing, 500: broken})
    app.router.redirect_slashes = False
    return Guard(app)


def serve(make: Callable[[Tell], Any], port: int, ready: Callable[[str], None], windows: Windows | None = None) -> None:
    """Until SIGTERM or Ctrl-C. make: opens what is shown, while the page says so. ready: called with the address when it listens.
    windows: of a recorder.

    Raises LeadlineError, also what make raises.
    """
    sock = on_loopback(port)
    url = url_of(sock)
    line, began = TerminalLine(), time.monotonic()

    def told(tell: Tell) -> Any:
        def both(db: duckdb.DuckDBPyConnection | None, done: int, of: int, what: str) -> None:
            tell(db, done, of, what)
            line.share(done, of, what) if of else line.update(time.monotonic() - began, math.inf, what)

        try:
            return make(both)
        finally:
            line.done()

    def ended() -> None:
        server.should_exit |= opening.error is not None

    opening = Opening(told, ended)
    config = uvicorn.Config(
        build(opening, windows), log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=GRACE_S,
        proxy_headers=False, ws="none", http=Impatient, loop="asyncio", lifespan="off",
    )  # fmt: skip

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url)
                opening.begin()

    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has ended
        asyncio.run(server.serve([sock]))
    failed_first = opening.error
    opening.stop()
    if failed_first is not None:
        raise failed_first


def serve_recorder(
    directory: Path, port: int, ready: Callable[[str], None], other: Path | None = None, factors: Sequence[str] = ()
) -> None:  # fmt: skip
    """A recorder's directory: its overview, and windows of it as captures, compared with `other` if that is given. Raises LeadlineError."""
    made: list[Overview] = []

    def make(tell: Tell) -> Overview:
        tell(None, 0, 0, "its pieces are listed")
        made.append(Overview(directory))
        return made[0]

    windows = Windows(directory, other, factors)
    try:
        serve(make, port, ready, windows)
    finally:
        for overview in made:
            overview.close()
        windows.close()
