"""Gives the metrics of a recorder away for as long as it runs. What only that needs is imported then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.metrics.collector import Collector
    from leadline.metrics.families import Reading, Source
    from leadline.metrics.follower import Follower


@dataclass(frozen=True)
class Wanted:
    """listen: HOST:PORT or :PORT for Prometheus, empty if it is not wanted; token: a file. collector: to be sent to, if there is one."""

    listen: str = ""
    token: Path | None = None
    collector: Collector | None = None


@contextmanager
def published(wanted: Wanted, say: Callable[[str], None]) -> Iterator[Follower | None]:
    """What the recorder is to tell; None if nobody wants metrics. say: tells the user. Raises LeadlineError."""
    if wanted.token is not None and not wanted.listen:
        raise LeadlineError("usage", "the token is for metrics that are asked for", hint="add --metrics", where="--metrics-token")
    if not wanted.listen and wanted.collector is None:
        yield None
        return
    from leadline.metrics.exposition import exposition
    from leadline.metrics.follower import Follower
    from leadline.metrics.host import HostSource
    from leadline.metrics.own import OwnSource
    from leadline.metrics.push import Pusher
    from leadline.metrics.server import MetricsServer, read_token

    token = "" if wanted.token is None else read_token(wanted.token)
    with ExitStack() as stack:
        own = OwnSource()
        follower = Follower(own.start_ns)
        sources: list[Source] = [follower, HostSource(lambda: follower.has_host), own]

        def readings() -> list[Reading]:
            return [reading for source in sources for reading in source.readings()]

        if wanted.collector is not None:
            pusher = Pusher(wanted.collector, readings, own.start_ns, say)
            sources.append(pusher)
            stack.callback(pusher.close)
            say(f"metrics are sent to {wanted.collector.name}")
        if wanted.listen:
            server = MetricsServer(wanted.listen, token, lambda: exposition(readings()))
            stack.callback(server.close)
            say(f"metrics for Prometheus: {server.url}")
            if not server.is_loopback:
                say("note: the token crosses the network in the clear: a proxy with TLS, or loopback")
        follower.start()
        stack.callback(follower.close)  # before the last push
        yield follower
