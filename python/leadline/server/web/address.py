"""Where the site is for those who use it: at the root of this server, or behind a proxy under another name and below a path.

A proxy may hand the path on as it is, or without the part that leads here: both are understood. Addresses within the site are written
without that part everywhere (in tables of pages, forms and redirects), and get it where they go out: `link`.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from leadline.errors import LeadlineError


@dataclass(frozen=True)
class Public:
    """origin: scheme and host, or empty where each request says it itself. root: the path below which the site is, without / at its end."""

    origin: str = ""
    root: str = ""

    @property
    def url(self) -> str:
        return f"{self.origin}{self.root}/"


def read_public(text: str) -> Public:
    """Raises LeadlineError."""
    if not text:
        return Public()
    wrong = LeadlineError("usage", f"{text[:200]!r} is no address of a site", hint="https://ops.example/leadline", where="--public-url")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise wrong from None
    root = parts.path.rstrip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise wrong
    if not re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*", root) or not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", parts.netloc):
        raise wrong
    is_usual = port is None or port == {"http": 80, "https": 443}[parts.scheme]  # as browsers write an origin
    host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
    return Public(f"{parts.scheme}://{host}{'' if is_usual else f':{port}'}", root)


HERE = Public()
PUBLIC: ContextVar[Public] = ContextVar("public", default=HERE)


def link(path: str = "") -> str:
    """A path of this site as the browser is to ask for it."""
    return PUBLIC.get().root + path


class Below:
    """Answers what is asked for below the root as if it were at the root."""

    def __init__(self, app: ASGIApp, public: Public) -> None:
        self.app, self.public = app, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        PUBLIC.set(self.public)
        root, path = self.public.root, scope.get("path", "")
        if root and (path == root or path.startswith(root + "/")):
            scope = {**scope, "path": path[len(root) :] or "/", "raw_path": scope.get("raw_path", b"")[len(root) :] or b"/"}
        await self.app(scope, receive, send)
