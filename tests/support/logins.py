"""Users of a server who log in by a password, each in another way."""

from __future__ import annotations

import psycopg
from conftest import wait_until
from leadline.engines.postgres.server import PrivateServer

METHODS = {"plain": ("password", "md5"), "hashed": ("md5", "md5"), "scrammed": ("scram-sha-256", "scram-sha-256")}
"""User: method of pg_hba.conf, and how the password is stored."""
SECRET = "swordfish-0815"


def make_users(private: PrivateServer) -> None:
    """The users of METHODS, on a server that listens on the loopback."""
    with psycopg.connect(private.dsn, autocommit=True) as db:
        for role, (_, encryption) in METHODS.items():
            db.execute(f"set password_encryption = '{encryption}'")
            db.execute(f"create role {role} login password '{SECRET}'")
        rules = private.data_dir / "pg_hba.conf"
        lines = [f"host all {role} 127.0.0.1/32 {method}" for role, (method, _) in METHODS.items()]
        rules.write_text("\n".join(lines) + "\n" + rules.read_text())
        db.execute("select pg_reload_conf()")
        wait_until(lambda: db.execute("select count(*) from pg_hba_file_rules where auth_method = 'password'").fetchone() == (1,))
