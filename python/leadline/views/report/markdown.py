"""The texts of the findings as HTML that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup


class _Offline(RendererHTML):
    """Links become their text and their address: a report has no way out of its own file."""

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        env.setdefault("addresses", []).append(str(tokens[idx].attrGet("href") or ""))
        return ""

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        address = env["addresses"].pop()
        text = tokens[idx - 1].content
        return "" if text == address else f" ({_escape(address)})"

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _escape(tokens[idx].content)


def _escape(text: str) -> str:
    return str(Markup.escape(text))


_PARSER = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Offline).enable("table")


def to_html(text: str) -> Markup:
    """Markdown as safe HTML. HTML inside the text is shown, not interpreted."""
    return Markup(_PARSER.render(text))
