"""The rules: each looks at one failed call, or at one process, and says what it explains, or nothing."""

from __future__ import annotations

from collections.abc import Callable

from leadline.why.cause import Cause
from leadline.why.causes import files, limits, mounts, network, programs, rights, signals, space
from leadline.why.seen import Failure, Process, Seen

OF_CALLS: tuple[Callable[[Failure], Cause | None], ...] = (
    mounts.no_exec,
    mounts.read_only,
    programs.missing_interpreter,
    programs.wrong_architecture,
    space.no_space,
    limits.open_files,
    limits.processes,
    limits.file_size,
    limits.memory,
    rights.refused_by_filter,
    rights.denied,
    rights.not_permitted,
    network.not_connected,
    network.address_in_use,
    files.program_not_found,
    files.absent,
)
OF_PROCESSES: tuple[Callable[[Seen, Process], Cause | None], ...] = (
    programs.missing_library,
    network.name_not_found,
    rights.setuid_lost,
    signals.died,
)
