"""What a scenario is: a function that plants trouble on a server, and says afterwards what must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servers import MAJORS, Fetched

if TYPE_CHECKING:
    from matrix.ground import Ground

COST_WITHIN = 0.1
"""How far a cost may be from the truth."""


@dataclass(frozen=True)
class Expected:
    """One finding. subject: all of it. says: what its statement must contain. cost_s: the truth, as the scenario has measured it.

    severity: at least. figures: the truth of columns of the first row of evidence, within COST_WITHIN.
    """

    rule: str
    subject: str
    cost_s: float | None = None
    says: tuple[str, ...] = ()
    severity: str = "low"
    figures: Mapping[str, float] = field(default_factory=dict)


Truth = Callable[[], list[Expected]]
"""Asked when the capture has ended and what was planted is still there."""
Plant = Callable[["Ground"], Iterator[Truth]]


@dataclass(frozen=True)
class Scenario:
    """beside: rules that may fire above `low` with what was planted, as parts or consequences of it. never: rules that must not fire.

    clean: a load without trouble: no rule may fire above `low`. busy: its clients need CPUs; the others wait nearly all of the time.
    loopback: the server also listens on 127.0.0.1. fetched: gives a server of another make than the one that tests fetch of the major.
    """

    name: str
    about: str
    plant: Callable[[Ground], AbstractContextManager[Truth]]
    majors: tuple[int, ...]
    settings: Mapping[str, Any]
    window_s: float
    thresholds: Mapping[str, float]
    beside: frozenset[str]
    never: frozenset[str]
    clean: bool
    busy: bool
    tier: str
    loopback: bool
    fetched: Callable[[int], Fetched] | None


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *,
    majors: tuple[int, ...] = MAJORS,
    settings: Mapping[str, Any] | None = None,
    window_s: float = 3.0,
    thresholds: Mapping[str, float] | None = None,
    beside: tuple[str, ...] = (),
    never: tuple[str, ...] = (),
    clean: bool = False,
    busy: bool = False,
    tier: str = "shm",
    loopback: bool = False,
    fetched: Callable[[int], Fetched] | None = None,
) -> Callable[[Plant], Plant]:
    """Registers a generator function as a scenario of its name. It plants, yields how to ask for the truth, and cleans up."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__
        assert name not in SCENARIOS, f"two scenarios are named {name}"
        about = " ".join((plant.__doc__ or "").split())
        assert about, f"{name} has no docstring"
        SCENARIOS[name] = Scenario(
            name, about, contextmanager(plant), majors, settings or {}, window_s, thresholds or {}, frozenset(beside), frozenset(never),
            clean, busy, tier, loopback, fetched,
        )  # fmt: skip
        return plant

    return register
