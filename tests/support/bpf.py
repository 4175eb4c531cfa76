"""Which tiers this kernel allows us to trace on: tests of the others are skipped."""

from __future__ import annotations

import pytest
from leadline._core import kernel
from leadline.errors import LeadlineError


def refusal(tier: str) -> str:
    """What the kernel says against a tier; empty when it works."""
    try:
        kernel.check(tier)
    except LeadlineError as e:
        return f"{e.message}: {e.detail}"
    return ""


def needs(tier: str, why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(why), reason=why or tier)


KERNEL_REFUSES = refusal("bpf")
needs_bpf, needs_perf = needs("bpf", KERNEL_REFUSES), needs("perf", refusal("perf"))
on_each_tier = pytest.mark.parametrize("tier", [pytest.param("bpf", marks=needs_bpf), pytest.param("perf", marks=needs_perf)])
