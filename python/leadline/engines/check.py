"""What `doctor` has looked at: the checks of the host, and those of an engine."""

from __future__ import annotations

from dataclasses import asdict, dataclass

OK, LIMITED, MISSING, INFO = "ok", "limited", "missing", "info"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. status: ok, limited, missing or info. effect: what is lost. command: what would allow it."""

    area: str
    name: str
    status: str
    found: str
    effect: str = ""
    command: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def judge(area: str, name: str, good: bool, found: str, effect: str, command: str = "", bad: str = MISSING) -> Check:
    """A check that is either fine, or costs `effect` and is mended by `command`."""
    return Check(area, name, OK, found) if good else Check(area, name, bad, found, effect, command)
