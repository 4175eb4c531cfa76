"""What needs an extra says so at once, in one line, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from example_capture import example
from leadline.demo.run import run_demo
from leadline.errors import LeadlineError
from leadline.progress import Silent
from leadline.views.report import write_report


@pytest.mark.parametrize("extra", ["demo", "report"])
def test_without_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: str) -> None:
    capture, out = example(tmp_path / "made").write(), tmp_path / "out"
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> ModuleSpec | None:
        return None if name == "vl_convert" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(LeadlineError) as told:
        if extra == "demo":
            run_demo(out, announce=print, progress=Silent())
        else:
            write_report(capture, out)
    assert told.value.kind == "unsupported" and not told.value.detail
    assert told.value.message.endswith(f"needs the package vl-convert-python: pip install 'leadline[{extra}]'")
    assert not out.exists()
