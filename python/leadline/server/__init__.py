"""Private PostgreSQL servers: found, started as an unprivileged user, stopped and removed without a trace."""

from leadline.server.binaries import Binaries, find_binaries
from leadline.server.private import PrivateServer

__all__ = ["Binaries", "PrivateServer", "find_binaries"]
