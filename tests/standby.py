"""A hot standby of a private server."""

from __future__ import annotations

from conftest import copy_folder
from leadline.postgres.server.private import PrivateServer


class Standby(PrivateServer):
    """A copy of the stopped primary, which follows it once it runs again. Conflicts with queries never cancel them."""

    def __init__(self, primary: PrivateServer) -> None:
        super().__init__(primary.bin_dir)
        self.primary = primary

    def _initdb(self) -> None:
        self.primary.stop()
        copy_folder(self.primary.data_dir, self.data_dir)
        self.primary.start()
        signal_file = self.data_dir / "standby.signal"
        signal_file.touch()
        self.user.own(signal_file)
        with open(self.data_dir / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"primary_conninfo = '{self.primary.dsn}'\nmax_standby_streaming_delay = -1\n")
