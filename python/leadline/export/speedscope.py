"""A profile for https://www.speedscope.app: its own JSON, as https://www.speedscope.app/file-format-schema.json has it."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.export.profile import Profile
from leadline.output import to_json
from leadline.version import version

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(profile: Profile) -> Iterator[bytes]:
    """The file, in parts. A stack without weight is left out: speedscope refuses samples that are not positive.

    Weights are whole ns: speedscope adds them as doubles, which is exact up to 2^53 ns, 104 days of sessions.
    """
    stacks = [stack for stack in profile.stacks if stack.weight > 0]
    frames: dict[str, int] = {}
    samples = [[frames.setdefault(name, len(frames)) for name in stack.path] for stack in stacks]
    head = {
        "$schema": SCHEMA,
        "exporter": f"leadline {version()}",
        "name": profile.title,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
    }
    unit = "none" if profile.unit == "count" else profile.unit  # the units that speedscope knows
    of = {"type": "sampled", "name": profile.title, "unit": unit, "startValue": 0, "endValue": sum(s.weight for s in stacks)}
    of |= {"samples": samples, "weights": [stack.weight for stack in stacks]}
    yield to_json(head)[:-1].encode() + b', "profiles": ['
    yield to_json(of).encode() + b"]}\n"
