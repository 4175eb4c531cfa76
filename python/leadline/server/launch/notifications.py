"""What is sent to others when a run has ended: signed requests and mails. Each hook has a thread of its own for it, so that a receiver
that hangs keeps nothing waiting but what is sent to itself."""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.accounts import vault
from leadline.server.launch.signers import signature
from leadline.server.operation import Refused

EVENTS = ("ok", "failed", "cancelled", "lost")
SEND_S = 10.0
NEW_US = 24 * 3600 * 1_000_000  # runs that ended longer ago are not told of any more
AT_ONCE = 20
NAT64 = ipaddress.ip_network("64:ff9b::/96")
THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")  # which Linux takes for this host
OF_PROVIDERS = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16")  # credentials of the host are to be had there
NOT_ASKED_FOR = "not asked for"  # the outcome for a run that ended as the hook does not want to know
TOLD = {
    "run": "run_uid",
    "name": "run_name",
    "status": "run_status",
    "rc": "rc",
    "started": "started",
    "ended": "ended",
    "summary": "summary",
    "host": "host",
    "project": "project",
}
Row = dict[str, Any]


def key_of(place: Place, store: Store, hook: Mapping[str, Any]) -> bytes:
    key = vault.find(place, store, hook["project"], hook["secret_name"])
    if key is None:
        raise Refused(403, "rights", "the signature is not valid, too old, or was used before")
    return key.encode()


# --- where to


def address_of(url: str, *, resolve: bool = True) -> tuple[str, int, str, str, str]:
    """Scheme, port, host, path and the one address to connect to. Raises LeadlineError for what is not to be reached from here."""
    wrong = LeadlineError("usage", "the address is not http://HOST/PATH or https://HOST/PATH", where="url")
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise wrong from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username is not None
        or " " in url
        or not url.isascii()
        or not url.isprintable()
    ):
        raise wrong
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
    if isinstance(plain, ipaddress.IPv6Address) and plain in NAT64:
        plain = ipaddress.IPv4Address(plain.packed[-4:])
    if (
        plain.is_loopback
        or plain.is_link_local
        or plain.is_multicast
        or plain.is_unspecified
        or plain.is_reserved
        or str(plain) in OF_PROVIDERS
        or plain in THIS_NETWORK
        or _is_own(plain)
    ):
        raise LeadlineError(
            "rights", f"{plain} is not an address to send to", detail="It is of this host, or of no other host.", where="url"
        )


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is an address of an interface of this host: what goes there comes from there. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:  # no way there
        return False


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


# --- what of

_UNTOLD = """r.project = h.project and r.status in ('ok', 'failed', 'cancelled', 'lost') and r.started > ? and r.started > h.created
    and r.parent is null and not exists (select 1 from hook_sent s where s.hook = h.uid and s.run = r.uid and s.event = r.status)"""
_ENDED_OF = f"""
    select h.*, r.uid as run_uid, r.name as run_name, r.status as run_status, r.rc, r.started, r.ended, r.summary, r.host,
      (select l.cause from launch l where l.uid = r.uid) as run_cause
    from hook h join run r on {_UNTOLD} where h.uid = ? order by r.started limit ?"""
_WAITING = f"select h.uid from hook h where h.direction = ? and exists (select 1 from run r where {_UNTOLD})"


def waiting(store: Store, *directions: str) -> Iterator[str]:
    """Hooks for which runs have ended. Where there is no hook, no run is looked at."""
    for direction in directions:
        for row in store.rows(_WAITING, (direction, time.time_ns() // 1000 - NEW_US)):
            yield str(row["uid"])


def each_ended(store: Store, hook: str) -> Iterator[Row]:
    """Runs that ended and of which the hook wants to know, with the hook: each once, whoever else looks."""
    now = time.time_ns() // 1000
    for row in store.rows(_ENDED_OF, (now - NEW_US, hook, AT_ONCE)):
        with store.writing() as db:
            sql = "insert into hook_sent values (?, ?, ?, ?, ?) on conflict (hook, run, event) do nothing"
            claimed = db.execute(sql, (row["uid"], row["run_uid"], row["run_status"], now, "")).rowcount
        if claimed != 1:
            continue
        if row["run_status"] in row["events"].split(","):
            yield row
        else:
            note(store, row, NOT_ASKED_FOR)


def note(store: Store, row: Row, outcome: str) -> None:
    with store.writing() as db:
        values = (outcome[:200], row["uid"], row["run_uid"], row["run_status"])
        db.execute("update hook_sent set outcome = ? where hook = ? and run = ? and event = ?", values)


class Notifications:
    """A duty of the housekeeping. What cannot be sent is noted, not tried again. failed: is told of what goes wrong in a thread."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed, self._busy, self._lock = failed, set[str](), threading.Lock()

    def __call__(self, place: Place, store: Store) -> None:
        for hook in waiting(store, *WAYS):
            with self._lock:
                if hook in self._busy:
                    continue
                self._busy.add(hook)
            threading.Thread(target=self._work, args=(place, hook), name="hook", daemon=True).start()

    def _work(self, place: Place, hook: str) -> None:
        store = None
        try:
            store = Store(place)
            for row in each_ended(store, hook):
                note(store, row, WAYS[row["direction"]](place, store, row))
        except Exception as e:
            self._failed(e)
        finally:
            if store is not None:
                store.close()
            with self._lock:
                self._busy.discard(hook)


# --- how

def _tell(place: Place, store: Store, row: Mapping[str, Any]) -> str:
    body = json.dumps({name: row[column] for name, column in TOLD.items()}, ensure_ascii=False).encode()
    try:
        stamp = str(int(time.time()))
        status = post(
            row["url"], body, {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": signature(key_of(place, store, row), stamp, body)}
        )
        return f"answered {status}"
    except LeadlineError as e:
        return f"not sent: {e.message}"
    except (OSError, http.client.HTTPException) as e:
        return f"not sent: {e}"


def _mail(place: Place, store: Store, row: Mapping[str, Any]) -> str:
    """By SMTP, under TLS wherever the server has it; a password is never sent without."""
    import smtplib
    from email.message import EmailMessage
    from email.utils import formatdate, make_msgid

    about = json.loads(row["inputs_json"])
    mail = EmailMessage()
    mail["From"], mail["To"] = about["from"], about["to"]
    mail["Subject"] = " ".join(f"leadline: {row['run_name']} {row['run_status']}".split())[:200]
    mail["Date"], mail["Message-ID"] = formatdate(localtime=True), make_msgid(domain=about["from"].rpartition("@")[2].strip(">") or None)
    told = {name: row[column] for name, column in TOLD.items() if row[column] not in (None, "")}
    lines = [f"{name}: {_as_time(value) if name in ('started', 'ended') else value}" for name, value in told.items()]
    mail.set_content("\n".join([*lines, f"next: leadline book show {row['run_uid']}", ""]))
    try:
        with smtplib.SMTP(about["host"], about["port"], timeout=SEND_S) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            elif about["login"]:
                return "not sent: the server has no TLS, and a password is not sent without"
            if about["login"]:
                server.login(about["login"], key_of(place, store, row).decode())
            server.send_message(mail)
        return f"sent to {about['to']}"
    except LeadlineError as e:
        return f"not sent: {e.message}"
    except (OSError, ValueError, smtplib.SMTPException) as e:
        return f"not sent: {e}"


def _as_time(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


WAYS = {"out": _tell, "mail": _mail}
