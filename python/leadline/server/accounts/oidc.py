"""Login by an identity provider: OpenID Connect, the code flow with PKCE. The provider says who it is; what they may do is said here.

A user of the provider is known by issuer and subject, which an administrator has linked to an account, or which has made one at the first
login (groups.py). By names and addresses that a provider tells nobody is known: at many, users choose them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import ipaddress
import json
import os
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.accounts import groups, login
from leadline.server.accounts.groups import Groups
from leadline.server.accounts.users import USER
from leadline.server.operation import Call, Input, Operation, Refused
from leadline.server.rights import Caller

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey
    from joserfc.jws import JWSRegistry

ANSWER_S, MOST_BYTES = 10.0, 1 << 20
KEPT_S, KEYS_AGAIN_S = 3600.0, 60.0
CLOCKS_S = 60  # by which the provider's may differ
ALGORITHMS = ("RS256", "ES256")
LONGEST_SUBJECT = 255
BACK = "/login/provider/back"


@dataclass(frozen=True)
class Client:
    """What the provider knows us as."""

    issuer: str
    client_id: str
    client_secret: str
    scope: str = "openid"
    groups: Groups = field(default_factory=Groups)


def read_client(path: str) -> Client:
    """From a JSON file that its owner alone may read. Raises LeadlineError."""
    if importlib.util.find_spec("joserfc") is None:
        raise LeadlineError("unsupported", "an identity provider needs the package joserfc", hint="pip install 'leadline[web]'")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise LeadlineError("not_found", f"the file of the provider cannot be read: {e.strerror}", where=path) from None
    with open(fd, "rb") as file:
        if os.fstat(fd).st_mode & 0o077:
            raise LeadlineError("rights", "others may read the secret of the provider", hint=f"chmod 600 {path}", where=path)
        try:
            given = json.loads(file.read(MOST_BYTES))
            names = {"roles": "roles", "groups_claim": "claim", "name_claim": "name_claim"}
            of_groups = {names[name]: given.pop(name) for name in names if name in given}
            client = Client(**given, groups=groups.read(of_groups))
            if not all(isinstance(value, str) and value for name, value in vars(client).items() if name != "groups"):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            form = '{"issuer": "https://login.example", "client_id": "leadline", "client_secret": "..."}'
            raise LeadlineError("invalid", "the file of the provider does not have its form", hint=form, where=path) from None
    _check_address(client.issuer)
    return client


def _check_address(url: Any) -> str:
    """Only over TLS, but for one on this host. Raises LeadlineError."""
    parts = urlsplit(url if isinstance(url, str) else "")
    host = parts.hostname or ""
    try:
        own = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = False
    if not host or parts.scheme not in (("https", "http") if own else ("https",)):
        raise LeadlineError("invalid", "an address of the provider is not https", where=str(url)[:200])
    return str(url)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(_check_address(url), body, {"Accept": "application/json", **(headers or {})})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=ANSWER_S) as answer:
            found = json.loads(answer.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError) as e:
        raise LeadlineError("connection", "the provider does not answer as it should", detail=str(e)[:200], where=url[:200]) from None
    if not isinstance(found, dict):
        raise LeadlineError("connection", "the provider does not answer as it should", where=url[:200])
    return found


@dataclass
class Attempt:
    """One login that has begun in one browser, kept in a cookie of it until the provider sends it back."""

    state: str
    nonce: str
    verifier: str
    next: str

    @staticmethod
    def new(on: str) -> Attempt:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return Attempt(state, nonce, verifier, on)

    def as_cookie(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(vars(self)).encode()).decode()

    @staticmethod
    def of_cookie(text: str) -> Attempt | None:
        try:
            given = json.loads(base64.urlsafe_b64decode(text.encode()))
            attempt = Attempt(**given)
        except (ValueError, TypeError, RecursionError):
            return None
        return attempt if all(isinstance(value, str) for value in vars(attempt).values()) else None


@dataclass
class Provider:
    client: Client
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _about: tuple[float, dict[str, Any]] | None = None
    _keys: tuple[float, list[dict[str, Any]]] | None = None

    @property
    def name(self) -> str:
        return urlsplit(self.client.issuer).hostname or ""

    def about(self) -> dict[str, Any]:
        """What it says of itself."""
        with self._lock:
            if self._about is None or time.monotonic() - self._about[0] > KEPT_S:
                found = _ask(self.client.issuer.rstrip("/") + "/.well-known/openid-configuration")
                if found.get("issuer") != self.client.issuer:
                    raise LeadlineError("connection", "the provider calls itself something else", where=str(found.get("issuer"))[:200])
                self._about = (time.monotonic(), found)
            return self._about[1]

    def begin(self, attempt: Attempt, back: str) -> str:
        """Where the browser is sent."""
        challenge = _text(hashlib.sha256(attempt.verifier.encode()).digest())
        asked = {
            "response_type": "code", "client_id": self.client.client_id, "redirect_uri": back, "scope": self.client.scope,
            "state": attempt.state, "nonce": attempt.nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        address = _check_address(self.about().get("authorization_endpoint"))
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    def claims(self, attempt: Attempt, code: str, back: str) -> dict[str, Any]:
        """What it says of whom it has logged in; `sub` is a text. Raises LeadlineError."""
        given = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "code_verifier": attempt.verifier}
        pair = urlencode({self.client.client_id: self.client.client_secret}).replace("=", ":", 1)  # each quoted, as RFC 6749 2.3.1 has it
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        answer = _ask(str(self.about().get("token_endpoint")), urlencode(given).encode(), headers)
        return self._claims(str(answer.get("id_token", "")), attempt)

    def _claims(self, token: str, attempt: Attempt) -> dict[str, Any]:
        """Of a token that the provider has signed, for this login. Raises Refused."""
        from joserfc import jwt
        from joserfc.errors import ClaimError, JoseError
        from joserfc.jws import extract_compact

        # What the library raises of bytes that are no token, beside its own errors.
        broken = (JoseError, ValueError, TypeError, KeyError, RecursionError)
        own = self.client.client_id
        wanted = jwt.JWTClaimsRegistry(
            leeway=CLOCKS_S, iss={"essential": True, "value": self.client.issuer}, aud={"essential": True, "value": own},
            exp={"essential": True}, iat={"essential": True}, sub={"essential": True},
        )  # fmt: skip
        try:
            named = self._keys_for(extract_compact(token.encode(), registry=_registry()).headers())
        except broken:
            named = []
        for key in named:
            try:
                claims = jwt.decode(token, _key(key), registry=_registry()).claims
            except broken:
                continue
            try:
                wanted.validate(claims)
                audience = claims["aud"]
                fits = audience in (own, [own]) or claims.get("azp") == own
                fits = fits and claims.get("nonce") == attempt.nonce and len(claims["sub"]) <= LONGEST_SUBJECT
            except ClaimError:
                fits = False
            if not fits:
                raise Refused(403, "rights", "what the provider sent is not for this login")
            return claims
        raise Refused(403, "rights", "what the provider sent is not signed by it")

    def _keys_for(self, header: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A key that is not known may be new: they are asked for again, but not all the time."""
        with self._lock:
            known, age = (self._keys[1], time.monotonic() - self._keys[0]) if self._keys else ([], KEPT_S)
        found = [key for key in known if key.get("kid") == header.get("kid")]
        if (found and age < KEPT_S) or age < KEYS_AGAIN_S:
            return found
        answer = _ask(str(self.about().get("jwks_uri"))).get("keys")
        keys = [key for key in answer if isinstance(key, dict)] if isinstance(answer, list) else []
        with self._lock:
            self._keys = (time.monotonic(), keys)
        return [key for key in keys if key.get("kid") == header.get("kid")]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _registry() -> JWSRegistry:
    """What a header may say: nothing that changes how the token must be read (`crit`, `b64`), as we know no such extension."""
    from joserfc.jws import JWSRegistry
    from joserfc.registry import HeaderParameter

    class Registry(JWSRegistry):
        max_header_length = 16 << 10  # some send their chain of certificates

    refused = {name: HeaderParameter("refused", "none") for name in ("crit", "b64")}
    return Registry(refused, ALGORITHMS, strict_check_header=False)


def _key(found: dict[str, Any]) -> RSAKey | ECKey:
    """A public key of the provider: no shared secret, which anybody could sign with who reads it. Raises JoseError."""
    from joserfc.errors import InvalidKeyTypeError
    from joserfc.jwk import ECKey, RSAKey

    if found.get("kty") == "RSA":
        return RSAKey.import_key(found)
    if found.get("kty") == "EC":
        return ECKey.import_key(found)
    raise InvalidKeyTypeError("neither RSA nor EC")


def log_in(store: Store, provider: Provider, attempt: Attempt | None, given: Mapping[str, str], back: str, address: str) -> str:
    """The id of a new session. Raises LeadlineError."""
    state = given.get("state", "")
    if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "surrogateescape")):
        raise Refused(403, "rights", "this login did not begin in this browser", hint="log in again")
    if given.get("error") or not given.get("code"):
        raise Refused(403, "rights", "the provider did not log you in", detail=given.get("error", "")[:100])
    claims = provider.claims(attempt, given["code"], back)
    subject, issuer, mapped = str(claims["sub"]), provider.client.issuer, provider.client.groups
    rows = store.rows("select name, disabled from account where oidc_issuer = ? and oidc_subject = ?", (issuer, subject))
    name = str(rows[0]["name"]) if rows else "?"
    try:
        if rows and rows[0]["disabled"]:
            raise Refused(403, "rights", "no user here is linked to you", detail=f"The provider calls you {subject}.")
        if not rows and not mapped.roles:
            raise Refused(
                403, "rights", "no user here is linked to you", detail=f"The provider calls you {subject}.",
                hint="an administrator can: leadline user link NAME --subject SUBJECT",
            )  # fmt: skip
        if not rows:
            name = groups.create(store, mapped, claims, issuer, subject, address)
        if mapped.roles:
            groups.follow(store, mapped, claims, name, address)
    except Refused as e:
        why = {"subject": subject} if not mapped.roles else {"subject": subject, "error": e.message}
        with store.writing():
            audit.append(store, Caller(name, False, address=address), "login", "" if name == "?" else name, why, "refused")
        raise
    return login.new_session(store, name, address, "provider")


def _link(call: Call, inputs: dict[str, Any]) -> Any:
    name, issuer, subject = inputs["user"], inputs["issuer"], inputs["subject"]
    call.object = name
    if call.one("select 1 from account where name = ?", name) is None:
        raise LeadlineError("not_found", f"there is no user {name}", hint="leadline user list")
    if bool(issuer) != bool(subject):
        raise LeadlineError("usage", "issuer and subject belong together", where="issuer" if subject else "subject")
    if subject and call.one("select 1 from account where oidc_issuer = ? and oidc_subject = ? and name <> ?", issuer, subject, name):
        raise LeadlineError("usage", "another user is linked to that already", where="subject")
    call.execute("update account set oidc_issuer = ?, oidc_subject = ? where name = ?", issuer, subject, name)
    call.detail = {"issuer": issuer, "subject": subject}
    return {"user": name, "issuer": issuer, "subject": subject}


OPERATIONS = (
    Operation(
        "user.link", "PUT", "/users/{user}/identity", "site", "", "Link a user to an OpenID identity, or unlink it.", _link,
        (
            USER, Input("issuer", "issuer of the provider, exactly as it states it", required=False),
            Input("subject", "the user's `sub` at the provider, not a name or address", required=False),
        ),
    ),
)  # fmt: skip
