"""Names that are not found and connections that fail."""

from __future__ import annotations

from leadline.why.cause import Cause
from leadline.why.seen import Failure, Process, Seen

TEXTS = {
    "ECONNREFUSED": "nothing listens there",
    "ENETUNREACH": "there is no route to it",
    "EHOSTUNREACH": "there is no route to it",
    "ETIMEDOUT": "nothing answered",
    "ENOENT": "the socket does not exist",
}
# Sockets of the cache of names, of systemd and of the system's log: programs go on without them.
DONE_WITHOUT = ("/var/run/nscd", "/run/systemd", "/dev/log")
# Answers of name servers, RFC 1035 and 2136.
CODES = {1: "the question was malformed", 2: "the name server failed", 3: "no such name", 5: "the name server refused to answer"}


def not_connected(failure: Failure) -> Cause | None:
    about = failure.address
    if failure.call != "connect" or failure.error not in TEXTS or not about or not failure.matters or not failure.process.failed:
        return None
    if about.endswith(":53") or about.startswith(DONE_WITHOUT):
        return None
    statement = f"{failure.process.name} cannot connect to {about}: {TEXTS[failure.error]}."
    fix = f"start the server, or correct the address; ss -ltnx lists who listens ({about})"
    return Cause(
        "no_connection",
        68,
        statement,
        [failure.as_call()],
        fix,
        failure.process,
        failure=failure,
        words="connect|unreachable|timed out|network",
    )


def address_in_use(failure: Failure) -> Cause | None:
    if failure.call != "bind" or failure.error not in ("EADDRINUSE", "EADDRNOTAVAIL", "EACCES") or not failure.matters:
        return None
    holder = failure.facts.get("holder")
    who = f"{holder['name']} (pid {holder['pid']})" if holder else "the process"
    why = {"EADDRINUSE": f"{who} listens there" if holder else "another process uses it", "EADDRNOTAVAIL": "this host has no such address"}
    text = why.get(failure.error, "ports below 1024 need root or CAP_NET_BIND_SERVICE")
    if failure.error == "EACCES" and ":" not in failure.address:
        text = "its directory may not be written"
    statement = f"{failure.process.name} cannot listen on {failure.address}: {text}."
    fix = (
        f"stop {who} or take another port; ss -ltnp lists who listens" if failure.error == "EADDRINUSE" else "take another address or port"
    )
    return Cause(
        "address_in_use", 78, statement, [failure.as_call()], fix, failure.process, failure=failure, words="listen|bind|address|port|socket"
    )


def name_not_found(seen: Seen, process: Process) -> Cause | None:
    """A process that failed after no name server gave it a good answer."""
    asked = process.lookups
    if not process.failed or not asked or any(lookup["code"] == 0 for lookup in asked):
        return None
    last = asked[-1]
    name = next((lookup["name"] for lookup in reversed(asked) if lookup["name"]), "")
    servers = sorted({lookup["server"] for lookup in asked})
    code = next((lookup["code"] for lookup in reversed(asked) if lookup["code"] is not None), None)
    refused = [f for f in seen.failures if f.process is process and (f.address in servers)]
    said = CODES.get(code, f"answer code {code}") if code is not None else "no answer"
    if code is None and refused:
        said = f"no answer ({refused[-1].error})"
    evidence = [f"asked {', '.join(servers)}: {said}, by {process.name} (pid {process.pid})", *(f.as_call() for f in refused[:2])]
    statement = f"The name {name or 'of a host'} was not found: {said}."
    fix = "check the name; getent hosts NAME; the name servers stand in /etc/resolv.conf"
    return Cause("name_resolution", 75, statement, evidence, fix, process, failure=refused[-1] if refused and last else None)
