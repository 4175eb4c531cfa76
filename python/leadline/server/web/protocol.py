"""HTTP as uvicorn has it, with an end to patience: a connection on which no request comes is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0  # for the head of the first request, and of each one after that


class Impatient(H11Protocol):
    """Idle connections, and those that send a byte now and then, must not take the places of others."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: Any = None
        self._look: asyncio.TimerHandle | None = self.loop.call_later(REQUEST_S, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        super().connection_lost(exc)

    def _look_again(self) -> None:
        """Closes it if nothing was answered since the look before, and nothing is being answered."""
        if self.cycle is self._seen and (self.cycle is None or self.cycle.response_complete):
            self._look = None
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(REQUEST_S, self._look_again)
