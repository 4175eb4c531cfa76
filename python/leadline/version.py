"""The version of the product, as the compiled core has it."""

from __future__ import annotations


def version() -> str:
    from leadline._core import VERSION

    return VERSION
