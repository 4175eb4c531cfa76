"""Puts a commit of a git repository into the current directory, notes in the run which one it was, and becomes the command.

    python -m leadline.book.checkout [--key FILE] URL REF COMMAND...

It is the command of a run: its output is in the log, and cancel ends it. FILE is a key for ssh; it is removed before the command begins.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time

from leadline.book.place import find_place
from leadline.book.spool import as_json
from leadline.book.tree import PARENT
from leadline.errors import LeadlineError

SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
_HOST_AND_PATH = re.compile(r"[\w.-]+@[\w.-]+:[^:].*")  # as ssh has it: git@host:path
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
SSH = "ssh -oBatchMode=yes"
ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "GIT_TERMINAL_PROMPT": "0"}


def check(url: str, ref: str) -> None:
    """Refuses what git could take for an option, a helper program or a way out of the repository. Raises LeadlineError."""
    plain = url.isprintable() and " " not in url and not url.startswith("-") and "::" not in url and "://-" not in url
    if not plain or not (url.startswith(("/", *SCHEMES)) or _HOST_AND_PATH.fullmatch(url)):
        hint = "https://HOST/PATH, ssh://HOST/PATH, git@HOST:PATH, or a path that begins with /"
        raise LeadlineError("usage", "that is no address of a repository", hint=hint, where=url[:200])
    if re.search(r"://[^/@]*:[^/@]*@", url):
        raise LeadlineError("usage", "a password in the address would be seen by all", hint="use a key of ssh", where="url")
    if not _REF.fullmatch(ref) or ".." in ref or ref.endswith((".lock", "/", ".")) or "@{" in ref:
        raise LeadlineError("usage", "that is no branch, tag or commit", hint="main, v1.2 or a commit id", where=ref[:200])


def check_out(url: str, ref: str, key: str = "") -> str:
    """The id of the commit that the current directory, which must be empty, has now. key: file of a key for ssh. Raises LeadlineError."""
    check(url, ref)
    with_key = f" -oIdentitiesOnly=yes -i {shlex.quote(key)}" if key else ""
    _git("clone", "--quiet", "--no-checkout", "--", url, ".", ssh=SSH + with_key)
    for name in (f"refs/remotes/origin/{ref}", f"refs/tags/{ref}", ref):
        found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", must=False)
        if found:
            _git("checkout", "--quiet", "--detach", found)
            return found
    raise LeadlineError("not_found", f"the repository has no {ref}", hint="a branch, a tag or a commit id", where=url)


def _git(*words: str, must: bool = True, ssh: str = SSH) -> str:
    environment = os.environ | ENVIRONMENT | {"GIT_SSH_COMMAND": ssh}
    try:
        done = subprocess.run(["git", *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    except OSError as e:
        raise LeadlineError("unsupported", f"git cannot be started: {e.strerror}", hint="install git on this host") from None
    if done.returncode != 0 and must:
        raise LeadlineError("invalid", f"git {words[0]} ended with {done.returncode}", hint="its own words are above")
    return done.stdout.strip()


def note(commit: str) -> None:
    """In the run that we are part of, as a label. What cannot be written is told by the log all the same."""
    place, uid = find_place(), os.environ.get(PARENT, "")
    if place is None or not uid:
        return
    event = {"n": 0, "ts": time.time_ns() // 1000, "kind": "label", "key": "commit", "value": commit}
    try:
        fd = os.open(place.spool_name(uid), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        with open(fd, "wb") as spool:
            spool.write(as_json(event).encode() + b"\n")
    except OSError:
        return


def main(*words: str) -> int:
    key, words = (words[1], words[2:]) if words[0] == "--key" else ("", words)
    url, ref, *command = words
    try:
        commit = check_out(url, ref, key)
    except LeadlineError as e:
        print(f"leadline: {e.message} ({e.where or e.hint})", file=sys.stderr, flush=True)
        return 128
    finally:
        if key:
            os.unlink(key)
    note(commit)
    print(f"leadline: {ref} of {url} is {commit}", file=sys.stderr, flush=True)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        print(f"leadline: {command[0]} cannot be started: {e.strerror}", file=sys.stderr, flush=True)
        return 127 if isinstance(e, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
