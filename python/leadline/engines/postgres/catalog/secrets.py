"""Which settings hold secrets, and how they are masked before anything is stored."""

from __future__ import annotations

import re

MASK = "********"

# Whole values that may hold a secret: commands can carry a password or a token in their arguments.
SECRET_SETTINGS = frozenset({"ssl_passphrase_command"})
_SECRET_NAME = re.compile(
    r"(password|passphrase|secret|token|api_?key|access_?key|private_?key)(?!_encryption|_command_supports_reload)", re.I
)
_NOT_SECRET = frozenset({"password_encryption", "ssl_passphrase_command_supports_reload", "ssl_key_file", "krb_server_keyfile"})
_IN_VALUE = re.compile(
    r"""((?:password|passwd|passphrase|secret|token|sslpassword|PGPASSWORD|PASSWORD)\s*[=:]\s*)('(?:[^'\\]|\\.|'')*'|"[^"]*"|[^\s'"&;]+)""",
    re.I,
)
_IN_URI = re.compile(r"(\w+://[^\s:/@]*:)[^\s@]*(@)")


def mask_setting(name: str, value: str) -> str:
    """The value of a setting with every secret in it replaced: whole for secret settings, in parts for connection strings."""
    if not value or name in _NOT_SECRET:
        return value
    if name in SECRET_SETTINGS or (_SECRET_NAME.search(name) and value not in ("on", "off")):
        return MASK
    return mask_text(value)


def mask_text(text: str) -> str:
    """Passwords in key=value pairs and URIs replaced."""
    return _IN_URI.sub(rf"\g<1>{MASK}\g<2>", _IN_VALUE.sub(rf"\g<1>{MASK}", text))
