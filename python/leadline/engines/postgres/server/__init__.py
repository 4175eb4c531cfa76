"""Private PostgreSQL servers: found, started as an unprivileged user, stopped and removed without a trace."""

from leadline.engines.postgres.server.binaries import Binaries, find_binaries
from leadline.engines.postgres.server.private import PrivateServer
from leadline.engines.postgres.server.standby import Standby

__all__ = ["Binaries", "PrivateServer", "Standby", "find_binaries"]
