"""The plugin where Ansible finds it: a copy in a directory of its own, whose path stays when leadline or its Python is upgraded."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from leadline.errors import LeadlineError

NAME = "leadline_book.py"
PLUGIN_PATHS = "ANSIBLE_CALLBACK_PLUGINS"
DEFAULT_PATHS = "$HOME/.ansible/plugins/callback:/usr/share/ansible/plugins/callback"  # what Ansible looks at by itself


def directory() -> Path:
    """Of this user; it is there after `install`."""
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share") / "leadline" / "ansible"


def own_text() -> bytes:
    return resources.files("leadline.book.ansible").joinpath("plugin").joinpath(NAME).read_bytes()


def install() -> Path:
    """The directory, with the plugin of this leadline in it. Raises LeadlineError."""
    at = directory()
    try:
        at.mkdir(parents=True, exist_ok=True)
        if not is_current(at):
            new = at / f".{NAME}.{os.getpid()}"
            new.write_bytes(own_text())
            new.replace(at / NAME)
    except OSError as e:
        raise LeadlineError("storage", f"the plugin cannot be written: {e.strerror}", where=str(at / NAME)) from e
    return at


def is_current(at: Path) -> bool:
    try:
        return (at / NAME).read_bytes() == own_text()
    except OSError:
        return False
