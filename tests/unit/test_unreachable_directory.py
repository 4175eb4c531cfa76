"""A data directory below one that may not be entered is not missing: it is said who may not enter what."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.files import recovery
from leadline.progress import TerminalLine
from setpriv import needs_root

NOBODY = 65534


@needs_root
@pytest.mark.parametrize("by_link", [False, True])
def test_recover_as_root_works_as_the_owner_who_cannot_reach_it(by_link: bool) -> None:
    with tempfile.TemporaryDirectory() as closed:  # which only root may enter
        data = Path(closed, "data")
        data.mkdir()
        os.chown(data, NOBODY, NOBODY)
        with tempfile.TemporaryDirectory() as place:
            Path(place).chmod(0o755)
            given = data
            if by_link:
                given = Path(place, "link")
                given.symlink_to(data)
            with pytest.raises(LeadlineError) as caught:
                recovery.recover(str(given), None, None, dry_run=True, line=TerminalLine())
    assert (caught.value.kind, caught.value.message) == ("rights", "the owner of the data directory cannot reach it")
    assert caught.value.detail == f"leadline recovers as the owner of the files, uid {NOBODY}, who may not enter {closed}"
    assert (caught.value.hint, caught.value.where) == (f"chmod o+x {closed}", str(given))
    assert os.geteuid() == 0


ASKED = """
import os, sys
from leadline._core.rows import database_names
from leadline.errors import LeadlineError
if sys.argv[2] == "nobody":
    os.setresuid(65534, 65534, 65534)
try:
    database_names(sys.argv[1])
except LeadlineError as e:
    print(e.as_text())
"""


@needs_root
def test_what_reads_it_as_another_user() -> None:
    with tempfile.TemporaryDirectory() as closed:
        data = Path(closed, "data")
        data.mkdir()
        words = [sys.executable, "-c", ASKED, str(data)]
        reached, not_reached = (
            subprocess.run([*words, user], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
            for user in ("root", "nobody")
        )
    assert reached[0] == "error: not a PostgreSQL data directory"
    assert not_reached[:2] == ["error: cannot read the data directory", f"  at: {data}"]
