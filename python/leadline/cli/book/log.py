"""leadline book log: what a command printed, by bytes or lines, while it runs or later."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from leadline.cli.book.options import as_json
from leadline.errors import LeadlineError
from leadline.output import to_json

if TYPE_CHECKING:
    from leadline.book.log import Log

LOOK_AGAIN_S = 0.1


@click.command("log", epilog="\b\nExamples:\n  leadline book log last --from -2000\n  leadline book log 4k7q2 --line 1000000 --lines 50\n"
               "  leadline book log last --grep ERROR\n  leadline book log last --follow")  # fmt: skip
@click.argument("run", default="last")
@click.option("--from", "start", type=int, default=0, metavar="BYTE", help="Begin at this byte; a negative number counts from the end.")
@click.option("--bytes", "length", type=click.IntRange(0), metavar="N", help="Print at most N bytes.")
@click.option("--line", type=int, metavar="N", help="Begin at this line, counted from 1; a negative number counts from the end.")
@click.option("--lines", "count", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Number of lines to print.")
@click.option("--grep", metavar="TEXT", help="Print only lines with this text, each with its byte offset. Stops searching after 1 s.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing while the command runs.")
@click.option("--raw", is_flag=True, help="Print escape sequences unchanged, even on a terminal. Use it only if you trust the command.")
@as_json
def log(
    run: str, start: int, length: int | None, line: int | None, count: int, grep: str | None, follow: bool, raw: bool, as_json: bool
) -> None:  # fmt: skip
    """Print what a command printed, byte for byte.

    On a terminal, what could steer it is replaced, but for colours. --json prints --lines lines from --line on, and where they are.
    """
    from leadline.book.log import Log
    from leadline.book.query import Book

    book = Book()
    found = book.find(run)
    try:
        opened = Log(book.place, found["uid"])
    except FileNotFoundError:
        hint = "the output of leadline's own commands is not stored" if found["kind"] == "leadline" else ""
        if found["host"] != os.uname().nodename:
            hint = f"it is on the host {found['host']}"
        raise LeadlineError("not_found", f"run {found['uid']} has no output", hint=hint) from None
    out = _Out(raw)
    if as_json:
        page = opened.page(line - 1 if line and line > 0 else line or 0, count)
        lines = [text.decode("utf-8", "replace") for text in page.lines]
        click.echo(to_json({"first": page.first + 1, "offset": page.offset, "end": page.end, "size": opened.size, "lines": lines}))
    elif grep is not None:
        _grep(opened, grep, max(0, start), out)
    elif line is not None:
        page = opened.page(line - 1 if line > 0 else line, count)
        for text in page.lines:
            out(text)
        out.end()
    else:
        offset = max(0, opened.size + start) if start < 0 else start
        for piece in opened.pieces(offset, length):
            offset += len(piece)
            out(piece)
        if follow and length is None:
            _follow(opened, offset, found, out)
        out.end()


class _Out:
    """stdout, tamed where it is a terminal."""

    def __init__(self, raw: bool) -> None:
        from leadline.book.shown import RESET, Tame

        self._tame = Tame() if sys.stdout.isatty() and not raw else None
        self._reset = RESET

    def __call__(self, piece: bytes) -> None:
        if self._tame is None:
            sys.stdout.buffer.write(piece)
        else:
            sys.stdout.write(self._tame(piece))
        sys.stdout.flush()

    def end(self) -> None:
        if self._tame is not None:
            sys.stdout.write(self._tame(b"", last=True) + self._reset)
        sys.stdout.flush()


def _follow(log: Log, offset: int, run: dict[str, Any], out: _Out) -> None:
    """Until the process that writes the log is gone, and all of it is out."""
    from leadline.host.proc import lives

    while True:
        over = not lives(run["pid"], run["pid_start"])
        while piece := b"".join(log.pieces(offset)):
            offset += len(piece)
            out(piece)
        if over:
            return
        time.sleep(LOOK_AGAIN_S)


def _grep(log: Log, text: str, start: int, out: _Out) -> None:
    lines, more = log.grep(text.encode("utf-8", "surrogateescape"), start)
    for offset, line in lines:
        out(b"%d: %s\n" % (offset, line))
    out.end()
    if more is not None:
        click.echo(f"not all was searched; next: --from {more}", err=True)
    elif not lines:
        click.echo("not found", err=True)
