"""A secret is hidden in whatever form a program prints it, also across the pieces of a stream."""

from __future__ import annotations

import base64
import html
import json
import random
import shlex
import string
import subprocess
import urllib.parse
from collections.abc import Callable

import pytest
from leadline.book.ansible.plugin.leadline_book import forms_of, without
from leadline.book.supervisor import Masked

ODD = "it's a \"S3cr/et+ $x`&<y!=Ü"
PLAIN = "hunter2-and-more"
LONG = "".join(random.Random(1).choices("ABCDEFabcdef0123456789+/", k=150))


def made_key(lines: int = 30) -> str:
    body = [base64.b64encode(random.Random(n).randbytes(48)).decode() for n in range(lines)]
    return "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *body, "c2hvcnQxMg==", "-----END OPENSSH PRIVATE KEY-----", ""])


def masked(text: str, *secrets: str) -> str:
    mask = Masked([form for secret in secrets for form in forms_of(secret)])
    return mask(text.encode("utf-8", "surrogateescape"), last=True).decode("utf-8", "surrogateescape")


def by_bash(words: str) -> Callable[[str], str]:
    def run(secret: str) -> str:
        return subprocess.run(["bash", "-c", words, "bash", secret], capture_output=True, check=True).stdout.decode().rstrip("\n")

    return run


UNCHANGED = string.ascii_letters + string.digits + "-._~"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "URL": lambda s: urllib.parse.quote(s, safe=""),
    "URL, small letters": lambda s: "".join(chr(b) if chr(b) in UNCHANGED else f"%{b:02x}" for b in s.encode()),
    "URL path": urllib.parse.quote,
    "form": urllib.parse.quote_plus,
    "encodeURIComponent": lambda s: urllib.parse.quote(s, safe="!'()*"),
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON, not ASCII": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda s: json.dumps(json.dumps(s))[3:-3],
    "JSON of PHP": lambda s: json.dumps(s).replace("/", "\\/")[1:-1],
    "JSON of Go": lambda s: json.dumps(s, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026")[1:-1],
    "Python": lambda s: repr(s)[1:-1],
    "HTML": html.escape,
    "SQL": lambda s: s.replace("'", "''"),
    "shell of Python": lambda s: shlex.quote(s).strip("'"),
    "printf %q": by_bash('LC_ALL=C.UTF-8; printf %q "$1"'),
    "declare": by_bash('LC_ALL=C.UTF-8; x=$1; x=$(declare -p x); x=${x#*=\\"}; printf %s "${x%\\"}"'),
    "${x@Q}": by_bash("LC_ALL=C.UTF-8; x=${1@Q}; x=${x#\\'}; printf %s \"${x%\\'}\""),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 of echo": by_bash('echo "$1" | base64'),
    "base64 of one line": by_bash('printf %s "$1" | base64 -w0'),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "base64 of PowerShell": lambda s: base64.b64encode(s.encode("utf-16-le")).decode(),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "hex with spaces": lambda s: s.encode().hex(" "),
    "hex with colons": lambda s: s.encode().hex(":").upper(),
    "Python bytes": lambda s: repr(s.encode())[2:-1],
    "Python escapes": lambda s: s.encode("unicode_escape").decode(),
    "words of set -x": by_bash("PS4=; (set -x; : $1) 2>&1 | sed 's/^: //'"),
    "base64 of JSON": lambda s: base64.b64encode(b"for" + json.dumps(s)[1:-1].encode()).decode()[4:],
    "C": lambda s: "".join(f"\\x{b:02x}" for b in s.encode()),
    "xxd -p": by_bash('printf %s "$1" | od -An -v -tx1 -w1000 | tr -d " \\n"'),
}  # fmt: skip


@pytest.mark.parametrize("secret", [ODD, PLAIN, LONG], ids=["odd", "plain", "long"])
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_in_each_form(form: str, secret: str) -> None:
    shown = FORMS[form](secret)
    left = [part for part in masked(f"<{shown}>", secret)[1:-1].split("***") if part.strip("=\n ")]
    assert len("".join(left).removesuffix("Cg==")) <= 2, left  # of base64, a sign or two that hold a part of a byte


@pytest.mark.parametrize("before", ["u", "me:", "user", "admin:", "Bearer ", '{"auth":"me:'])
@pytest.mark.parametrize("after", ["", "\n", ":more", '"}'])
def test_a_secret_within_what_is_in_base64_is_hidden(before: str, after: str) -> None:
    coded = base64.b64encode(f"{before}{PLAIN}{after}".encode()).decode()
    shown = masked(coded, PLAIN)
    at = len(before.encode()) * 8 // 6
    assert "***" in shown and shown.startswith(coded[:at])
    assert not any(coded[n : n + 4] in shown for n in range(at + 2, at + len(PLAIN) * 8 // 6 - 4))


def test_each_line_of_a_key_is_hidden_and_the_key_as_one_text() -> None:
    key = made_key()
    lines = [line for line in key.splitlines() if not line.startswith("-----")]
    for shown in (
        *lines, "  " + lines[3], key, key.replace("\n", "\r\n"), json.dumps(key), json.dumps(json.dumps(key)), "".join(lines),
        urllib.parse.quote(key), urllib.parse.quote(lines[1]), key.replace("/", "\\/"), f"+ KEY='{key}'", repr(key), "\\n".join(lines),
    ):  # fmt: skip
        hidden = masked(shown, key)
        assert "***" in hidden
        assert not any(line[n : n + 8] in hidden for line in lines for n in range(len(line) - 8)), shown[:80]
    for wrapped in ("base64", "base64 -w0", "base64 -w64"):
        shown = subprocess.run(wrapped.split(), input=key, capture_output=True, text=True, check=True).stdout
        assert len(masked(shown, key).replace("***", "").replace("\n", "").strip("=")) <= 8, wrapped


def test_secrets_of_a_file_of_credentials_are_hidden_one_by_one() -> None:
    held = {"type": "service_account", "project_id": "my-project", "private_key": made_key(3), "client": {"client_secret": "s3cret-of-it"}}
    shown = masked(f"{held['private_key']} and s3cret-of-it of my-project", json.dumps(held, indent=2))
    assert "s3cret-of-it" not in shown and "my-project" in shown
    assert not any(line in shown for line in made_key(3).splitlines()[1:-1])


def test_no_piece_of_a_stream_lets_a_part_through() -> None:
    secrets = ["abcd", "abcdefgh", "cdef-and-on", "zabcd", made_key(4)]
    text = f"xx abcdefgh abcd zabcdef-and-on\n{made_key(4)}abcdef zab {base64.b64encode(b'me:abcdefgh').decode()} end abc"
    forms = [form for secret in secrets for form in forms_of(secret)]
    whole = without(text, forms, "***")
    assert "cdef" not in whole and whole.endswith("end abc")
    for size in (1, 2, 3, 7, 64, 1000):
        mask = Masked(forms)
        out = b"".join(mask(text[at : at + size].encode()) for at in range(0, len(text), size)) + mask(b"", last=True)
        assert out.decode() == whole, size


def test_what_cannot_begin_a_secret_is_passed_on_at_once() -> None:
    mask = Masked(sorted(forms_of(PLAIN)))
    assert mask(b"Password: ") == b"Password: "
    assert mask(b"hunter2") == b""
    assert mask(b"!\n") == b"hunter2!\n"


def test_what_is_very_short_has_no_form() -> None:
    assert forms_of("abc") == set()
    assert min(map(len, forms_of("abcd"))) >= 4


def test_what_a_suffix_does_to_base64_and_lines_of_json_hide_neither_too_little_nor_too_much() -> None:
    assert "MTIzN" not in masked("MTIzNAo=", "1234")  # echo 1234 | base64
    text = "a line with { and } and fine words"
    assert masked(text, '{\n  "a": 1\n}\n') == text
