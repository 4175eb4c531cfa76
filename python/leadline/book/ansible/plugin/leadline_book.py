"""Records every run of ansible-playbook and ansible in leadline's logbook.

Ansible loads this file in its own interpreter, where leadline is not installed: it needs the standard library and ansible-core 2.17 or
later, nothing else. It appends one line for each event to a file of its own in the book, by one write, and waits for nothing. What
cannot be written is counted. Nothing here raises: Ansible's output and exit code are the same with it and without.

The lines are those of leadline/book/spool.py; leadline/book/ansible/ingest.py reads them. LEADLINE_BOOK=off records nothing. What
leadline starts itself has a run already, which LEADLINE_ANSIBLE_RUN names: the events become part of it.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import html
import json
import os
import pwd
import re
import shlex
import sys
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

if "ansible" in sys.modules:
    from ansible.plugins.callback import CallbackBase  # type: ignore[import-not-found]
else:  # leadline itself uses what takes secrets out of texts
    CallbackBase = object

FORMAT = 1
LONGEST_EVENT = 1 << 20
LONGEST_FILE = 64 << 10
LONGEST_MESSAGE = 1000
FIRST_JOINED = 1_000_000
KEPT_OF_LONG = ("rc", "msg", "cmd", "delta", "start", "end", "stdout", "stderr")
TOTALS = {"ok": "ok", "changed": "changed", "failures": "failed", "dark": "unreachable", "skipped": "skipped"}
TOTALS |= {"rescued": "rescued", "ignored": "ignored"}
HIDDEN = "***"
SHORTEST_SECRET = 4
REPEATED = frozenset(("vars", "hostvars", "groups"))  # among the variables of a play: all the others once more
SHORTEST_IN_VAULT = 6  # of a value of which only the file says that it is secret
VAULT = "$ANSIBLE_VAULT;"
UID_LETTERS, UID_LENGTH = "0123456789abcdefghjkmnpqrstvwxyz", 12
SETUP = frozenset(prefix + name for prefix in ("", "ansible.builtin.", "ansible.legacy.") for name in ("setup", "gather_facts"))
IGNORED_FACTS = ("ansible_env",)  # what the environment of a host holds is often secret
ARGUMENTS = ("check", "diff", "subset", "tags", "skip_tags", "inventory", "forks", "remote_user", "become", "become_user", "start_at_task")
LABELLED = {"check": "check", "subset": "limit", "tags": "tags", "skip_tags": "skip_tags"}

# Names whose values are secret, wherever they appear; `update_password: always` is none of them.
_WORDS = r"password|passwd|passphrase|pwd|secret|token|api[_\-]?key|private[_\-]key|secret[_\-]key|access[_\-]key"
_SECRET_NAME = re.compile(rf"(?:^|[_\-.])(?:pass|{_WORDS})$", re.IGNORECASE)
_NOT_SECRET = re.compile(
    r"^(?:update|ask|use|no|generate)_|(?:^|[_\-.])(?:max|min|num|count|total|requires?|required|has|is|enable|disable|allow|needs?)"
    rf"[_\-](?:pass|{_WORDS})$", re.IGNORECASE,
)  # fmt: skip
_DIRECTORIES = frozenset(("PWD", "OLDPWD"))  # of every shell
_MAY_HAVE_ONE = re.compile(r"pass|pwd|secret|token|[_\-]?key\"", re.IGNORECASE)
_PLAIN_VALUES = frozenset((
    "true", "false", "none", "null", "always", "never", "present", "absent", "on_create", "default", "password", "passwd", "secret",
    "required", "optional", "enabled", "disabled", "prompt", "ignore", "unknown", "undefined", "unlimited", "unchanged", "bearer",
    "value_specified_in_no_log_parameter",
))  # fmt: skip
# What a name alone does not make a secret: numbers, sizes, dates and addresses, and paths.
_NUMBER = re.compile(r"[\d\s.,:+\-_/%TZ]{1,100}|\d[\d.,]{0,30}\s?[A-Za-z]{1,3}")
_PATH = re.compile(
    r"(?:/|~\w{0,40}(?:/|$)|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)[^\n]{0,4096}|[\w.\-]{1,100}(?:/[\w.\-]{1,100}){1,30}\.[A-Za-z]\w{0,5}"
)
_KEY_IN_PATH = re.compile(  # what base64 has between two slashes
    r"(?=[^/]{0,100}[a-z])(?=[^/]{0,100}[A-Z])(?=[^/]{0,100}\d)[^/.\s]{16,}|\+|=$"
)
SHORTEST_WORD = 6  # letters alone: `root` and `admin` are in every path
# Every part is bounded: texts are long, and may be one word.
_ASSIGNED = re.compile(
    rf"((?:^|[\s,{{\"'_\-.])(?:\w{{1,100}}[_\-.])?(?:{_WORDS})[\"']?\s{{0,10}}[:=]\s{{0,10}})"
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&}\"'!|>{][^\s,;&}]*)", re.IGNORECASE,
)  # fmt: skip
_IN_URI = re.compile(r"(?<=://)([^:/@\s\"']{0,100}):([^@\s\"']{0,256})@")
# Both as in leadline/book/redact.py: they are part of the name of a directory.
_DSN_PASSWORD = re.compile(r"(?<=://)([^:/@\s]{0,100}):([^@\s]{0,256})@")
_DSN_VALUE = re.compile(
    r"((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)[\"']?\s{0,10}[=:]\s{0,10})"
    r"('[^']{0,1000}'|\"[^\"]{0,1000}\"|[^\s,;&]+)", re.IGNORECASE,
)  # fmt: skip
_NO_LOG = re.compile(r"^(\s*)(-\s+)?no_log\s*:\s*(?!(?:false|no|off|0)\b)\S", re.IGNORECASE)
_SHOWN_OF_NO_LOG = re.compile(r"^\s*(?:-\s+)?(?:name|no_log|when|tags|notify|register|hosts|become|delegate_to|block|rescue|always)\s*:")


class Hider:
    """Takes secrets out of texts: values that it was told of, and values of names that say secret."""

    def __init__(self) -> None:
        self.forms: list[str] = []  # the longest first
        self._known: set[str] = set()

    def learn(self, value: Any) -> None:
        """A secret: whatever holds it from now on, in any of its forms, is stored without."""
        text = str(value)
        if text not in self._known:
            self._known.add(text)
            self.forms = sorted({*self.forms, *forms_of(text)}, key=len, reverse=True)

    def learn_named(self, value: Any) -> None:
        """What only its name calls a secret, if it may be one."""
        if may_be_secret(str(value)):
            self.learn(value)

    def learn_from(self, variables: Any, depth: int = 0) -> None:
        """Values of names that say secret, and values that were in a vault."""
        if depth > 4 or not isinstance(variables, dict):
            return
        for name, value in list(variables.items()):
            if name in REPEATED and depth == 0:
                continue
            if is_vaulted(value):
                self.learn(value)
            elif is_secret_name(name) and isinstance(value, str):
                self.learn_named(value)
            elif isinstance(value, dict):
                self.learn_from(value, depth + 1)
            elif isinstance(value, (list, tuple)):
                for one in value[:100]:
                    if is_vaulted(one):
                        self.learn(one)
                    elif is_secret_name(name) and isinstance(one, str):
                        self.learn_named(one)
                    else:
                        self.learn_from(one, depth + 1)

    def learn_all(self, held: Any, but: Collection[str] = (), depth: int = 0) -> None:
        """Every text and number of a file that was in a vault as a whole, but for paths. but: names of hosts, which must stay readable."""
        if isinstance(held, dict) and depth < 20:
            for one in list(held.values()):
                self.learn_all(one, but, depth + 1)
        elif isinstance(held, (list, tuple)) and depth < 20:
            for one in held:
                self.learn_all(one, but, depth + 1)
        elif isinstance(held, (str, int)) and not isinstance(held, bool) and str(held) not in but and len(str(held)) >= SHORTEST_IN_VAULT:
            text = str(held)
            if text.lower() not in _PLAIN_VALUES and "{{" not in text and not is_path(text):
                self.learn(held)

    def text(self, text: str) -> str:
        return without(text, self.forms, HIDDEN)

    def file(self, text: str) -> str:
        """A file: also what stands behind a name that says secret, and what tasks with no_log do."""
        return without_no_log(without_passwords(_ASSIGNED.sub(_hide_value, self.text(text))))

    def line(self, body: Any) -> str:
        """JSON without secrets. Most events have nothing that looks like one: these are written as they are."""
        line = json.dumps(body, ensure_ascii=False, default=str, skipkeys=True)
        if _MAY_HAVE_ONE.search(line) or any(form in line for form in self.forms) or "://" in line:
            line = json.dumps(self.clean(body), ensure_ascii=False, default=str, skipkeys=True)
        return line

    def clean(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return without_passwords(self.text(value))
        if depth > 40:
            return HIDDEN
        if isinstance(value, dict):
            out = {}
            for name, held in value.items():
                hide = is_secret_name(name) and isinstance(held, (str, int)) and not isinstance(held, bool) and held != ""
                hide = hide and not (_is_directory_name(name) and isinstance(held, str) and is_path(held))
                out[self.text(name) if isinstance(name, str) else name] = HIDDEN if hide else self.clean(held, depth + 1)
            return out
        if isinstance(value, (list, tuple)):
            return [self.clean(one, depth + 1) for one in value]
        if isinstance(value, (bool, float)) or value is None:
            return value
        text = str(value)
        return value if isinstance(value, int) and self.text(text) == text else self.text(text)


def without_passwords(text: str) -> str:
    """Those of addresses: scheme://user:password@host."""
    return _IN_URI.sub(rf"\1:{HIDDEN}@", text) if "@" in text and "://" in text else text


def is_secret_name(name: Any) -> bool:
    if not isinstance(name, str) or name in _DIRECTORIES or _SECRET_NAME.search(name) is None:
        return False
    return _NOT_SECRET.search(name) is None


def _is_directory_name(name: Any) -> bool:
    """pwd may be a password, and a working directory."""
    return isinstance(name, str) and name[-3:].lower() == "pwd"


def may_be_secret(text: str) -> bool:
    """Of the value of a name that says secret. What is short, a number or a path is in many other texts too, and would spoil them."""
    text = text.strip()
    if len(text) < (SHORTEST_WORD if text.isalpha() else SHORTEST_SECRET) or "{{" in text or text.lower() in _PLAIN_VALUES:
        return False
    return len(set(text)) > 1 and _NUMBER.fullmatch(text) is None and not is_path(text)


def is_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None and _KEY_IN_PATH.search(text) is None


def forms_of(secret: str) -> set[str]:
    """Texts in which a secret is found: as it is, its lines, and as other programs write it. None of them is very short."""
    if len(secret) < SHORTEST_SECRET or secret == HIDDEN:
        return set()
    out, texts = set[str](), {secret, secret.strip(), secret.replace("\r\n", "\n")}
    if "\n" in secret.strip():
        lines = {line.strip() for line in secret.splitlines()}
        lines = {line for line in lines if len(line) >= (16 if " " in line else 8) and not line.startswith("-----")}
        out |= {form for line in lines for form in (line, line.replace("/", "\\/"), json.dumps(line)[1:-1], *_in_urls(line, ("", "/")))}
    if secret.lstrip().startswith("{"):
        out |= {form for value in _values_in(secret) for form in forms_of(value)}
    out |= {form for text in texts for form in (text, *_quoted(text), *_encoded(text))}
    return {form for form in out if len(form) >= SHORTEST_SECRET}


def _values_in(secret: str) -> set[str]:
    """Secrets in a file of credentials that is JSON."""
    hider = Hider()
    try:
        hider.learn_from(json.loads(secret))
    except (ValueError, RecursionError):
        return set()
    return hider._known


def _in_urls(text: str, kept: Iterable[str]) -> Iterator[str]:
    """kept: signs that stay as they are."""
    for safe in kept:
        for quote in (urllib.parse.quote, urllib.parse.quote_plus):
            quoted = quote(text, safe, errors="surrogateescape")
            yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))


def _quoted(text: str) -> Iterator[str]:
    """As it stands in URLs, JSON (also in JSON within JSON), YAML, HTML, SQL and shells."""
    yield from _in_urls(text, ("", "/", "!'()*", "!'()*;/?:@&=+$,#"))
    for plain in (True, False):
        once = json.dumps(text, ensure_ascii=plain)[1:-1]
        yield from (once, json.dumps(once, ensure_ascii=plain)[1:-1], once.replace("/", "\\/"))
        for escaped in ("<>&", "<>&'"):
            yield "".join(f"\\u{ord(sign):04x}" if sign in escaped else sign for sign in once)
    yield from (repr(text)[1:-1], html.escape(text), html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"))
    yield from (text.replace("'", "''"), shlex.quote(text)[1:-1], text.replace("'", "'\\''"), re.sub(r"([\\\"$`!])", r"\\\1", text))
    yield re.sub(r"([\\\"$`])", r"\\\1", text)
    yield re.sub(r"([^\w@%+=:,./\-])", r"\\\1", text)  # printf %q
    yield re.sub(r"([^\w@%+=:./\-])", r"\\\1", text)
    words = (word if shlex.quote(word) == word else "'" + word.replace("'", "'\\''") + "'" for word in text.split())
    yield " ".join(words)  # set -x, of a value that the shell has split into words
    raw = text.encode("utf-8", "surrogateescape")
    yield from (repr(raw)[2:-1], text.encode("unicode_escape", "surrogatepass").decode())


def _encoded(text: str) -> Iterator[str]:
    """In base64, also after something else such as `user:`, and in hexadecimal digits."""
    raw = text.encode("utf-8", "surrogateescape")
    in_json = {json.dumps(text, ensure_ascii=plain)[1:-1].encode("utf-8", "surrogateescape") for plain in (True, False)}
    for body in (raw, text.encode("utf-16-le", "surrogatepass"), *sorted(in_json - {raw})):
        yield from _both_alphabets(base64.b64encode(body).decode())
        for before in range(3):
            coded = base64.b64encode(bytes(before) + body).decode()
            yield from _both_alphabets(coded[(0, 2, 3)[before] : (before + len(body)) * 8 // 6])  # what bytes around it do not change
    for width in (64, 76):  # of one that begins a text, broken into lines
        lines = [coded[at : at + width] for coded in [base64.b64encode(raw).decode().rstrip("=")] for at in range(0, len(coded), width)]
        yield from (line for line in lines if len(line) >= 8)
    for digits in (raw.hex(), raw.hex(" "), raw.hex(":"), raw.hex(" ", -2), "".join(f"\\x{byte:02x}" for byte in raw)):
        yield from (digits, digits.upper())


def _both_alphabets(coded: str) -> Iterator[str]:
    """As it is and as in URLs, with and without what fills it up."""
    for form in (coded, coded.replace("+", "-").replace("/", "_")):
        yield from (form, form.rstrip("="))


Text = TypeVar("Text", str, bytes)


def without(text: Text, forms: Iterable[Text], hidden: Text) -> Text:
    """Each place where one of the forms is, replaced once; forms that overlap are one place."""
    out, end = text[:0], 0
    for start, until in places(text, forms):
        out += text[end:start] + hidden
        end = until
    return out + text[end:] if end else text


def places(text: Text, forms: Iterable[Text]) -> list[tuple[int, int]]:
    """Where the forms are, from and to, in order and without overlaps."""
    found = []
    for form in forms:
        at = text.find(form)
        while at >= 0:
            found.append((at, at + len(form)))
            at = text.find(form, at + len(form))
    out: list[tuple[int, int]] = []
    for start, until in sorted(found):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(until, out[-1][1]))
        else:
            out.append((start, until))
    return out


def _hide_value(found: re.Match[str]) -> str:
    value = found[2]
    quote = value[0] if value[:1] in "\"'" else ""
    inner = value.strip("\"'")
    name = found[1].strip(" \t\r\n,{\"'-:=.")
    if "{{" in value or not inner or inner.lower() in _PLAIN_VALUES or not is_secret_name(name):
        return found[0]
    if _is_directory_name(name) and is_path(inner):
        return found[0]
    return f"{found[1]}{quote}{HIDDEN}{quote}"


def without_no_log(text: str) -> str:
    """YAML as people write it, without what tasks and blocks that say no_log do: of these, only their names and conditions."""
    if "no_log" not in text:
        return text
    lines = text.splitlines(keepends=True)
    hidden: set[int] = set()
    for at, line in enumerate(lines):
        if (found := _NO_LOG.match(line)) is None:
            continue
        dash = at
        inner = len(found[1])
        if not found[2]:  # the item begins above, with a dash further left
            while dash >= 0 and not (re.match(r"\s*-\s", lines[dash]) and _indent(lines[dash]) < inner):
                dash -= 1
        item = _indent(lines[dash]) if dash >= 0 else -1
        end = max(dash, 0) + 1
        while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > item):
            end += 1
        hidden.update(n for n in range(max(dash, 0), end) if lines[n].strip() and not _SHOWN_OF_NO_LOG.match(lines[n]))
    return "".join(f"{' ' * _indent(line)}{HIDDEN}\n" if n in hidden else line for n, line in enumerate(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def is_vaulted(value: Any) -> bool:
    if type(value).__name__ in ("AnsibleVaultEncryptedUnicode", "EncryptedString"):
        return True
    return any(type(tag).__name__ == "VaultedValue" for tag in getattr(value, "_ansible_tags_mapping", None) or ())


def find_place() -> Path | None:
    """The directory of the book, as leadline/book/place.py finds it; None where it is off."""
    said = os.environ.get("LEADLINE_BOOK", "")
    if said.lower() == "off":
        return None
    if said and not said.startswith(("postgresql://", "postgres://")):
        return Path(os.path.abspath(os.path.expanduser(said)))
    given = os.environ.get("XDG_STATE_HOME", "")
    state = (Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state") / "leadline"
    if not said:
        return state / "book"
    without_password = _DSN_VALUE.sub(rf"\1{HIDDEN}", _DSN_PASSWORD.sub(rf"\1:{HIDDEN}@", said))
    return state / f"book-{hashlib.sha256(without_password.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def quiet(method: Callable[..., None]) -> Callable[..., None]:
    """Whatever goes wrong in here is counted; Ansible goes on. (An AssertionError would end it.)"""

    @functools.wraps(method)
    def called(self: CallbackModule, *arguments: Any, **more: Any) -> None:
        if self.spool is None:
            return
        began = time.perf_counter_ns()
        try:
            method(self, *arguments, **more)
        except Exception as e:
            self.spool.lost += 1
            self.spool.why = f"{method.__name__}: {type(e).__name__}"
        self.own_ns += time.perf_counter_ns() - began

    return called


def _check_ours(directory: Path) -> None:
    """As leadline/book/place.py: what somebody else may change is no evidence. Raises OSError."""
    about = directory.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(1, "others may write to the directory of the book", str(directory))


class Spool:
    """The file of events of this run."""

    def __init__(self, directory: Path) -> None:
        self.uid = "".join(UID_LETTERS[byte & 31] for byte in os.urandom(UID_LENGTH))
        self.lost, self.why, self._n, self._fd = 0, "", 0, -1
        self.joined = self._join(directory, os.environ.pop("LEADLINE_ANSIBLE_RUN", ""))
        self._wall_us, self._began_ns = time.time_ns() // 1000, time.monotonic_ns()
        if self.joined:
            return
        try:
            for made in (directory, directory / "spool", directory / "logs"):
                made.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_ours(made)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(directory / "spool" / f"{self.uid}.jsonl", flags, 0o600)
        except OSError as e:
            self.lost, self.why = 1, e.strerror or ""

    def _join(self, directory: Path, uid: str) -> bool:
        """Appends to the spool of this run, if it has one. Its other events are counted from 1, ours from FIRST_JOINED."""
        if len(uid) != UID_LENGTH or set(uid) - set(UID_LETTERS):
            return False
        try:
            self._fd = os.open(directory / "spool" / f"{uid}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        self.uid, self._n = uid, FIRST_JOINED
        return True

    def now_us(self) -> int:
        """Since 1970; a clock that is set during the run changes no duration."""
        return self._wall_us + (time.monotonic_ns() - self._began_ns) // 1000

    def append(self, kind: str, line: str) -> None:
        """line: the body as JSON."""
        self._n += 1
        head = f'{{"n":{self._n},"ts":{self.now_us()},"kind":"{kind}"'
        whole = (f"{head},{line[1:]}\n" if len(line) > 2 else f"{head}}}\n").encode("utf-8", "backslashreplace")
        try:
            if len(whole) > LONGEST_EVENT or self._fd < 0 or os.write(self._fd, whole) != len(whole):
                self.lost += 1
        except OSError as e:
            self.lost, self.why = self.lost + 1, e.strerror or ""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """One event each: the run, its plays, tasks, results (of hosts, loop items and retries), files, notes, totals."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "leadline_book"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.spool: Spool | None = None
        self.own_ns = 0
        self._pid = os.getpid()
        self._hide = Hider()
        self._plays = self._tasks = 0
        self._task_numbers: dict[str, int] = {}
        self._files: set[str] = set()
        self._looked_into: set[str] = set()
        self._started: dict[tuple[str, str], int] = {}
        self._marks: dict[tuple[str, str], int] = {}  # when the item or attempt before ended
        self._items: dict[tuple[str, str], int] = {}
        self._retries: dict[tuple[str, str], int] = {}
        self._rescued: dict[str, bool] = {}
        self._ended = False
        try:
            self._directory = find_place()
        except RuntimeError:  # no home
            self._directory = None

    # the run

    def _begin(self, name: str, path: str, first_file: bool) -> None:
        """Once, at the first event: `ansible` has no playbook, but a play."""
        if self.spool is not None or self._ended or self._directory is None or getattr(sys, "_leadline_book", None) == self._pid:
            return
        setattr(sys, "_leadline_book", self._pid)  # noqa: B010 - found in two directories, this file is loaded twice
        self.spool = Spool(self._directory)
        atexit.register(self._left_early)
        for secret in self._told():
            self._hide.learn(secret)
        arguments = self._arguments()
        given = {label: arguments.get(key) for key, label in LABELLED.items()}
        labels = {label: _joined(value) for label, value in given.items() if value and list_of(value) != ["all"]}
        if self.spool.joined:
            self._event("ansible.joined", labels=labels)
        else:
            self._own_run(name, labels)
        os.environ.setdefault("LEADLINE_RUN", self.spool.uid)  # what tasks start on this host knows it as its parent
        self._event(
            "ansible.playbook", format=FORMAT, path=path, ansible=_ansible_version(), python=sys.version.split()[0], arguments=arguments,
        )  # fmt: skip
        if first_file:
            self._file(path)

    def _own_run(self, name: str, labels: dict[str, str]) -> None:
        assert self.spool is not None
        stat = _read("/proc/self/stat").rpartition(")")[2].split()
        self._event(
            "begin", uid=self.spool.uid, run_kind="ansible", name=name, argv=self._argv(), labels=labels,
            parent=os.environ.get("LEADLINE_RUN"), cwd=self._cwd(), user=_user(), host=os.uname().nodename, pid=self._pid,
            pid_start=int(stat[19]) if len(stat) > 19 else None, boot=_read("/proc/sys/kernel/random/boot_id").strip(),
            version=f"Ansible plugin {FORMAT}",
            facts={"ansible.version": _ansible_version(), "python.version": sys.version.split()[0], "kernel.release": os.uname().release},
        )  # fmt: skip

    def _argv(self) -> list[str]:
        """The command line. Of extra variables only the names: their values were given to this run alone, and may be secret."""
        out, hide = [], ""
        for word in sys.argv:
            option, equals, value = word.partition("=")
            if hide == "vars":
                out.append(_names_only(word))
            elif option in ("--extra-vars",) and equals:
                out.append(f"{option}={_names_only(value)}")
            elif word.startswith("-e") and len(word) > 2 and not word.startswith("--"):
                out.append("-e" + _names_only(word[2:]))
            else:
                out.append(self._hide.file(word))
            hide = "vars" if word in ("-e", "--extra-vars") else ""
        return out

    def _arguments(self) -> dict[str, Any]:
        from ansible import context  # type: ignore[import-not-found]

        given = getattr(context, "CLIARGS", None) or {}
        return {key: given[key] for key in (*ARGUMENTS, "module_name") if given.get(key) not in (None, "", (), [])}

    def _cwd(self) -> str:
        try:
            return os.getcwd()
        except OSError:
            return ""

    def _told(self) -> list[str]:
        """Secrets that leadline gave to this run, in a file that is only for it."""
        path = os.environ.get("LEADLINE_SECRETS", "")
        if not path:
            return []
        try:
            values = json.loads(_read(path))
        except ValueError:
            return []
        return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []

    def _left_early(self) -> None:
        """The interpreter ends. If no totals came, Ansible gave up: by an error, or because of Ctrl-C."""
        if self._ended or self.spool is None or os.getpid() != self._pid:
            return
        errors = [str(error).strip() for error in _errors_shown()]
        interrupted = any("User interrupted execution" in error for error in errors)
        summary = "interrupted" if interrupted else next((e for e in errors if e), "ended before its last task")
        self._end(summary, fine=False, cancelled=interrupted)

    def _end(self, summary: str, *, fine: bool, cancelled: bool = False) -> None:
        import resource

        if self.spool is None:
            return
        self._ended = True
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        metrics = {
            "wall_s": (self.spool.now_us() - self.spool._wall_us) / 1e6, "cpu_s": sum(u.ru_utime + u.ru_stime for u in spent),
            "max_rss_bytes": max(u.ru_maxrss for u in spent) * 1024, "record_s": self.own_ns / 1e9,
        }  # fmt: skip
        text = self._hide.text(" ".join(summary.split()))[:500]
        if self.spool.joined:
            self._event("ansible.end", summary=text, record_s=metrics["record_s"], lost=self.spool.lost)
            return
        self._event("end", rc=None, signal=None, summary=text, metrics=metrics, lost=self.spool.lost, fine=fine, cancelled=cancelled)

    def _event(self, kind: str, **body: Any) -> None:
        if self.spool is not None:
            self.spool.append(kind, self._hide.line(body))

    # what Ansible calls

    def set_play_context(self, play_context: Any) -> None:
        try:
            for name in ("password", "become_pass"):
                if value := getattr(play_context, name, None):
                    self._hide.learn(value)
        except Exception:
            return

    def v2_playbook_on_start(self, playbook: Any) -> None:
        try:
            path = str(playbook._file_name)
            if path != "__adhoc_playbook__":
                for play in playbook.get_plays():
                    self._hide.learn_from(play.get_vars())
                path = os.path.abspath(path)
                self._begin(os.path.basename(path), path, True)
        except Exception:
            self.spool = None  # nothing else of this run would be understood

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self.spool is None:
            try:
                from ansible import context

                self._begin(f"ansible {context.CLIARGS.get('module_name', '')}".strip(), "", False)
            except Exception:
                self.spool = None
        self._play(play)

    @quiet
    def _play(self, play: Any) -> None:
        assert self.spool is not None
        self._plays += 1
        self._task_numbers.clear()
        variables = self._variables(play)
        self._vaults(play)
        for path in self._loaded(play):
            self._file(path)
        wanted = [variables.get(f"{who}_{what}") for what, who in (("name", "leadline"), ("name", "ara_playbook"))]
        labels: Any = next((variables[name] for name in ("leadline_labels", "ara_playbook_labels") if variables.get(name)), [])
        if isinstance(labels, str):
            labels = labels.split(",")
        self._event(
            "ansible.play", play=self._plays, uuid=str(play._uuid)[:36], name=str(play.get_name()),
            hosts=_joined(getattr(play, "hosts", "")), strategy=str(getattr(play, "strategy", "") or ""),
            at=str(play.get_path() or "") if hasattr(play, "get_path") else "",
            run_name=next((str(name) for name in wanted if name), None),
            labels=labels if isinstance(labels, dict) else {str(label): "" for label in labels},
        )  # fmt: skip

    def _variables(self, play: Any) -> dict[str, Any]:
        """Those of the play. Secrets among them, and among those of its hosts, are learned."""
        manager = play._variable_manager
        variables: dict[str, Any] = manager.get_vars(play=play)
        self._hide.learn_from(variables)
        for host in manager._inventory.get_hosts(play.hosts):
            try:
                self._hide.learn_from(manager.get_vars(play=play, host=host, include_hostvars=False))
            except Exception:  # Ansible will tell of it when it comes to the host
                continue
        return variables

    def _vaults(self, play: Any) -> None:
        """Learns what is in files of variables that are encrypted as a whole: their values do not show it."""
        inventory = play._variable_manager._inventory
        names = {"localhost", "127.0.0.1", *map(str, inventory.hosts), *map(str, inventory.groups)}
        for path, held in list(getattr(play._loader, "_FILE_CACHE", {}).items()):
            if path not in self._looked_into and isinstance(path, str):
                self._looked_into.add(path)
                try:
                    with open(path, encoding="utf-8", errors="replace") as file:
                        vaulted = file.read(len(VAULT)) == VAULT
                except OSError:
                    continue
                if vaulted:
                    self._hide.learn_all(held, names)

    def _loaded(self, play: Any) -> Iterator[str]:
        """Files that were read for the play, where Ansible still says so; not those of groups and hosts, or for this run alone."""
        private = self._private_files()
        for path in list(getattr(play._loader, "_FILE_CACHE", ())):
            if isinstance(path, str) and path not in private and not re.search(r"/(?:group_vars|host_vars|ansible-local-[^/]*)/", path):
                yield path

    def _private_files(self) -> set[str]:
        """What options name as extra variables, passwords and keys."""
        from ansible import context

        given = getattr(context, "CLIARGS", None) or {}
        names = [str(word)[1:] for word in given.get("extra_vars") or () if str(word).startswith("@")]
        names += [str(word).rpartition("@")[2] for word in given.get("vault_ids") or ()]
        for option in ("vault_password_files", "become_password_file", "connection_password_file", "private_key_file"):
            names += list_of(given.get(option) or [])
        return {os.path.abspath(os.path.expanduser(name)) for name in names}

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._task(task, True)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._task(task, False)

    @quiet
    def _task(self, task: Any, handler: bool) -> None:
        self._task_number(task, handler)

    def _task_number(self, task: Any, handler: bool = False) -> int:
        """Counted in the run. With the strategy `free`, each host starts the task; it is still one."""
        uuid = str(task._uuid)[:36]
        if uuid in self._task_numbers:
            return self._task_numbers[uuid]
        self._tasks += 1
        self._task_numbers[uuid] = self._tasks
        path, _, line = str(task.get_path() or "").rpartition(":")
        hidden = bool(task.no_log)
        self._file(path)
        role = getattr(task, "_role", None)
        self._event(
            "ansible.task", task=self._tasks, play=self._plays, uuid=uuid, name=str(task.get_name()), action=str(task.action), file=path,
            line=int(line) if line.isdigit() else None, tags=[str(tag) for tag in task.tags or ()], handler=handler,
            role=str(role.get_name()) if role is not None else "", args={} if hidden else _shown(task.args), no_log=hidden,
        )  # fmt: skip
        return self._tasks

    @quiet
    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        assert self.spool is not None
        self._started[(str(host.get_name()), str(task._uuid))] = self.spool.now_us()

    @quiet
    def v2_runner_on_ok(self, result: Any) -> None:
        self._result(result, "ok")

    @quiet
    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._result(result, "failed", ignored=bool(ignore_errors))

    @quiet
    def v2_runner_on_skipped(self, result: Any) -> None:
        self._result(result, "skipped")

    @quiet
    def v2_runner_on_unreachable(self, result: Any) -> None:
        ignored = bool(getattr(_part(result, "task"), "ignore_unreachable", False))
        self._result(result, "unreachable", ignored=ignored)

    @quiet
    def v2_runner_item_on_ok(self, result: Any) -> None:
        self._result(result, "ok", "item")

    @quiet
    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._result(result, "failed", "item")

    @quiet
    def v2_runner_item_on_skipped(self, result: Any) -> None:
        self._result(result, "skipped", "item")

    @quiet
    def v2_runner_retry(self, result: Any) -> None:
        self._result(result, "failed", "retry")

    def _result(self, result: Any, status: str, part: str = "result", *, ignored: bool = False) -> None:
        """part: result, of a task on a host; item, of one item of its loop; retry, an attempt that will be repeated."""
        assert self.spool is not None
        host, task, content = str(_part(result, "host").get_name()), _part(result, "task"), dict(_part(result, "result"))
        key = (host, str(task._uuid))
        number = self._task_number(task)
        body: dict[str, Any] = {"task": number, "host": host, "part": part, "status": status, "changed": bool(content.get("changed"))}
        now = self.spool.now_us()
        body["started"], body["ended"] = self._marks.get(key) or self._started.get(key), now
        self._marks[key] = now
        if part == "item":
            self._items[key] = body["index"] = self._items.get(key, 0) + 1
            name = content.get("ansible_loop_var") or "item"
            label = content.get("_ansible_item_label", content.get(name, ""))
            body["item"] = label if isinstance(label, str) else json.dumps(label, ensure_ascii=False, default=str, skipkeys=True)
            if len(body["item"]) > LONGEST_MESSAGE:
                body["item"] = body["item"][:LONGEST_MESSAGE]
            if content.get("censored"):
                body["item"] = ""
        if part == "retry":
            self._retries[key] = body["attempts"] = self._retries.get(key, 0) + 1
        elif (retries := self._retries.pop(key, 0)) or content.get("attempts"):
            body["attempts"] = retries + 1  # Ansible's own count of them is that of what it was asked for
        if part == "result":
            body["started"] = self._started.pop(key, None)
            self._marks.pop(key, None)
            if items := self._items.pop(key, 0):
                body["items"] = items
                if isinstance(content.get("results"), list) and items == len(content["results"]):
                    del content["results"]  # each has an event of its own
            if status == "failed":
                body["ignored"] = ignored
                body["rescued"] = not ignored and self._is_rescued(task)
            elif status == "unreachable":
                body["ignored"] = ignored
        self._delegation(body, content, task)
        if isinstance(facts := content.get("ansible_facts"), dict):
            self._hide.learn_from(facts)  # of set_fact, include_vars, and environments of hosts
            if task.action in SETUP:
                content["ansible_facts"] = {name: value for name, value in facts.items() if name not in IGNORED_FACTS}
        body["content"] = {name: value for name, value in content.items() if not name.startswith("_ansible_")}
        line = self._hide.line(body)
        if len(line) > LONGEST_EVENT - 4096 or len(line.encode("utf-8", "backslashreplace")) > LONGEST_EVENT - 4096:
            kept = {name: value for name, value in body["content"].items() if name in KEPT_OF_LONG}
            kept = {name: value[:65536] if isinstance(value, str) else value for name, value in kept.items()}
            line = self._hide.line(body | {"content": kept | {"leadline_cut": f"{len(line):,} characters: too long to be recorded whole"}})
        self.spool.append("ansible.result", line)

    def _delegation(self, body: dict[str, Any], content: dict[str, Any], task: Any) -> None:
        if not getattr(task, "delegate_to", None):
            return
        given = content.get("_ansible_delegated_vars")
        named = str(task.delegate_to)
        if "{{" in named:
            named = str(given.get("inventory_hostname") or given.get("ansible_host") or "") if isinstance(given, dict) else ""
        body["delegated_to"] = named

    def _is_rescued(self, task: Any) -> bool:
        """Whether a block around the task has a `rescue` for it."""
        uuid = str(task._uuid)
        if uuid not in self._rescued:
            inner, around, found = task, getattr(task, "_parent", None), False
            while around is not None and not found:
                tasks = getattr(around, "block", None)
                if isinstance(tasks, list) and getattr(around, "rescue", None):
                    found = any(one._uuid == inner._uuid for one in tasks)
                inner, around = around, getattr(around, "_parent", None)
            self._rescued[uuid] = found
        return self._rescued[uuid]

    @quiet
    def v2_playbook_on_notify(self, handler: Any, host: Any) -> None:
        self._event("ansible.note", what="notify", text=str(handler.get_name()), host=str(host.get_name()))

    @quiet
    def v2_playbook_on_include(self, included_file: Any) -> None:
        path = str(getattr(included_file, "_filename", "") or "")
        self._file(path)
        hosts = [str(host.get_name()) for host in getattr(included_file, "_hosts", ())]
        self._event("ansible.note", what="include", text=path, host=",".join(hosts)[:LONGEST_MESSAGE])

    @quiet
    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._event("ansible.note", what="no hosts matched", text="", host="")

    @quiet
    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self._event("ansible.note", what="no hosts remaining", text="", host="")

    @quiet
    def v2_playbook_on_stats(self, stats: Any) -> None:
        hosts: dict[str, dict[str, int]] = {str(host): {} for host in sorted(stats.processed)}
        for theirs, ours in TOTALS.items():
            for host, n in getattr(stats, theirs, {}).items():
                hosts.setdefault(str(host), {})[ours] = int(n)
        self._event("ansible.stats", hosts=hosts, custom=dict(getattr(stats, "custom", {}) or {}))
        bad = {what: [host for host, n in hosts.items() if n.get(what)] for what in ("failed", "unreachable")}
        told = [f"{what} on {', '.join(at[:5])}{' and more' if len(at) > 5 else ''}" for what, at in bad.items() if at]
        changed = sum(n.get("changed", 0) for n in hosts.values())
        summary = "; ".join(told) or f"{_count(len(hosts), 'host')}, {_count(self._tasks, 'task')}, {changed} changed"
        self._end(summary, fine=not told)

    # files

    def _file(self, path: str) -> None:
        """Its text as it is now, once, without secrets. Its hash is that of this text, if something was taken out of it."""
        if not path or path in self._files or self.spool is None or ("/ansible/" in path and "site-packages" in path):
            return
        self._files.add(path)
        try:
            with open(path, "rb") as file:
                raw = file.read(LONGEST_FILE + 1)
                about = os.fstat(file.fileno())
        except OSError:
            return
        more: dict[str, Any] = {}
        if len(raw) <= LONGEST_FILE and b"\0" not in raw:
            before = raw.decode("utf-8", "replace")
            text = self._hide.file(before)
            more = {"text": text, "hash": hashlib.sha256(raw if text == before else text.encode("utf-8", "replace")).hexdigest()}
        self._event("file", path=path, size=about.st_size, modified=about.st_mtime_ns // 1000, **more)


def _part(result: Any, name: str) -> Any:
    """`host`, `task` and `result` have these names since ansible-core 2.19; before, and until 2.22, they begin with `_`."""
    return getattr(result, name) if hasattr(type(result), name) else getattr(result, f"_{name}")


def _shown(arguments: Any) -> dict[str, Any]:
    given = arguments if isinstance(arguments, dict) else {}
    return {str(name): value for name, value in given.items() if not str(name).startswith("_ansible_")}


def list_of(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _joined(value: Any) -> str:
    return ",".join(list_of(value))


def _names_only(given: str) -> str:
    """a=1 b=2 as a=*** b=***; a file (@vars.yml) as it is."""
    if given.startswith("@"):
        return given
    if given.lstrip()[:1] in "{[":
        try:
            parsed = json.loads(given)
        except ValueError:
            return HIDDEN
        return json.dumps({str(name): HIDDEN for name in parsed}) if isinstance(parsed, dict) else HIDDEN
    names = re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", given)
    return " ".join(f"{name}={HIDDEN}" for name in names) or HIDDEN


def _ansible_version() -> str:
    from ansible.release import __version__  # type: ignore[import-not-found]

    return str(__version__)


def _errors_shown() -> Iterable[Any]:
    try:
        from ansible.utils.display import Display  # type: ignore[import-not-found]

        return list(getattr(Display(), "_errors", ()))
    except Exception:
        return ()
