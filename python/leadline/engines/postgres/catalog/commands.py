"""Commands that make sessions plan again what they had prepared, from pg_stat_statements: how often each ran, and on what.

It counts those too that are too quick for a sample. Of their texts, which may have secrets in them, only the words of the command and the
name after it are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

VIEW = "pg_stat_statements_commands"
LIMIT = 5000  # texts read
TEXT_LENGTH = 1000  # of each

# Of these, a change of a table or of one of its indexes. VACUUM and ANALYZE are counted by table.
_FIRST_WORDS = ("alter", "cluster", "create", "drop", "reindex", "refresh", "truncate")
_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[\w$]+)'
_NAME = rf"(?P<name>{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})?)"
_EXISTS = r"(?:if\s+(?:not\s+)?exists\s+)?"
_FORMS = [
    re.compile(form + _NAME, re.IGNORECASE | re.DOTALL)
    for form in (
        rf"(?P<command>(?:alter|drop|truncate)(?:\s+foreign)?\s+table|truncate)\s+{_EXISTS}(?:only\s+)?",
        rf"(?P<command>(?:alter|drop|reindex)\s+index)\s+(?:concurrently\s+)?{_EXISTS}",
        rf"(?P<command>create(?:\s+unique)?\s+index)\s+(?:concurrently\s+)?{_EXISTS}(?:{_IDENTIFIER}\s+)??on\s+(?:only\s+)?",
        rf"(?P<command>create(?:\s+unlogged)?\s+table)\s+{_EXISTS}{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})?\s+partition\s+of\s+",
        r"(?P<command>(?:create(?:\s+or\s+replace)?(?:\s+constraint)?|alter|drop)\s+(?:trigger|policy))\b[^;]*?\son\s+",
        r"(?P<command>create(?:\s+or\s+replace)?\s+rule)\b[^;]*?\sto\s+",
        r"(?P<command>(?:alter|drop)\s+rule)\b[^;]*?\son\s+",
        r"(?P<command>reindex\s+table)\s+(?:concurrently\s+)?",
        r"(?P<command>refresh\s+materialized\s+view)\s+(?:concurrently\s+)?",
        r"(?P<command>cluster)(?:\s*\([^)]*\)|\s+verbose)?\s+",
    )
]
_COMMENTS = re.compile(r"\s+|/\*.*?\*/|--[^\n]*(?:\n|$)", re.DOTALL)


def query(schema: str) -> str:
    """Statements of the connected database that may be such commands."""
    words = "|".join(_FIRST_WORDS)
    head = f"left(query, {TEXT_LENGTH})"  # texts may be long, and a search in all of them would take its time
    return rf"""select {head} as query, sum(calls)::float8 as calls
                from {schema}.pg_stat_statements(true)
                where dbid = (select oid from pg_database where datname = current_database())
                  and ({head} ~* '^\s*({words})\s' or ({head} ~ '^\s*(/\*|--)' and {head} ~* '[\s/]({words})\s'))
                group by 1 order by sum(calls) desc limit {LIMIT}"""


def command_of(text: str) -> tuple[str, str] | None:
    """The words of the command in capitals, and the name that it changes, with its schema where the text has one. None for others."""
    at = 0
    while found := _COMMENTS.match(text, at):
        at = found.end()
    for form in _FORMS:
        if found := form.match(text, at):
            command = " ".join(found["command"].upper().split())
            return command.replace("TRUNCATE TABLE", "TRUNCATE"), ".".join(_unquoted(found["name"]))
    return None


def _unquoted(name: str) -> list[str]:
    return [
        part[1:-1].replace('""', '"') if part.startswith('"') else part.lower() for part in re.findall(_IDENTIFIER, name)
    ]


def counted(texts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Calls by command and name, as server_stat names its objects."""
    calls: dict[str, float] = {}
    for text, number in texts:
        if command := command_of(text):
            key = "/".join(command)
            calls[key] = calls.get(key, 0.0) + number
    return calls
