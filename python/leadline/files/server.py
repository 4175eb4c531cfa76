"""The files of a server on this host, from the one word that names it: a connection string or the pid of its postmaster.

Only files are read. The server is asked where they are, and with a connection string also which relation has which file.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from leadline.errors import LeadlineError

NAMES_SQL = """
select case when c.reltablespace <> 0 then c.reltablespace else d.dattablespace end::int8 as spcnode,
       case when c.relisshared then 0 else d.oid end::int8 as dbnode,
       pg_catalog.pg_relation_filenode(c.oid)::int8 as relfilenode, pg_catalog.format('%I.%I', n.nspname, c.relname) as name
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join (select * from pg_catalog.pg_database where datname = pg_catalog.current_database()) d
where pg_catalog.pg_relation_filenode(c.oid) is not null
"""


def names_a_server(text: str) -> bool:
    """Whether the word means a server rather than a path. What exists as a file is a path."""
    if text.startswith(("/", ".")) or os.path.exists(text):
        return False
    return "=" in text or "://" in text or text.isdigit()


class ServerFiles(NamedTuple):
    """data_dir: of the running server. dsn: how to ask it; None for a pid."""

    data_dir: str
    dsn: str | None = None

    def relation_path(self, name: str) -> str:
        """What pg_relation_filepath says of a table or an index. Raises LeadlineError when there is none of that name."""
        from leadline.files.pages.relation import file_path

        if self.dsn is None:
            hint = "use a connection string, or give the output of select pg_relation_filepath('name')"
            raise LeadlineError("usage", f"{name} is a name, which cannot be resolved with only a pid", hint=hint)
        return file_path(self.dsn, name)

    def names(self) -> dict[tuple[int, int, int], str]:
        """Names of the connected database's relations by tablespace, database and file number; empty without a connection string."""
        from leadline.engines.postgres.catalog.connection import connect

        if self.dsn is None:
            return {}
        with connect(self.dsn) as connection:
            return {(spc, db, rel): name for spc, db, rel, name in connection.execute(NAMES_SQL)}


def server_files(text: str, command: str) -> ServerFiles:
    """Where the server keeps its files. command: what the hint says to run as their owner.

    Raises LeadlineError: no such server, it is on another host, or its files may not be read.
    """
    from leadline.engines.postgres.target import resolve_text

    target = resolve_text(text)
    if target.pid is None or target.data_dir is None:
        raise LeadlineError(
            "unsupported",
            "the files of this server are not on this host",
            detail="; ".join(target.notes) or "its data directory is not known",
            hint="run leadline on the host of the server, or give the path of a copy of its data directory",
            where=target.safe_dsn or text,
        )
    check_readable(target.data_dir, command)
    return ServerFiles(target.data_dir, target.dsn)


def check_readable(data_dir: str, command: str) -> None:
    """Raises LeadlineError('rights') with the command to run when the files may not be read."""
    try:
        with open(f"{data_dir}/global/pg_control", "rb"):
            return
    except PermissionError:
        from pathlib import Path

        try:
            owner = Path(data_dir).owner()
        except (KeyError, OSError):
            owner = "OWNER"
        raise LeadlineError(
            "rights",
            "cannot read the data directory",
            detail=f"it belongs to {owner}, this process runs as uid {os.geteuid()}",
            hint=f"sudo -u {owner} {command} ...",
            where=data_dir,
        ) from None
    except OSError:
        return  # whoever reads it says what is wrong
