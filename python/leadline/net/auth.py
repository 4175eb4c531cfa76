"""Which authentication was used on the wire, and whether a password could be read there. Passwords themselves are never seen here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any

from leadline.figures import count
from leadline.output import to_table

READABLE, WEAK, OPEN, OTHER, SAFE, ENCRYPTED, REFUSED, NO_LOGIN, UNKNOWN = (
    "password readable", "hash can be guessed", "no password asked", "method not known", "password not readable", "encrypted", "refused",
    "no login", "not seen",
)  # fmt: skip
WORST_FIRST = (READABLE, WEAK, OPEN, OTHER, SAFE, ENCRYPTED, REFUSED, NO_LOGIN, UNKNOWN)
WHY = {
    READABLE: "anyone on the way could read it: change it, use scram-sha-256 or TLS",
    WEAK: "who saw it can try passwords quickly: use TLS or scram-sha-256",
    OPEN: "the server let the client in without one: trust, peer or a certificate",
    OTHER: "leadline does not know what this method sends",
    SAFE: "a guess takes thousands of hashes or more; queries and results can be read",
    ENCRYPTED: "nothing but sizes and times can be seen",
    REFUSED: "the server refused the client before it asked for a password",
    NO_LOGIN: "a cancel request, or the end came before the client sent a password",
    UNKNOWN: "the beginning is not in the packets, or the protocol is not known",
}

# What a client sends with each method, as the protocols name them.
SECRET_ITSELF = frozenset(
    ("cleartext", "plain", "login", "oauthbearer", "xoauth2")
    + ("mysql_clear_password", "dialog", "authentication_openid_connect_client")
)  # fmt: skip
# A challenge and a few quick hashes. What the server stores may be slow to guess (caching_sha2_password): what the client sends is not.
FAST_HASH = frozenset(
    ("md5", "crypt", "cram-md5", "digest-md5")
    + ("mysql_old_password", "mysql_native_password", "caching_sha2_password")
)  # fmt: skip
# Slow hashes, signatures, tickets, and passwords that are encrypted with a key of the server.
STRONG = frozenset(
    ("gss", "sspi", "kerberos v5", "scm credential", "external", "gssapi", "gs2-krb5")
    + ("sha256_password", "client_ed25519", "parsec", "auth_gssapi_client", "authentication_kerberos_client")
    + ("authentication_ldap_sasl_client", "authentication_windows_client", "authentication_webauthn_client")
    + ("authentication_fido_client", "authentication_oci_client")
)  # fmt: skip


def verdict(connection: Mapping[str, Any]) -> str:
    """Of a row of wire_connection."""
    auth, let_in = connection["auth"], connection["let_in"]
    if connection["password_readable"]:
        return READABLE
    if connection["tls"] == "accepted" or connection["gss"] == "accepted":
        return ENCRYPTED
    if auth == "not asked":
        return OPEN
    if auth == "unseen":
        return _without_method(connection)
    if auth in SECRET_ITSELF:
        return UNKNOWN if let_in else NO_LOGIN  # it is let in by a password that the capture does not have
    if auth == "cancel key":
        return NO_LOGIN
    if auth in FAST_HASH:
        return WEAK
    return SAFE if auth in STRONG or auth.startswith("scram-") else OTHER


def _without_method(connection: Mapping[str, Any]) -> str:
    if connection["let_in"] == 0 or connection["ended"] == "refused":
        return REFUSED
    said_nothing = connection["from_start"] and not connection["client_payload_bytes"]
    read_from_start = connection["from_start"] and connection["protocol"] in ("postgresql", "mysql")
    return NO_LOGIN if said_nothing or read_from_start else UNKNOWN


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
    """A table for each verdict, the worst first."""
    if not ways:
        yield "no connections"
        return
    let_in = {None: "", True: "yes", False: "no"}
    before = ""
    for each in WORST_FIRST:
        if not (same := [w for w in ways if w.verdict == each]):
            continue
        yield f"{before}{each}: {count(sum(w.connections for w in same), 'connection')}"
        yield f"  {WHY[each]}"
        names = ["client", "user", "database", "auth", "TLS", "let in", "times"]
        rows = [[w.client, w.user, w.database, w.auth, w.tls, let_in[w.let_in], w.connections] for w in same]
        yield to_table(names, rows, whole=("client", "auth"))
        before = "\n"


RULE_VERDICTS = {
    "password": READABLE, "md5": WEAK, "ldap": READABLE, "pam": READABLE, "radius": READABLE, "bsd": READABLE, "oauth": READABLE,
    "trust": OPEN,
}  # fmt: skip


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


def address_of(rule: Mapping[str, Any]) -> str:
    """Where a rule applies, as pg_hba.conf has it: 10.0.0.0/8. A mask that is no prefix stays as it is."""
    address, netmask = rule["address"], rule["netmask"]
    try:
        mask = ip_address(netmask)
    except ValueError:
        return f"{address} {netmask}".rstrip()
    bits = f"{int(mask):0{mask.max_prefixlen}b}"
    return f"{address} {netmask}" if "01" in bits else f"{address}/{bits.count('1')}"


def rule_lines(weak: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each verdict, the worst first."""
    if not weak:
        yield "no rule of pg_hba.conf allows a readable or weak password over the network"
        return
    yield "rules of pg_hba.conf that allow it"
    for each in WORST_FIRST:
        if same := [r for r in weak if r["verdict"] == each]:
            yield f"\n{each}: {count(len(same), 'rule')}"
            rows = [[r["line_number"], r["type"], r["database"], r["user_name"], address_of(r), r["auth_method"]] for r in same]
            yield to_table(["line", "type", "database", "user", "address", "method"], rows, whole=("address", "method"))
