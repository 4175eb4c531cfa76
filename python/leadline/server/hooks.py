"""Webhooks: others start a template by a signed request (in), and are told how runs ended (out)."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import re
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from leadline.book.place import Place
from leadline.book.spool import new_uid
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit, survey, vault
from leadline.server.accounts import NAME, PROJECT
from leadline.server.launches import START, ask_for
from leadline.server.operation import Call, Input, Operation, Refused, finder
from leadline.server.rights import Caller
from leadline.server.templates import find_template

WINDOW_S = 300
EVENTS = ("ok", "failed", "cancelled", "lost")
SEND_S = 10.0
NEW_US = 24 * 3600 * 1_000_000  # runs that ended longer ago are not told of any more
AT_ONCE = 20


@finder("hook")
def find_hook(call: Call, text: str) -> dict[str, Any]:
    row = call.one("select * from hook where uid = ?", text)
    if row is None or call.caller.role(row["project"]) is None:
        raise LeadlineError("not_found", f"there is no hook {text[:40]}", hint="leadline hook list")
    return {name: value for name, value in row.items() if name != "template"}


# --- operations


def _list(call: Call, _inputs: dict[str, Any]) -> Any:
    names = ("uid", "project", "direction", "name", "template", "url", "events", "secret_name", "created")
    rows = [row for row in call.rows("select * from hook order by project, name") if call.caller.may("editor", row["project"])]
    for row in rows:
        last = call.one("select outcome from hook_sent where hook = ? order by sent desc limit 1", row["uid"])
        row["last"] = last["outcome"] if last else ""
    return {
        "hooks": [{name: row[name] for name in names} | {"last": row["last"], "inputs": json.loads(row["inputs_json"])} for row in rows]
    }


def _add_in(call: Call, inputs: dict[str, Any]) -> Any:
    template = find_template(call, inputs["template"])
    call.need("runner", template["project"], template["uid"])
    if template["project"] != inputs["project"]:
        raise LeadlineError("usage", "the template is of another project", where="template")
    for path in (inputs["inputs"] or {}).values():
        if not isinstance(path, str) or not re.fullmatch(r"[\w-]+(\.[\w-]+){0,19}", path):
            raise LeadlineError("usage", "inputs are not names with places in the body", hint='{"branch": "push.ref"}', where="inputs")
    return _add(call, inputs, "in", template["uid"], None, None)


def _add_out(call: Call, inputs: dict[str, Any]) -> Any:
    address_of(inputs["url"], resolve=False)
    events = inputs["events"].split(",")
    if set(events) - set(EVENTS):
        raise LeadlineError("usage", f"events are not of {', '.join(EVENTS)}", where="events")
    return _add(call, inputs | {"inputs": {}}, "out", None, inputs["url"], inputs["events"])


def _add(call: Call, inputs: dict[str, Any], direction: str, template: str | None, url: str | None, events: str | None) -> Any:
    project, name = inputs["project"], inputs["name"]
    if call.one("select 1 from hook where project = ? and name = ?", project, name):
        raise LeadlineError("usage", f"there is a hook {name} already", where="name")
    if call.one("select 1 from secret where project = ? and name = ?", project, inputs["secret"]) is None:
        raise LeadlineError(
            "usage",
            f"there is no secret {inputs['secret']} in {project}",
            hint=f"leadline secret set {project} {inputs['secret']}",
            where="secret",
        )
    uid = new_uid()
    row = (uid, project, direction, name, template, url, events, inputs["secret"], json.dumps(inputs["inputs"] or {}), call.now)
    call.execute("insert into hook values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)
    call.object, call.detail = uid, {"direction": direction, "template": template, "url": url, "events": events}
    return {"hook": uid, "address": f"/hooks/{uid}"} if direction == "in" else {"hook": uid}


def _delete(call: Call, _inputs: dict[str, Any]) -> Any:
    for table in ("hook_seen", "hook_sent"):
        call.execute(f"delete from {table} where hook = ?", call.found["uid"])
    call.execute("delete from hook where uid = ?", call.found["uid"])
    call.detail = {"name": call.found["name"]}
    return {"deleted": call.found["uid"]}


# --- in


def receive(place: Place, store: Store, uid: str, headers: Mapping[str, str], body: bytes, address: str) -> dict[str, Any]:
    """Starts what a signed request asks for. Raises Refused; every wrong one in the same words."""
    wrong = Refused(403, "rights", "the signature is not valid, too old, or was used before")
    rows = store.rows("select * from hook where uid = ? and direction = 'in'", (uid,))
    caller = Caller("hook", False, address=address)
    key = _key(place, store, rows[0]) if rows else b"nobody"
    stamp, given = headers.get("x-leadline-timestamp", ""), headers.get("x-leadline-signature", "")
    expected = signature(key, stamp, body)
    fits = hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))
    if not rows or not fits or not re.fullmatch(r"\d{1,12}", stamp) or abs(time.time() - int(stamp)) > WINDOW_S:
        raise wrong
    now = time.time_ns() // 1000
    with store.writing() as db:
        db.execute("delete from hook_seen where seen < ?", (now - 2 * WINDOW_S * 1_000_000,))
        if db.execute("insert into hook_seen values (?, ?, ?) on conflict (hook, signature) do nothing", (uid, given, now)).rowcount != 1:
            raise wrong
        template = store.rows("select * from template where uid = ?", (rows[0]["template"],))[0]
        inputs = _extracted(json.loads(rows[0]["inputs_json"]), body)
        run = ask_for(Call(START, caller, store, place), template, inputs, f"hook {rows[0]['name']}")
        audit.append(store, caller, "template.start", template["uid"], {"run": run, "hook": uid}, "done")
    return {"run": run}


def signature(key: bytes, stamp: str, body: bytes) -> str:
    return "sha256=" + hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _key(place: Place, store: Store, hook: Mapping[str, Any]) -> bytes:
    rows = store.rows("select * from secret where project = ? and name = ?", (hook["project"], hook["secret_name"]))
    if not rows:
        raise Refused(403, "rights", "the signature is not valid, too old, or was used before")
    return vault.value_of(place, rows[0]).encode()


def _extracted(wanted: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Values of the body by their places; those that are not there are left to the survey."""
    if not wanted:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise LeadlineError("usage", "the body is not JSON") from None
    out = {}
    for name, path in wanted.items():
        found = value
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, str | int):
            out[name] = survey.as_text(found)
    return out


# --- out


def address_of(url: str, *, resolve: bool = True) -> tuple[str, int, str, str, str]:
    """Scheme, port, host, path and the one address to connect to. Raises LeadlineError for what is not to be reached from here."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not port
        or parts.username is not None
        or " " in url
        or not url.isascii()
        or not url.isprintable()
    ):
        raise LeadlineError("usage", "the address is not http://HOST/PATH or https://HOST/PATH", where="url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not resolve:
        with_literal = _as_address(parts.hostname)
        if with_literal is not None:
            _allow(with_literal)
        return parts.scheme, port, parts.hostname, path, ""
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise LeadlineError("connection", f"{parts.hostname} has no address") from None
    addresses = [str(one[4][0]) for one in found]
    for one in addresses:  # all of them: which one answers is not ours to choose
        _allow(ipaddress.ip_address(one.partition("%")[0]))
    return parts.scheme, port, parts.hostname, path, addresses[0]


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _allow(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """Addresses of this host, and those that mean a service of the host's own provider, are refused; those of the own network are not."""
    plain = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if (
        plain.is_loopback
        or plain.is_link_local
        or plain.is_multicast
        or plain.is_unspecified
        or plain.is_reserved
        or str(plain) == "169.254.169.254"
    ):
        raise LeadlineError(
            "rights", f"{plain} is not an address to send to", detail="It is of this host, or of no other host.", where="url"
        )


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status of the answer. The name is resolved once and that address is used; redirects are not followed."""
    scheme, port, host, path, address = address_of(url)
    connection = http.client.HTTPConnection(host, port, timeout=SEND_S)
    sock = socket.create_connection((address, port), timeout=SEND_S)
    connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host) if scheme == "https" else sock
    try:
        connection.request("POST", path, body, {"User-Agent": "leadline", "Content-Type": "application/json", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


TO_TELL = """
    select h.*, r.uid as run_uid, r.name as run_name, r.status as run_status, r.rc, r.started, r.ended, r.summary, r.host
    from hook h join run r on r.project = h.project and r.status in ('ok', 'failed', 'cancelled', 'lost')
      and r.started > ? and r.started > h.created
    where h.direction = 'out' and r.parent is null
      and not exists (select 1 from hook_sent s where s.hook = h.uid and s.run = r.uid and s.event = r.status)
    order by r.started limit ?"""


def tell(place: Place, store: Store) -> None:
    """Tells of runs that ended, each once; what cannot be reached is noted, not tried again."""
    if not store.rows("select 1 from hook where direction = 'out' limit 1"):
        return
    now = time.time_ns() // 1000
    for row in store.rows(TO_TELL, (now - NEW_US, AT_ONCE)):
        with store.writing() as db:
            sql = "insert into hook_sent values (?, ?, ?, ?, ?) on conflict (hook, run, event) do nothing"
            claimed = db.execute(sql, (row["uid"], row["run_uid"], row["run_status"], now, "")).rowcount
        if claimed == 1:
            outcome = _tell(place, store, row) if row["run_status"] in row["events"].split(",") else "not asked for"
            with store.writing() as db:
                values = (outcome[:200], row["uid"], row["run_uid"], row["run_status"])
                db.execute("update hook_sent set outcome = ? where hook = ? and run = ? and event = ?", values)


def _tell(place: Place, store: Store, row: Mapping[str, Any]) -> str:
    names = {
        "run": "run_uid",
        "name": "run_name",
        "status": "run_status",
        "rc": "rc",
        "started": "started",
        "ended": "ended",
        "summary": "summary",
        "host": "host",
    }
    body = json.dumps({name: row[column] for name, column in names.items()} | {"project": row["project"]}, ensure_ascii=False).encode()
    try:
        stamp = str(int(time.time()))
        status = post(
            row["url"], body, {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": signature(_key(place, store, row), stamp, body)}
        )
        return f"answered {status}"
    except LeadlineError as e:
        return f"not sent: {e.message}"
    except (OSError, http.client.HTTPException) as e:
        return f"not sent: {e}"


HOOK_NAME = Input("name", "name of the hook", pattern=NAME)
KEY = Input("secret", "secret of the project with which requests are signed", pattern=NAME)
OPERATIONS = (
    Operation(
        "hook.list", "GET", "/hooks", "anyone", "", "List the hooks of your projects.", _list, rows="hooks",
        columns=("uid", "project", "direction", "name", "template", "url", "events", "last"),
    ),
    Operation(
        "hook.start", "PUT", "/projects/{project}/hooks/start/{name}", "editor", "project", "Let signed requests start it.", _add_in,
        (
            PROJECT, HOOK_NAME, Input("template", "id of the template, or project/name"), KEY,
            Input("inputs", 'values of the survey by their place in the JSON body: {"branch": "push.ref"}', "json", False),
        ), follows="curl -d BODY http://HOST{address}",
    ),
    Operation(
        "hook.tell", "PUT", "/projects/{project}/hooks/tell/{name}", "editor", "project", "Tell an address how runs ended.", _add_out,
        (
            PROJECT, HOOK_NAME, Input("url", "http or https; not an address of this host"), KEY,
            Input("events", "how they ended: some of ok,failed,cancelled,lost", required=False, default="failed,lost"),
        ),
    ),
    Operation("hook.delete", "DELETE", "/hooks/{hook}", "editor", "hook", "Remove a hook.", _delete, (Input("hook", "id of the hook"),)),
)  # fmt: skip
