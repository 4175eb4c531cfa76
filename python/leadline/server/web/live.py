"""The output of a run as it comes: plain bytes, or server-sent events whose id is the byte at which the next one begins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import BinaryIO

from leadline.book.packed import open_log
from leadline.server.read.output import Follow, as_text, cut
from leadline.server.read.runs import ENDED
from leadline.server.web.ansi import Colours

PIECE = 64 << 10
LOOK_S = 0.1
STATUS_S = 0.5
RIGHTS_S = 3.0  # while output comes without end; who has lost the right gets no more after that
COMMENT_S = 15.0
Status = Callable[[], Awaitable[str | None]]  # of the run; None: the caller may not see it any more


async def pieces(of: Follow, status: Status) -> AsyncIterator[tuple[bytes, int] | str | None]:
    """Bytes with the offset after them; None now and then while nothing comes; at last, as text, how the run ended or `refused`."""
    at, file, ended = of.start, None, None if of.follow else "ok"
    size = PIECE // 8 if of.in_parts else PIECE  # to colour 64 kB of short lines takes a tenth of a second
    looked = wrote = time.monotonic()
    looked -= STATUS_S
    try:
        while True:
            if file is None:
                with contextlib.suppress(OSError):
                    file = open_log(of.place, of.uid, buffered=False)
            piece = b"" if file is None else _read_at(file, at, size, all_is_there=ended is not None)
            now = time.monotonic()
            if ended is None and now - looked >= (RIGHTS_S if piece else STATUS_S):
                looked = now
                found = await status()
                if found is None:
                    yield "refused"
                    return
                if not piece and found in ENDED:
                    ended = found
                    continue  # once more: what was printed before the end
            if piece:
                at += len(piece)
                wrote = now
                yield piece, at
                await asyncio.sleep(0)  # neither the read above nor a send to one who is gone lets others run
                continue
            if ended is not None:
                yield ended
                return
            if now - wrote >= COMMENT_S:
                wrote = now
                yield None
            await asyncio.sleep(LOOK_S)
    finally:
        if file is not None:
            file.close()


def _read_at(file: BinaryIO, at: int, size: int, *, all_is_there: bool) -> bytes:
    file.seek(at)
    read = file.read(size)
    return cut(read, whole=all_is_there and len(read) < size)


async def as_bytes(of: Follow, status: Status) -> AsyncIterator[bytes]:
    async for piece in pieces(of, status):
        if isinstance(piece, tuple):
            yield piece[0]


async def as_events(of: Follow, status: Status) -> AsyncIterator[bytes]:
    colours = Colours()
    async for piece in pieces(of, status):
        if piece is None:
            yield b": still running\n\n"
        elif isinstance(piece, str):
            yield f"event: done\ndata: {json.dumps({'status': piece})}\n\n".encode()
        else:
            data = {"parts": in_parts(piece[0], colours)} if of.in_parts else as_text(piece[0])
            yield f"id: {piece[1]}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def in_parts(piece: bytes, colours: Colours) -> list[list[tuple[str, str]]]:
    """Lines of classes and texts; each but the last ended with a line break, and that too if its own text is empty."""
    return [colours.parts(line) for line in piece.decode("utf-8", "replace").split("\n")]
