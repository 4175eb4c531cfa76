"""A playbook to be run: its command line, and files for what must not be in it.

Values and secrets are files of mode 0600 in a directory of mode 0700 in memory, which is removed at the end: nothing secret is in the
arguments, the environment or on a disk. What is typed by who starts the run (`inputs`, `secrets`) reaches Ansible as plain text:
a `{{` in it is never evaluated.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.book.ansible.installed import PLUGIN_PATHS, install
from leadline.errors import LeadlineError
from leadline.host import proc

if TYPE_CHECKING:
    from leadline.book.supervisor import Request

PROGRAM = "ansible-playbook"
INTERRUPTED = 99  # its exit code after Ctrl-C
SECRETS = "LEADLINE_SECRETS"  # in the environment: the path of a file with what the plugin must take out
JOIN = "LEADLINE_ANSIBLE_RUN"  # in the environment: the uid of the run that the events belong to
_PREFIX = "leadline-playbook-"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VAULT_ID = re.compile(r"[A-Za-z0-9_.-]+")
ROLES = ("vault_password", "become_password", "connection_password", "private_key")
_FROM_TEMPLATE = ("limit", "tags", "skip_tags", "check", "diff", "variables", "forks", "user", "become", "become_user", "verbosity")
_USER = re.compile(r"[A-Za-z0-9_.@\\][A-Za-z0-9_.@\\-]*")


@dataclass(frozen=True)
class Playbook:
    """What to run. variables: may hold templates of Ansible; inputs, secrets: values alone. vault_passwords: by vault id; `default`."""

    path: str
    inventories: Sequence[str] = ()
    inventory_text: str = ""
    limit: str = ""
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    start_at_task: str = ""
    check: bool = False
    diff: bool = False
    forks: int | None = None
    user: str = ""
    become: bool = False
    become_user: str = ""
    verbosity: int = 0
    variables: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    vault_passwords: Mapping[str, str] = field(default_factory=dict)
    become_password: str = ""
    connection_password: str = ""
    private_key: str = ""
    more: Sequence[str] = ()  # further arguments for ansible-playbook, as they are
    program: str = PROGRAM
    in_checkout: bool = False  # paths are of a repository that is not there yet

    @staticmethod
    def of_template(
        spec: Mapping[str, Any], inputs: Mapping[str, Any], secrets: Mapping[str, str], *, in_checkout: bool = False
    ) -> Playbook:
        """What a template says, with the answers and secrets it got. Secrets of the names in ROLES are no variables: they open vaults,
        log in or become root. Raises LeadlineError."""
        known = ("playbook", "inventory", *_FROM_TEMPLATE)
        if unknown := sorted(set(spec) - set(known)):
            raise LeadlineError("usage", f"a template of Ansible has no {unknown[0]}", hint=", ".join(known))
        given = {name: spec[name] for name in _FROM_TEMPLATE if spec.get(name) not in (None, "")}
        for name in ("tags", "skip_tags"):
            if isinstance(given.get(name), str):
                given[name] = [tag.strip() for tag in given[name].split(",") if tag.strip()]
        inventory = str(spec.get("inventory") or "")
        where: dict[str, Any] = {"inventory_text": inventory} if "\n" in inventory else {"inventories": [inventory] if inventory else []}
        roles: dict[str, Any] = {name: secrets[name] for name in ROLES if name != "vault_password" and secrets.get(name)}
        if secrets.get("vault_password"):
            roles["vault_passwords"] = {"default": secrets["vault_password"]}
        variables = {name: value for name, value in secrets.items() if name not in ROLES and value}
        return Playbook(str(spec["playbook"]), inputs=inputs, secrets=variables, in_checkout=in_checkout, **where, **given, **roles)

    def known_secrets(self) -> list[str]:
        values = [*self.secrets.values(), *self.vault_passwords.values(), self.become_password, self.connection_password, self.private_key]
        return [value for value in values if value]


@dataclass(frozen=True)
class Prepared:
    """Ready to be started. environment: what to add to one's own. secrets: what must not be in the log, in whatever form.

    The files stay while we live, and while a run that was asked for by `request` does; then any later `prepare` removes them.
    """

    argv: list[str]
    environment: dict[str, str]
    secrets: list[str]
    directory: Path
    uid: str = ""

    def request(self, name: str, labels: Mapping[str, str] | None = None, **more: Any) -> Request:
        """What the supervisor is asked to run: events of the plugin and output become one run. It removes the files at its end."""
        from leadline.book.supervisor import Request

        files = [str(path) for path in self.directory.iterdir()]
        own: dict[str, Any] = {"uid": self.uid} if self.uid else {}
        return Request(
            self.argv, kind="ansible", name=name, labels=dict(labels or {}), env=self.environment, secrets=self.secrets, remove=files,
            interrupted_code=INTERRUPTED, **own, **more,
        )  # fmt: skip

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def prepared(playbook: Playbook, *, uid: str = "") -> Iterator[Prepared]:
    """For the time of the block. uid: of the run that it is part of. Raises LeadlineError."""
    ready = prepare(playbook, uid=uid)
    try:
        yield ready
    finally:
        ready.remove()


def prepare(playbook: Playbook, *, uid: str = "") -> Prepared:
    """Checks what was given and writes the files; the caller calls remove(). Raises LeadlineError."""
    sweep()
    _check(playbook)
    plugin = install()
    owner = os.getpid()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}-{proc.start_ticks(owner)}-", dir=memory_directory()))
    try:
        argv = [playbook.program, *_inventories(playbook, directory), *_options(playbook), *_secret_options(playbook, directory)]
        for name, values in (("variables", playbook.variables), ("inputs", playbook.inputs), ("secrets", playbook.secrets)):
            if values:
                argv += ["-e", f"@{_write(directory / f'{name}.yml', variables_text(values, trusted=name == 'variables'))}"]
        argv += [*playbook.more, "--", playbook.path]
        known = playbook.known_secrets()
        environment = {
            PLUGIN_PATHS: with_plugin(os.environ, plugin), "PYTHONUNBUFFERED": "1",
            SECRETS: str(_write(directory / "known.json", json.dumps(known))), JOIN: uid,
        }  # fmt: skip
        return Prepared(argv, {name: value for name, value in environment.items() if value}, known, directory, uid)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def with_plugin(environment: Mapping[str, str], plugin: Path) -> str:
    """The paths where Ansible looks for callback plugins, and ours."""
    home = environment.get("HOME", os.path.expanduser("~"))
    before = environment.get(PLUGIN_PATHS) or f"{home}/.ansible/plugins/callback:/usr/share/ansible/plugins/callback"
    return before if str(plugin) in before.split(":") else f"{before}:{plugin}"


def variables_text(values: Mapping[str, Any], *, trusted: bool) -> str:
    """YAML for Ansible. Not trusted: every text is marked so that Ansible never evaluates it."""
    return "---\n" + "".join(f"{name}: {_yaml(value, trusted)}\n" for name, value in values.items())


def memory_directory() -> str:
    """A directory whose files are never on a disk, if there is one."""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"):
        if place and _is_in_memory(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return tempfile.gettempdir()


def sweep() -> int:
    """Removes what runs left behind whose processes are gone; how many."""
    places = {memory_directory(), tempfile.gettempdir()}
    left = [found for place in places for found in Path(place).glob(f"{_PREFIX}*") if _is_left(found)]
    for directory in left:
        shutil.rmtree(directory, ignore_errors=True)
    return len(left)


def _is_left(directory: Path) -> bool:
    """Who made it is gone, and no run uses it. Its name has the pid, and when that process began."""
    from leadline.book.supervisor import is_held

    try:
        about = directory.lstat()
        pid, started = directory.name.removeprefix(_PREFIX).split("-")[:2]
        ours = about.st_uid == os.getuid() and stat.S_ISDIR(about.st_mode)
        return ours and proc.start_ticks(int(pid)) != int(started) and not is_held(directory)
    except (OSError, ValueError):
        return False


def _yaml(value: Any, trusted: bool) -> str:
    if isinstance(value, str):
        # Double-quoted as JSON has it, but for characters above U+FFFF, which YAML writes otherwise.
        escaped = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
        return f'"{escaped}"' if trusted else f'!unsafe "{escaped}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml(str(name), True)}: {_yaml(one, trusted)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml(one, trusted) for one in value) + "]"
    return json.dumps(value)


def _inventories(playbook: Playbook, directory: Path) -> list[str]:
    paths = [path if playbook.in_checkout else os.path.abspath(path) for path in playbook.inventories]
    words = [word for path in paths for word in ("-i", path)]
    if playbook.inventory_text:
        words += ["-i", str(_write(directory / "hosts", playbook.inventory_text))]
    return words


def _options(playbook: Playbook) -> list[str]:
    words = [f"--limit={playbook.limit}"] if playbook.limit else []
    words += [f"--tags={','.join(playbook.tags)}"] if playbook.tags else []
    words += [f"--skip-tags={','.join(playbook.skip_tags)}"] if playbook.skip_tags else []
    words += [f"--start-at-task={playbook.start_at_task}"] if playbook.start_at_task else []
    words += [word for word, wanted in (("--check", playbook.check), ("--diff", playbook.diff), ("--become", playbook.become)) if wanted]
    words += [f"--become-user={playbook.become_user}"] if playbook.become_user else []
    words += [f"--user={playbook.user}"] if playbook.user else []
    words += [f"--forks={playbook.forks:d}"] if playbook.forks is not None else []
    return words + (["-" + "v" * min(playbook.verbosity, 4)] if playbook.verbosity > 0 else [])


def _secret_options(playbook: Playbook, directory: Path) -> list[str]:
    words = []
    for number, (name, password) in enumerate(playbook.vault_passwords.items()):
        words.append(f"--vault-id={name}@{_write(directory / f'vault{number}', password)}")
    if playbook.become_password:
        words.append(f"--become-password-file={_write(directory / 'become', playbook.become_password)}")
    if playbook.connection_password:
        words.append(f"--connection-password-file={_write(directory / 'connection', playbook.connection_password)}")
    if playbook.private_key:
        words.append(f"--private-key={_write(directory / 'key', playbook.private_key.rstrip() + chr(10))}")
    return words


def _write(path: Path, text: str) -> Path:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return path


def _check(playbook: Playbook) -> None:
    """What could be taken for something else by Ansible is refused. Raises LeadlineError."""
    texts = {
        "playbook": playbook.path, "limit": playbook.limit, "start_at_task": playbook.start_at_task, "user": playbook.user,
        "become_user": playbook.become_user, **{f"inventory {n}": path for n, path in enumerate(playbook.inventories, 1)},
        **{f"tag {n}": tag for n, tag in enumerate((*playbook.tags, *playbook.skip_tags), 1)},
    }  # fmt: skip
    for name, value in texts.items():
        if value.startswith("-") or any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise LeadlineError("usage", f"the {name} must not begin with - or hold control characters", where=repr(value)[:200])
    if playbook.limit.startswith("@") or any(part.strip().startswith("@") for part in re.split("[,:;]", playbook.limit)):
        raise LeadlineError("usage", "the limit must not name a file", where=playbook.limit)
    if any("," in tag for tag in (*playbook.tags, *playbook.skip_tags)):
        raise LeadlineError("usage", "a tag has no comma", where=", ".join((*playbook.tags, *playbook.skip_tags)))
    if not playbook.in_checkout:
        if not os.path.isfile(playbook.path):
            raise LeadlineError("not_found", "there is no such playbook", where=playbook.path)
        for path in playbook.inventories:
            if not os.path.exists(path):
                raise LeadlineError("not_found", "there is no such inventory", where=path)
    for user in (playbook.user, playbook.become_user):
        if user and not _USER.fullmatch(user):
            raise LeadlineError("usage", "that is no name of a user", where=user)
    for name in (*playbook.variables, *playbook.inputs, *playbook.secrets):
        if not _NAME.fullmatch(name):
            raise LeadlineError("usage", "that is no name of a variable", where=name, hint="letters, digits and _; not a digit first")
    for name in playbook.vault_passwords:
        if not _VAULT_ID.fullmatch(name):
            raise LeadlineError("usage", "that is no vault id", where=name)
    passwords = {"connection": playbook.connection_password, "become": playbook.become_password, **playbook.vault_passwords}
    for name, password in passwords.items():
        if "\n" in password.strip("\n"):
            raise LeadlineError("usage", "a password is one line", where=name)
    if playbook.forks is not None and not 1 <= playbook.forks <= 10_000:
        raise LeadlineError("usage", "forks are 1 to 10000", where=str(playbook.forks))


def _is_in_memory(path: str) -> bool:
    found, kind = "", ""
    for line in (proc.read_text("/proc/self/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 2 and os.path.commonpath([fields[1], os.path.realpath(path)]) == fields[1] and len(fields[1]) >= len(found):
            found, kind = fields[1], fields[2]
    return kind in ("tmpfs", "ramfs")
