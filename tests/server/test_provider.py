"""Login by an identity provider: a fake one, on loopback, that signs what it says and may say anything."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from leadline.server.accounts import oidc
from serving import Answer, Client, Served, book

SECRET = "what the provider knows us by: %&="
SUBJECT = "248289761001"


def text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def of_number(number: int, size: int | None = None) -> str:
    return text(number.to_bytes(size or (number.bit_length() + 7) // 8, "big"))


class Provider(http.server.BaseHTTPRequestHandler):
    """change: what is done to header and claims before they are signed; sign: how; alter: what is done to the token."""

    rsa_key = rsa.generate_private_key(65537, 2048)
    ec_key = ec.generate_private_key(ec.SECP256R1())
    other_key = rsa.generate_private_key(65537, 2048)
    issuer = ""
    change: Callable[[dict[str, Any], dict[str, Any]], None]
    sign: Callable[[bytes], bytes]
    alter: Callable[[str], str] = staticmethod(lambda token: token)
    begun: dict[str, dict[str, str]]  # by code

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            self._json({"issuer": self.issuer} | {name: f"{self.issuer}/{path}" for name, path in names.items()})
        elif parts.path == "/keys":
            numbers, point = self.rsa_key.public_key().public_numbers(), self.ec_key.public_key().public_numbers()
            self._json({"keys": [
                {"kty": "made up", "kid": "r"}, {"kty": "RSA", "kid": "r", "n": "!", "e": 5}, {"kty": "RSA", "kid": "r"}, {"kid": "e"},
                {"kty": "oct", "kid": "s", "k": text(b"all may read this")},
                {"kty": "RSA", "kid": "r", "n": of_number(numbers.n), "e": of_number(numbers.e)},
                {"kty": "EC", "crv": "P-256", "kid": "e", "x": of_number(point.x, 32), "y": of_number(point.y, 32)},
            ]})  # fmt: skip
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        given = {name: values[0] for name, values in parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()).items()}
        begun = self.begun.pop(given.get("code", ""), None)
        basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        challenge = text(hashlib.sha256(given.get("code_verifier", "").encode()).digest())
        if begun is None or basic != "leadline:what+the+provider+knows+us+by%3A+%25%26%3D" or challenge != begun["code_challenge"]:
            self.send_error(400)
            return
        now = int(time.time())
        header: dict[str, Any] = {"alg": "RS256", "kid": "r"}
        claims = {"iss": self.issuer, "aud": "leadline", "sub": SUBJECT, "iat": now, "exp": now + 300, "nonce": begun["nonce"]}
        type(self).change(header, claims)
        signed = f"{text(json.dumps(header).encode())}.{text(json.dumps(claims).encode())}"
        token = type(self).alter(f"{signed}.{text(type(self).sign(signed.encode()))}")
        self._json({"id_token": token, "token_type": "Bearer"})

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def by_rsa(what: bytes) -> bytes:
    return Provider.rsa_key.sign(what, padding.PKCS1v15(), SHA256())


def by_another(what: bytes) -> bytes:
    return Provider.other_key.sign(what, padding.PKCS1v15(), SHA256())


def by_ec(what: bytes) -> bytes:
    return b"".join(number.to_bytes(32, "big") for number in decode_dss_signature(Provider.ec_key.sign(what, ec.ECDSA(SHA256()))))


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Provider.issuer, Provider.begun = f"http://127.0.0.1:{server.server_port}", {}
    yield Provider.issuer
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("provider")
    (file := folder / "provider.json").write_text(json.dumps({"issuer": issuer, "client_id": "leadline", "client_secret": SECRET}))
    file.chmod(0o600)
    with book(folder) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.do("user", "link", "bob", "--issuer", issuer, "--subject", SUBJECT)
        served.start("--provider", str(file))
        yield served


@pytest.fixture(autouse=True)
def honest() -> None:
    Provider.change, Provider.sign = staticmethod(lambda _header, _claims: None), staticmethod(by_rsa)
    Provider.alter = staticmethod(lambda token: token)


def begin(client: Client, on: str = "/account") -> dict[str, str]:
    """What the browser takes to the provider, who logs its user in; with the code that it sends back."""
    answer = client.get(f"/login/provider?next={on}")
    assert answer.status == 303, answer.text
    parts = urlsplit(answer.header("location"))
    asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (parts.path, asked["client_id"], asked["response_type"]) == ("/authorize", "leadline", "code")
    assert (asked["scope"], asked["redirect_uri"]) == ("openid", f"{client.url}/login/provider/back")
    code = f"code-{len(asked['state'])}-{time.monotonic_ns()}"
    Provider.begun[code] = asked
    return asked | {"code": code}


def back(client: Client, state: str, code: str) -> Answer:
    return client.get(f"/login/provider/back?state={state}&code={code}")


def test_one_logs_in_by_the_provider(served: Served) -> None:
    assert "Log in by 127.0.0.1" in served.client().get("/login").text
    for change, sign in ((lambda _h, _c: None, by_rsa), (lambda h, _c: h.update(alg="ES256", kid="e"), by_ec)):
        Provider.change, Provider.sign = staticmethod(change), staticmethod(sign)
        client = served.client()
        asked = begin(client)
        answer = back(client, asked["state"], asked["code"])
        assert (answer.status, answer.header("location")) == (303, "/account"), answer.text
        assert client.get("/account.json").json == {"user": "bob", "admin": False, "codes": False, "roles": {}}


def test_a_login_belongs_to_the_browser_in_which_it_began_and_is_used_once(served: Served) -> None:
    """Else somebody could be logged in as somebody else without knowing."""
    client, other = served.client(), served.client()
    asked = begin(client)
    assert back(other, asked["state"], asked["code"]).status == 403
    begin(other)
    assert back(other, asked["state"], asked["code"]).status == 403
    assert back(client, "wrong", asked["code"]).status == 403
    kept = begin(client)
    cookies = dict(client.cookies)
    assert back(client, kept["state"], kept["code"]).status == 303
    again = served.client(cookies={"leadline_attempt": cookies["leadline_attempt"]})
    assert back(again, kept["state"], kept["code"]).status != 303  # the provider gives nothing for a code that was used
    assert "leadline_session" not in again.cookies


WRONG: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "another issuer": lambda _h, c: c.update(iss="https://evil.example"),
    "another audience": lambda _h, c: c.update(aud="another"),
    "many audiences": lambda _h, c: c.update(aud=["leadline", "another"]),
    "no audience": lambda _h, c: c.update(aud=None),
    "expired": lambda _h, c: c.update(exp=time.time() - 120),
    "no expiry": lambda _h, c: c.update(exp=None),
    "of the future": lambda _h, c: c.update(iat=time.time() + 3600),
    "another login": lambda _h, c: c.update(nonce="x"),
    "no nonce": lambda _h, c: c.pop("nonce"),
    "no subject": lambda _h, c: c.update(sub=""),
    "a number": lambda _h, c: c.update(sub=5),
    "an unknown key": lambda h, _c: h.update(kid="z"),
    "the key of another kind": lambda h, _c: h.update(kid="e"),
    "no signature": lambda h, _c: h.update(alg="none"),
    "a shared secret": lambda h, _c: h.update(alg="HS256"),
    "no key named": lambda h, _c: h.pop("kid"),
    "a key that has no name": lambda h, _c: h.update(kid=5),
    "an extension": lambda h, _c: h.update({"crit": ["policy"], "policy": "two factors"}),
    "an extension that is not there": lambda h, _c: h.update(crit=["policy"]),
    "an extension that is none": lambda h, _c: h.update(crit=["alg"]),
    "no extensions": lambda h, _c: h.update(crit=[]),
    "extensions that are a number": lambda h, _c: h.update(crit=5),
    "a body as it is": lambda h, _c: h.update({"crit": ["b64"], "b64": True}),
    "a body as it is, unannounced": lambda h, _c: h.update(b64=False),
    "an audience in a list of no texts": lambda _h, c: c.update(aud=["leadline", 5], azp="leadline"),
    "an empty audience": lambda _h, c: c.update(aud=[]),
    "no longer than the clocks differ": lambda _h, c: c.update(exp=time.time() - 62),
    "expiry that never comes": lambda _h, c: c.update(exp=float("nan")),
    "expiry that is true": lambda _h, c: c.update(exp=True),
    "not yet valid": lambda _h, c: c.update(nbf=time.time() + 120),
    "many logins": lambda _h, c: c.update(nonce=[c["nonce"]]),
    "a long subject": lambda _h, c: c.update(sub="x" * 256),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=list(WRONG))
def test_what_the_provider_did_not_say_of_this_login_is_refused(
    served: Served, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    Provider.change = staticmethod(change)
    client = served.client()
    asked = begin(client)
    answer = back(client, asked["state"], asked["code"])
    assert (answer.status, "what the provider sent is not" in answer.text.lower()) == (403, True)
    assert "leadline_session" not in client.cookies


RIGHT: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "a list of one audience": lambda _h, c: c.update(aud=["leadline"]),
    "authorised for us among many": lambda _h, c: c.update(aud=["another", "leadline"], azp="leadline"),
    "clocks that differ": lambda _h, c: c.update(exp=time.time() - 30, iat=time.time() + 30, nbf=time.time() + 30),
    "times with a fraction": lambda _h, c: c.update(exp=time.time() + 0.5),
    "headers of its own": lambda h, _c: h.update(typ="JWT", x5t="x", tenant="own", x5c=["x" * 2000]),
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=list(RIGHT))
def test_what_a_provider_may_say_is_taken(served: Served, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    Provider.change = staticmethod(change)
    client = served.client()
    asked = begin(client)
    assert back(client, asked["state"], asked["code"]).status == 303


@pytest.mark.parametrize("change", [lambda token: token[:-4], lambda _: "a.b", lambda _: "", lambda _: "....", lambda _: "W10.W10.W10"])
def test_what_is_no_token_is_refused(served: Served, change: Callable[[str], str]) -> None:
    Provider.alter = staticmethod(change)
    client = served.client()
    asked = begin(client)
    assert back(client, asked["state"], asked["code"]).status == 403


def test_the_secret_of_a_public_key_is_no_signature(served: Served) -> None:
    """Who takes what all may read as a secret shared with the provider believes anybody."""
    public = Provider.rsa_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for kid, secret in (("r", public), ("s", b"all may read this")):
        Provider.change = staticmethod(lambda h, _c, kid=kid: h.update(alg="HS256", kid=kid))
        Provider.sign = staticmethod(lambda what, secret=secret: hmac.digest(secret, what, "sha256"))
        client = served.client()
        asked = begin(client)
        assert back(client, asked["state"], asked["code"]).status == 403


def test_another_s_signature_is_none(served: Served) -> None:
    Provider.sign = staticmethod(by_another)
    client = served.client()
    asked = begin(client)
    assert back(client, asked["state"], asked["code"]).status == 403


def test_who_is_not_linked_is_told_what_to_tell_an_administrator(served: Served) -> None:
    Provider.change = staticmethod(lambda _h, c: c.update(sub="SomebodyElse", preferred_username="ann", email="ann@example.org"))
    client, ann = served.client(), served.client(token=served.token_of("ann"))
    asked = begin(client)
    answer = back(client, asked["state"], asked["code"])
    assert (answer.status, "SomebodyElse" in answer.text) == (403, True)
    entries = ann.call("GET", "/audit?limit=1").json["entries"]
    assert (entries[0]["operation"], entries[0]["outcome"], json.loads(entries[0]["detail_json"])) == (
        "login", "refused", {"subject": "SomebodyElse"},
    )  # fmt: skip


def test_a_disabled_user_is_none(served: Served) -> None:
    served.do("user", "disable", "bob")
    try:
        client = served.client()
        asked = begin(client)
        assert back(client, asked["state"], asked["code"]).status == 403
    finally:
        served.do("user", "disable", "bob", "--no-disabled")


def test_a_subject_is_one_user_s(served: Served, issuer: str) -> None:
    assert served.leadline("user", "link", "ann", "--issuer", issuer, "--subject", SUBJECT).returncode == 2
    assert served.leadline("user", "link", "ann", "--subject", SUBJECT).returncode == 2


def test_it_goes_on_to_pages_of_this_site_alone(served: Served) -> None:
    client = served.client()
    asked = begin(client, "//evil.example/")
    assert back(client, asked["state"], asked["code"]).header("location") == "/"


@pytest.mark.parametrize(
    "given",
    [
        {"issuer": "http://login.example", "client_id": "x", "client_secret": "y"},
        {"issuer": "https://login.example", "client_id": "x"},
        {"issuer": "https://login.example", "client_id": "x", "client_secret": 5},
        [],
    ],
    ids=str,
)
def test_a_file_that_cannot_be_meant_is_one_error(tmp_path: Path, given: Any) -> None:
    (file := tmp_path / "provider.json").write_text(json.dumps(given))
    file.chmod(0o600)
    with book(tmp_path) as served:
        done = served.leadline("serve", "--listen", "127.0.0.1:0", "--provider", str(file))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_others_may_not_read_its_secret(tmp_path: Path) -> None:
    (file := tmp_path / "provider.json").write_text("{}")
    file.chmod(0o644)
    with pytest.raises(Exception, match="others may read"):
        oidc.read_client(str(file))


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
