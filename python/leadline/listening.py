"""Sockets that leadline listens on: where the user said, and whether others than this host can reach them."""

from __future__ import annotations

import ipaddress
import socket

from leadline.errors import LeadlineError

LOOPBACK = "127.0.0.1"


def host_and_port(text: str, option: str, example: str) -> tuple[str, int]:
    """Of HOST:PORT or :PORT; without a host, loopback. option: which one said so. Raises LeadlineError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise LeadlineError("usage", f"{text!r} is not HOST:PORT", hint=f"{option} {example}", where=option)
    return host.strip("[]") or LOOPBACK, int(port)


def listening(host: str, port: int, hint: str) -> tuple[socket.socket, bool]:
    """The socket, and whether it is on loopback alone. hint: what the user can do where it cannot be had. Raises LeadlineError."""
    out = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        loopback = ipaddress.ip_address(address[0]).is_loopback
        out = socket.socket(family, kind, protocol)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        out.bind(address)
        return out, loopback
    except (OSError, UnicodeError) as e:
        if out is not None:
            out.close()
        why = getattr(e, "strerror", None) or e
        raise LeadlineError("connection", f"cannot listen: {why}", hint=hint, where=f"{host}:{port}") from None


def is_local(host: str) -> bool:
    """Whether a name is that of this host alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """Where a listening socket is reached, with / at the end."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
