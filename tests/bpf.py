"""Whether this kernel takes BPF programs from us: without them nothing can be traced, and tests of it are skipped."""

from __future__ import annotations

import pytest
from leadline._core import kernel
from leadline.errors import LeadlineError


def refusal() -> str:
    """What the kernel says against it; empty when it takes them."""
    try:
        kernel.check()
    except LeadlineError as e:
        return f"{e.message}: {e.detail}"
    return ""


REFUSAL = refusal()
needs_bpf = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "BPF")
