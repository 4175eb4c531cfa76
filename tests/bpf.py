"""Whether this kernel takes BPF programs from us: without them nothing can be traced, and tests of it are skipped."""

from __future__ import annotations

import pytest
from leadline._core import kernel
from leadline.errors import LeadlineError


def refusal() -> str:
    """What the kernel says against it; empty when it takes them."""
    try:
        kernel.check("bpf")
    except LeadlineError as e:
        return f"{e.message}: {e.detail}"
    return ""


KERNEL_REFUSES = refusal()
needs_bpf = pytest.mark.skipif(bool(KERNEL_REFUSES), reason=KERNEL_REFUSES or "BPF")
