"""Processes beside a recorder."""

from __future__ import annotations

import pytest
from conftest import wait_until
from leadline.recorder.child import Child


def test_a_child_gets_what_it_is_told_and_needs_no_directory_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service with ProtectSystem=strict."""
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    child = Child("json.tool", ["--compact"], told='{"password": "geheim"}')
    assert wait_until(child.result) == {"password": "geheim"}
