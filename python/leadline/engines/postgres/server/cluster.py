"""A private server on a cluster that is there already."""

from __future__ import annotations

import os
import time

from leadline.engines.postgres.server.private import PrivateServer
from leadline.engines.postgres.server.user import ServerUser, server_user, user_of


class ClusterServer(PrivateServer):
    """Starts a server on the cluster in `data_dir`, which is kept; settings are added to its postgresql.conf.

    It is waited for by its log, without a session: one would read catalogs, and write what it finds out of their rows. For root, it
    runs as the owner of the cluster.
    """

    def _server_user(self) -> ServerUser:
        owner = (self._given_data_dir or self.data_dir).stat()
        return user_of(owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else server_user()

    def _initdb(self) -> None:
        pass

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while "ready to accept connections" not in self.log:
            if self._process is None or self._process.poll() is not None:
                raise self._failed("the server ended while starting")
            if time.monotonic() > deadline:
                raise self._failed(f"the server was not ready within {self.start_timeout_s:g} s")
            time.sleep(0.005)
