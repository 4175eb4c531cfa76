"""The rules: each looks at one failed call, at one process or at what it wrote, and says what it explains, or nothing.

Of a call the first answer counts: a rule that knows a narrower case stands before one that knows a wider one.
"""

from __future__ import annotations

from collections.abc import Callable

from leadline.why.cause import Cause
from leadline.why.causes import busy, files, limits, messages, mounts, network, paths, programs, rights, signals, space
from leadline.why.seen import Failure, Process, Seen

OF_CALLS: tuple[Callable[[Failure], Cause | None], ...] = (
    rights.refused_by_filter,
    mounts.no_exec,
    mounts.read_only,
    programs.missing_interpreter,
    programs.wrong_architecture,
    limits.inotify_instances,
    limits.inotify_watches,
    space.no_space,
    limits.open_files,
    limits.processes,
    limits.file_size,
    limits.locked_memory,
    busy.system_v,
    busy.huge_pages,
    busy.asynchronous_io,
    busy.locked,
    busy.program_in_use,
    busy.in_use,
    paths.other_file_system,
    paths.name_too_long,
    paths.circle_of_links,
    paths.too_many_arguments,
    limits.memory,
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
    signals.timed_out,
)
OF_MESSAGES: tuple[Callable[[Process], Cause | None], ...] = (messages.told,)
