"""Which authentication was used on the wire, and whether a password could be read there. Passwords themselves are never seen here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leadline.output import to_table

READABLE, WEAK, OPEN, SAFE, ENCRYPTED, UNKNOWN = (
    "password readable", "hash can be guessed", "no password asked", "password not readable", "encrypted", "not seen",
)  # fmt: skip
WORST_FIRST = (READABLE, WEAK, OPEN, SAFE, ENCRYPTED, UNKNOWN)
WHY = {
    READABLE: "anyone on the way could read the password: change it, and use scram-sha-256 or TLS",
    WEAK: "the password can be guessed offline from what was sent: use scram-sha-256 or TLS",
    OPEN: "the server let the client in without a password: trust, peer or a certificate",
    SAFE: "the password cannot be read or guessed cheaply; queries and results can be read",
    ENCRYPTED: "nothing but sizes and times can be seen",
    UNKNOWN: "the beginning of the connection is not in the packets, or its protocol is not known",
}


def verdict(connection: Mapping[str, Any]) -> str:
    """Of a row of wire_connection."""
    auth = connection["auth"]
    if connection["password_readable"]:
        return READABLE
    if connection["tls"] == "accepted" or connection["gss"] == "accepted":
        return ENCRYPTED
    if auth in ("md5", "sha1 scramble"):
        return WEAK
    if auth == "not asked":
        return OPEN
    return SAFE if auth in ("scram-sha-256", "scram-sha-256-plus", "sha256 scramble", "gss", "cleartext") else UNKNOWN


@dataclass(frozen=True)
class Login:
    """Connections that logged in the same way."""

    verdict: str
    client: str
    server: str
    user: str
    database: str
    auth: str
    tls: str
    gss: str
    let_in: bool | None
    sqlstate: str
    connections: int = 1


def logins(connections: Iterable[Mapping[str, Any]]) -> list[Login]:
    """Those of the same client, user and way together, the worst first."""
    found = Counter(
        Login(
            verdict(c), c["client_addr"], f"{c['server_addr']}:{c['server_port']}", c["user_name"], c["database_name"], c["auth"], c["tls"],
            c["gss"], None if c["let_in"] is None else bool(c["let_in"]), c["sqlstate"],
        )
        for c in connections
    )  # fmt: skip
    ways = [Login(**(asdict(login) | {"connections": number})) for login, number in found.items()]
    return sorted(ways, key=lambda w: (WORST_FIRST.index(w.verdict), -w.connections, w.client, w.user, w.database, w.auth))


def lines(ways: list[Login]) -> Iterator[str]:
    if not ways:
        yield "no connections"
        return
    names = ["verdict", "client", "user", "database", "auth", "TLS", "let in", "connections"]
    let_in = {None: "", True: "yes", False: "no"}
    yield to_table(
        names, [[w.verdict, w.client, w.user, w.database, w.auth, w.tls, let_in[w.let_in], w.connections] for w in ways]
    )
    for each in WORST_FIRST:
        number = sum(w.connections for w in ways if w.verdict == each)
        if number:
            yield ""
            yield f"{each}: {number} connection{'' if number == 1 else 's'}"
            yield f"  {WHY[each]}"


RULE_VERDICTS = {"password": READABLE, "md5": WEAK, "ldap": READABLE, "pam": READABLE, "radius": READABLE, "bsd": READABLE, "trust": OPEN}


def rules(found: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rules of pg_hba_file_rules by which a password may go over the wire in a way that can be read or guessed, or none is asked."""
    names = ("line_number", "type", "database", "user_name", "address", "netmask", "auth_method", "error")
    weak = []
    for row in found:
        rule = dict(zip(names, row))
        said = RULE_VERDICTS.get(rule["auth_method"])
        if rule["error"] or said is None or rule["type"] == "local":
            continue
        if rule["type"] in ("hostssl", "hostgssenc") and said != OPEN:
            continue
        weak.append({"verdict": said, **rule})
    return weak


def rule_lines(weak: list[dict[str, Any]]) -> Iterator[str]:
    if not weak:
        yield "no rule of pg_hba.conf allows a readable or weak password over the network"
        return
    yield "rules of pg_hba.conf that allow it"
    yield to_table(
        ["line", "type", "database", "user", "address", "method", "verdict"],
        [[r["line_number"], r["type"], r["database"], r["user_name"], r["address"], r["auth_method"], r["verdict"]] for r in weak],
    )
