"""What the kernel does about the faults of the CPU that programs could use: it costs time, and may be switched off."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.host import files


def mitigations() -> Iterator[tuple[str, str, str]]:
    """Rows of host_fact, one for each fault; none where the kernel does not say."""
    directory = f"{files.SYS}/devices/system/cpu/vulnerabilities"
    for name in files.inside(directory):
        if (text := files.read_text(f"{directory}/{name}")) is not None:
            yield f"cpu.mitigation.{name}", " ".join(text.split()), f"{directory}/{name}"
