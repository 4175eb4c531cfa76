"""leadline._core: every submodule that has a stub can be imported by its name, and is where its classes say they are."""

from __future__ import annotations

import importlib
import inspect
from importlib import resources

import leadline
from leadline import _core

STUBS = [file.name.removesuffix(".pyi") for file in (resources.files(leadline) / "_core").iterdir() if file.name.endswith(".pyi")]
SUBJECTS = sorted(set(STUBS) - {"__init__"})


def test_each_submodule_is_imported_by_name() -> None:
    assert SUBJECTS
    for subject in SUBJECTS:
        module = importlib.import_module(f"leadline._core.{subject}")
        assert module is getattr(_core, subject)
        for name, member in inspect.getmembers(module, inspect.isclass):
            assert (member.__module__, member.__name__) == (module.__name__, name)


def test_nothing_is_left_beside_the_submodules() -> None:
    assert sorted(_core.__all__) == sorted(["VERSION", *SUBJECTS])
