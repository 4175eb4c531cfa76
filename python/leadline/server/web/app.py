"""The application: a route for each operation, the pages and forms, login, and what every answer carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from anyio import CapacityLimiter, move_on_after
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline.errors import LeadlineError
from leadline.output import to_json
from leadline.server.accounts import devices, login, oidc
from leadline.server.operation import Operation, Refused, read_json, status_of
from leadline.server.read.output import File, Follow, Page
from leadline.server.read.playbooks import Document
from leadline.server.read.prometheus import Text
from leadline.server.table import BY_NAME, OPERATIONS
from leadline.server.web import forms, live, pages
from leadline.server.web.address import PUBLIC, Below, link
from leadline.server.web.openapi import PREFIX, document
from leadline.server.web.site import COOKIE, DEVICE, Asked, LoggedIn, Site, check_origin, error_text, own_path
from leadline.version import version

MOST_BODY = 1 << 20
BODY_S = 30
SLOW_AT_ONCE = 4  # beside 40 of others
MOST_STREAMS = 128  # of a caller at once: each is a connection and an open file
MOST_STREAMS_OF_ALL = 1000  # half of the connections that are answered at once: the rest is for pages and the API
ATTEMPT = "leadline_attempt"  # the cookie of a login that has begun at the provider
STATIC = Path(__file__).parent / "static"
EXPLORE = Path(__file__).parents[2] / "explore" / "static"  # its page: that package stands above this one
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# A page that leadline made, with scripts in it: it may run them, but belongs to no site and can load and send nothing.
REPORT = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; font-src data:"


def asked(request: Request) -> Asked:
    client = request.client
    address = (client.host, client.port) if client else ("", 0)
    return Asked(request.method, request.url.scheme, request.headers.get("host", ""), address, request.headers, PUBLIC.get())


def smuggled(scope: Scope) -> bool:
    """Whether the request says in two ways where its body ends, or in one that its version of HTTP has not: a proxy in front may have taken
    the other one, and then what we take for the next request was none."""
    names = [name for name, _ in scope["headers"]]
    return b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0")


class Guard:
    """The same headers on every answer. No answer but a refusal for a request whose end is not clear; the connection ends with it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https" or PUBLIC.get().origin.startswith("https:"):
                    headers["strict-transport-security"] = "max-age=31536000"
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif smuggled(scope):
            response = failed(Refused(400, "usage", "the request says in two ways where it ends", hint="Content-Length alone"))
            response.headers["connection"] = "close"
            await response(scope, receive, send_with)
        else:
            await self.app(scope, receive, send_with)


async def body_of(request: Request) -> bytes:
    """Raises Refused: 413 beyond MOST_BODY, 408 for who sends it too slowly."""
    out = b""
    with move_on_after(BODY_S) as patience:
        async for piece in request.stream():
            out += piece
            if len(out) > MOST_BODY:
                raise Refused(413, "usage", f"the request has more than {MOST_BODY} bytes")
    if patience.cancelled_caught:
        raise Refused(408, "usage", f"the request was not whole after {BODY_S} s")
    return out


async def given_to(operation: Operation, request: Request) -> dict[str, Any]:
    """Inputs from the path, and from the query or a JSON body."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise LeadlineError("usage", f"{name[:60]} is given twice")
        given[name] = value
    if operation.writes:
        if given:
            raise LeadlineError("usage", "a change takes its values from the body, not the address")
        body = await body_of(request)
        if body:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Refused(415, "usage", "the body must be JSON", hint="Content-Type: application/json")
            given = object_of(body)
    clash = set(given) & set(request.path_params)
    if clash:
        raise LeadlineError("usage", f"{clash.pop()[:60]} is given twice")
    return given | request.path_params


def object_of(body: bytes) -> dict[str, Any]:
    try:
        given = read_json(body)
    except ValueError as e:
        raise LeadlineError("usage", "the body is not JSON", detail=str(e)[:200]) from None
    if not isinstance(given, dict):
        raise LeadlineError("usage", "the body is not a JSON object")
    return given


def as_json(value: Any, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def failed(error: LeadlineError) -> Response:
    status = status_of(error)
    response = as_json(error_text(error), status)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if status == 429:
        response.headers["retry-after"] = error.detail.split()[1] if error.detail.startswith("wait ") else "60"
    return response


def is_for_people(request: Request) -> bool:
    """Browsers say that they want HTML; programs say nothing, or that they take anything."""
    return "text/html" in request.headers.get("accept", "")


async def refused(site: Site, request: Request, error: LeadlineError) -> Response:
    """An error as a page for people, and as JSON for programs."""
    response = failed(error)
    if is_for_people(request):
        shown = html(await run_sync(partial(pages.error, site, asked(request), error)), response.status_code)
        shown.headers.update({name: value for name, value in response.headers.items() if name in ("retry-after", "www-authenticate")})
        return shown
    return response


@cache
def described(server: str) -> Response:
    """The OpenAPI document of a site at this path, made for the first who asks."""
    return as_json(document(OPERATIONS, version(), server))


_slow: RunVar[CapacityLimiter] = RunVar("places for what is slow")


def places_for(operation: Operation) -> CapacityLimiter | None:
    """None: those of all."""
    if not operation.slow:
        return None
    try:
        return _slow.get()
    except LookupError:
        _slow.set(places := CapacityLimiter(SLOW_AT_ONCE))
        return places


async def answer(site: Site, operation: Operation, request: Request, value: Any) -> Response:
    """What an operation gave, as a response."""
    if isinstance(value, Follow):
        who = asked(request)
        caller = (await run_sync(site.caller, who)).name
        too_many = ""
        if site.streams[caller] >= MOST_STREAMS:
            too_many = f"{caller} follows {MOST_STREAMS} outputs"
        elif site.streams.total() >= MOST_STREAMS_OF_ALL:
            too_many = f"all users follow {MOST_STREAMS_OF_ALL} outputs"
        if too_many:
            raise Refused(
                429, "usage", f"{too_many} at once, and no more are sent", detail="wait 5 s",
                hint="end some of them, or get pages: GET /runs/{run}/log",
            )  # fmt: skip

        async def status() -> str | None:
            return await run_sync(site.status, who, value.uid)

        headers = {"x-accel-buffering": "no"}
        if operation.name == "run.stream":
            return Counted(site, caller, live.as_events(value, status), media_type="text/event-stream", headers=headers)
        return Counted(site, caller, live.as_bytes(value, status), media_type="text/plain; charset=utf-8", headers=headers)
    if isinstance(value, File | Page):
        from urllib.parse import quote

        file, headers = open(value.fd, "rb"), {"content-length": str(value.size)}
        if isinstance(value, Page):
            headers["content-security-policy"] = REPORT
            return StreamingResponse(_file(file, value.size), media_type="text/html; charset=utf-8", headers=headers)
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(value.name, errors='replace')}"
        return StreamingResponse(_file(file, value.size), media_type="application/octet-stream", headers=headers)
    if isinstance(value, Document):
        headers = {"content-security-policy": REPORT, "content-disposition": f'attachment; filename="{value.name}"'}
        return Response(value.html, media_type="text/html; charset=utf-8", headers=headers)
    if isinstance(value, Text):
        return Response(value.text, media_type=value.media_type)
    return await run_sync(as_json, value, limiter=places_for(operation))


class Counted(StreamingResponse):
    """Output that is followed: counted for its caller until it ends, however it ends."""

    def __init__(self, site: Site, caller: str, pieces: AsyncIterator[bytes], **more: Any) -> None:
        super().__init__(pieces, **more)
        self.site, self.caller = site, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.site.streams[self.caller] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.site.streams[self.caller] -= 1
            self.site.streams += Counter()  # without those of none


async def _file(file: Any, size: int) -> AsyncIterator[bytes]:
    """Not more than was said: it may grow meanwhile."""
    with file:
        while size > 0 and (piece := await run_sync(file.read, min(size, 256 << 10))):
            size -= len(piece)
            yield piece


Handler = Callable[[Request], Awaitable[Response]]


def rest(site: Site, operation: Operation) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            if operation.writes:
                await run_sync(site.caller, asked(request))  # before anything is read from one who may not write
            given = await given_to(operation, request)
            if operation.name == "run.stream" and (last := request.headers.get("last-event-id", "")).isdecimal():
                given["from"] = last
            value = await run_sync(site.perform, operation, asked(request), given, limiter=places_for(operation))
            return await answer(site, operation, request, value)
        except LeadlineError as e:
            return failed(e) if operation.writes else await refused(site, request, e)  # a link of a page may lead to a report or a file

    return handle


def page(site: Site, of: pages.Page, *, json_twin: bool) -> Handler:
    def made(who: Asked, given: Mapping[str, str]) -> Response:
        shown = pages.data(site, of, who, given)
        return as_json(shown.data) if json_twin else html(pages.render(of.template, shown))

    async def handle(request: Request) -> Response:
        given = dict(request.query_params.multi_items()) | request.path_params
        try:
            return await run_sync(made, asked(request), given, limiter=places_for(BY_NAME[of.operation]))
        except LeadlineError as e:
            if json_twin:
                return failed(e)
            if status_of(e) == 422 and request.query_params and "{" not in of.path:
                return html(await run_sync(pages.asked_again, site, asked(request), of, given, e), 422)
            return await not_shown(site, request, e)

    return handle


async def not_shown(site: Site, request: Request, error: LeadlineError) -> Response:
    """In the place of a page; who is not logged in is asked to, and then gets the page."""
    if status_of(error) == 401:
        on = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{link('/login')}?{pages.query({'next': on})}", 303)
    return html(await run_sync(partial(pages.error, site, asked(request), error)), status_of(error))


def explore_routes(site: Site) -> list[BaseRoute]:
    """The page of `leadline explore` for a capture that a run made, for a recorder and for a window of one. Each of its questions is an
    operation, and asks for the right anew.
    """

    def routes(name: str, below: str, shown: Callable[[str, Mapping[str, str]], str]) -> list[BaseRoute]:
        """below: where its questions are asked, as api/QUESTION. shown: the page for who asks, of its text and what is in the path."""
        operation = BY_NAME[name]

        async def perform(request: Request, question: str) -> Any:
            given = {**request.path_params, "question": question, "state": request.url.query}
            return await run_sync(site.perform, operation, asked(request), given, limiter=places_for(operation))

        async def show(request: Request) -> Response:
            try:
                await perform(request, "opening")
            except LeadlineError as e:
                return await not_shown(site, request, e)
            page = (EXPLORE / "index.html").read_text(encoding="utf-8").replace('"/static/', f'"{link("/static/")}')
            return html(shown(page, {key: quote(str(value), safe="") for key, value in request.path_params.items()}))

        async def answered(request: Request) -> Response:
            try:
                return as_json(await perform(request, request.path_params["question"]))
            except LeadlineError as e:
                return failed(e)

        return [Route(f"{below}explore", show), Route(f"{below}api/{{question}}", answered)]

    def of_run(page: str, path: Mapping[str, str]) -> str:
        return page.replace("<!-- up -->", f'<a class="up" href="{link("/runs/")}{path["run"]}">&lsaquo; Run</a>')

    def of_recorder(page: str, path: Mapping[str, str]) -> str:
        of = f"{link('/recorders/')}{path['recorder']}"
        page = page.replace("<!-- up -->", f'<a class="up" href="{link("/recorders")}">&lsaquo; Recorders</a>')
        page = page.replace('data-windows="/at/" data-end="/"', f'data-windows="{of}/at/" data-end="/explore"')
        return page.replace('id="recorder" href="/"', f'id="recorder" href="{of}"')

    async def whole(request: Request) -> Response:
        """On to the page whose address says where time is counted from, so that it means the same when the first pieces are gone."""
        name = request.path_params["recorder"]
        try:
            given = {"recorder": name}
            begins = await run_sync(site.perform, BY_NAME["recorder.begin"], asked(request), given)
        except LeadlineError as e:
            return await not_shown(site, request, e)
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{link('/recorders/')}{quote(name, safe='')}/from/{begins['second']}/explore{query}", 303)

    return [
        *routes("run.explore", "/runs/{run}/files/{n}/", of_run),
        Route("/recorders/{recorder}", whole),
        *routes("recorder.explore", "/recorders/{recorder}/from/{window}/", of_recorder),
        *routes("recorder.explore", "/recorders/{recorder}/at/{window}/", of_recorder),
    ]


def html(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")


def form(site: Site, operation: Operation) -> Handler:
    """A form of a page: the same operation, then on to the page that the form names."""

    async def handle(request: Request) -> Response:
        who, fields, on = asked(request), dict[str, str](), "/"
        try:
            await run_sync(site.caller, who)  # whatever another site sent ends here
            fields = await fields_of(request)
            on = own_path(fields.pop("then", "/"))
            value = await run_sync(site.perform, operation, who, forms.read(operation, fields))
            if operation.name in pages.SHOWN_ONCE:
                return html(await run_sync(partial(pages.once, site, who, operation, value)))
            return RedirectResponse(link(pages.filled(on, value)), 303)
        except LeadlineError as e:
            if fields and status_of(e) != 401:
                return html(await run_sync(pages.again, site, who, operation, fields, on, e), status_of(e))
            return html(await run_sync(partial(pages.error, site, who, e)), status_of(e))

    return handle


async def fields_of(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Refused(415, "usage", "a form must be sent as application/x-www-form-urlencoded")
    try:
        return dict(parse_qsl((await body_of(request)).decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=200))
    except ValueError:
        raise LeadlineError("usage", "the form cannot be read") from None


def login_routes(site: Site) -> list[BaseRoute]:
    provider = site.provider.name if site.provider else ""

    async def show(request: Request) -> Response:
        return html(pages.login_page(own_path(request.query_params.get("next", "/")), provider))

    async def log_in(request: Request) -> Response:
        who = asked(request)
        try:
            check_origin(who, True)
            fields = await fields_of(request)
            on = own_path(fields.get("next", "/"))
            try:
                site.note_proxy(who)
                account, password, code = (fields.get(name, "") for name in ("account", "password", "code"))
                made = await run_sync(site.log_in, who, account, password, code)
            except Refused as e:
                response = html(pages.login_page(on, provider, e, account[:200]), e.status)
                if e.status == 429:
                    response.headers["retry-after"] = e.detail.split()[1]
                return response
        except LeadlineError as e:
            return await refused(site, request, e)
        return logged_in(who, made, on)

    async def show_once(request: Request) -> Response:
        """Looking at the link does not use it: programs that show what is behind a link do that."""
        return html(pages.once_page(request.query_params.get("key", "")[:100]))

    async def log_in_once(request: Request) -> Response:
        who = asked(request)
        try:
            check_origin(who, True)
            fields = await fields_of(request)
            key, code = fields.get("key", ""), fields.get("code", "")
            try:
                made = await run_sync(site.log_in_once, who, key, code)
            except Refused as e:
                if e.status == 403:
                    raise
                return html(pages.once_page(key[:100], e), e.status)
        except LeadlineError as e:
            return html(await run_sync(partial(pages.error, site, who, e)), status_of(e))
        return logged_in(who, made, "/")

    async def to_provider(request: Request) -> Response:
        who = asked(request)
        try:
            if site.provider is None:
                raise LeadlineError("not_found", "there is no such page")
            attempt = oidc.Attempt.new(own_path(request.query_params.get("next", "/")))
            address = await run_sync(site.provider.begin, attempt, who.url + oidc.BACK)
        except LeadlineError as e:
            return html(pages.login_page("/", provider, e), status_of(e))
        response = RedirectResponse(address, 303)
        response.set_cookie(
            ATTEMPT, attempt.as_cookie(), max_age=600, httponly=True, samesite="lax", secure=who.is_secure, path=link(oidc.BACK)
        )
        return response

    async def from_provider(request: Request) -> Response:
        who = asked(request)
        attempt = oidc.Attempt.of_cookie(who.cookie(ATTEMPT))
        given, back = dict(request.query_params), who.url + oidc.BACK
        try:
            made = await run_sync(site.log_in_by_provider, who, attempt, given, back)
            response = logged_in(who, made, own_path(attempt.next if attempt else "/"))
        except LeadlineError as e:
            response = html(pages.login_page("/", provider, e), status_of(e))
        response.delete_cookie(ATTEMPT, path=link(oidc.BACK))  # each is used once
        return response

    async def log_out(request: Request) -> Response:
        who = asked(request)
        try:
            check_origin(who, True)
            await run_sync(site.log_out, who.session)
        except LeadlineError as e:
            return await refused(site, request, e)
        response = RedirectResponse(link("/login"), 303)
        response.delete_cookie(COOKIE, path=link() or "/")
        return response

    return [
        Route("/login", show),
        Route("/login", log_in, methods=["POST"]),
        Route("/login/once", show_once),
        Route("/login/once", log_in_once, methods=["POST"]),
        Route("/login/provider", to_provider),
        Route(oidc.BACK, from_provider),
        Route("/logout", log_out, methods=["POST"]),
    ]


def logged_in(who: Asked, made: LoggedIn, on: str) -> Response:
    response = RedirectResponse(link(on), 303)
    for name, value, us, path in (
        (COOKIE, made.session, login.LONGEST_US, link() or "/"),
        (DEVICE, made.device, devices.KEPT_US, link("/login")),
    ):
        response.set_cookie(
            name, value, max_age=us // 1_000_000, httponly=True, samesite="lax", secure=who.is_secure, path=path
        )
    return response


def hook(site: Site) -> Handler:
    """What others send to start a template. It has no login: its signature says whose it is."""

    async def handle(request: Request) -> Response:
        try:
            body = await body_of(request)
            client = asked(request).client[0]
            done = await run_sync(site.receive, request.path_params["hook"], request.headers, body, client)
            return as_json(done, 202 if done["run"] else 200)
        except LeadlineError as e:
            return failed(e)

    return handle


def static_routes() -> list[BaseRoute]:
    """Each file by its own name: no path is made of what is asked for."""

    def of(path: Path) -> Handler:
        async def handle(_request: Request) -> Response:
            return FileResponse(path, headers={"cache-control": "public, max-age=300"})

        return handle

    files = [*STATIC.iterdir(), *(path for path in EXPLORE.iterdir() if path.suffix != ".html")]
    return [Route(f"/static/{path.name}", of(path)) for path in sorted(files)]


def build(site: Site, beside: Callable[[], Any] | None = None) -> ASGIApp:
    """beside: a context manager of what runs beside the answers (housekeeping)."""

    async def openapi(_request: Request) -> Response:
        return described(link() or "/")

    async def health(_request: Request) -> Response:
        return JSONResponse({"ok": True})

    async def start(_request: Request) -> Response:
        return RedirectResponse(link("/runs"), 303)

    routes: list[BaseRoute] = [
        Route("/", start),
        Route("/openapi.json", openapi),
        Route("/healthz", health),
        *static_routes(),
        *login_routes(site),
    ]
    routes += [
        Route(PREFIX + operation.path, rest(site, operation), methods=[operation.method], name=operation.name) for operation in OPERATIONS
    ]
    routes += [Route("/metrics", rest(site, BY_NAME["user.metrics"])), Route("/hooks/{hook}", hook(site), methods=["POST"])]
    routes += [Route(f"/form/{operation.name}", form(site, operation), methods=["POST"]) for operation in OPERATIONS if operation.writes]
    routes += explore_routes(site)
    for one in pages.PAGES:
        routes += [Route(f"{one.path}.json", page(site, one, json_twin=True)), Route(one.path, page(site, one, json_twin=False))]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        if beside is None:
            yield
        else:
            with beside():
                yield

    async def missing(request: Request, _error: Exception) -> Response:
        return await refused(site, request, LeadlineError("not_found", "there is no such page"))

    async def not_allowed(request: Request, error: Exception) -> Response:
        response = await refused(site, request, Refused(405, "usage", "this address does not take that method"))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    async def broken(request: Request, _error: Exception) -> Response:
        e = LeadlineError("fault", "leadline itself failed", hint="please report it; the server's own output says more")
        return html(pages.error(None, None, e), 500) if is_for_people(request) else failed(e)

    handlers: Mapping[Any, Any] = {404: missing, 405: not_allowed, 500: broken}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # to an address made of what the client says is the host
    return Below(Guard(app), site.public)  # the guard outside of all: its headers are on errors, too
