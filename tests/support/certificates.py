"""Certificates for test servers."""

from __future__ import annotations

import os
import subprocess

from leadline.engines.postgres.server.private import PrivateServer


def certified(server: PrivateServer) -> None:
    """TLS, with a certificate that the server made itself."""
    files = [server.data_dir / name for name in ("server.key", "server.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", files[0], "-out", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    owner = server.data_dir.stat()
    for file in files:
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
