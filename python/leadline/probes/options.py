"""The options of a capture of a server or a host, and what of them cannot be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError
from leadline.probes.host import DEFAULT_RATE_HZ as HOST_RATE_HZ

if TYPE_CHECKING:
    from leadline.probes.pcap_filter import Filter

TIERS = ("auto", "shm", "sql")
PROBES = ("sessions", "host", "sockets", "kernel", "wire")
UNASKED = ("sessions", "host", "sockets")  # without --probes
MIN_RATE_HZ, MAX_RATE_HZ, MAX_SQL_RATE_HZ = 1.0, 10_000.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """for_s: seconds. rate_hz: passes a second, 1 to 10,000 (over SQL at most 10), 100 unless given; with `host`, which needs no
    server, readings of the host, 0.1 to 10, 1 unless given. out: the capture directory, or an existing directory to put it in; None for
    leadline-DATE-TIME.leadline here. overwrite: replace a capture that is there. probes: names of PROBES; None
    for those of UNASKED, as far as the target allows. kernel_tier: how threads are traced, one of kernel.TIERS;
    kernel_detail: one of kernel.DETAILS. kernel_budget: CPU time that tracing may take, as a share of one core.
    kernel_retransmits: with the TCP segments that the host retransmits. only: the packets that are wanted. keep_going: when one probe
    fails, the others go on. stop_with_server: end with an error when the server ends or restarts; else sampling goes on when it is
    back. pooler: connection string of the console of a PgBouncer before the server, which is asked with the others.
    others: connection strings of servers that replicate to or from the target, which are watched with it; ssh:HOST is watched by a
    leadline there.
    recorder: of a piece of `leadline record`: its number in the row, and which process made it.
    """

    for_s: float
    dsn: str | None = None
    pid: int | None = None
    data_dir: str | Path | None = None
    host: bool = False
    rate_hz: float | None = None
    out: Path | None = None
    overwrite: bool = False
    tier: str = "auto"
    probes: Collection[str] | None = None
    kernel_tier: str = "auto"
    kernel_detail: str = "events"
    kernel_budget: float = 0.3
    kernel_retransmits: bool = False
    only: Filter | None = None
    keep_going: bool = False
    stop_with_server: bool = False
    pooler: str | None = None
    others: Sequence[str] = ()
    recorder: Mapping[str, Any] | None = None

    @property
    def rate(self) -> float:
        return (HOST_RATE_HZ if self.host else 100.0) if self.rate_hz is None else self.rate_hz

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the probes that are wanted."""
        wanted = UNASKED if self.probes is None else self.probes
        return ("host",) if self.host else tuple(name for name in PROBES if name in wanted)

    @property
    def kernel(self) -> dict[str, Any]:
        return {
            "tier": self.kernel_tier, "detail": self.kernel_detail, "budget": self.kernel_budget, "retransmits": self.kernel_retransmits,
        }  # fmt: skip

    def recorded(self) -> dict[str, Any]:
        """As the manifest has them."""
        found: dict[str, Any] = {"for_s": self.for_s, "rate_hz": self.rate, "tier": self.tier, "probes": list(self.chosen)}
        found |= {"keep_going": self.keep_going, "stop_with_server": self.stop_with_server}
        if "kernel" in self.chosen:
            found |= {f"kernel_{name}": value for name, value in self.kernel.items()}
        if self.recorder is not None:
            found["recorder"] = dict(self.recorder)
        return found | ({} if self.only is None else {"filter": self.only.expression})

    def check(self) -> None:
        """Raises LeadlineError('usage')."""
        unknown = sorted(set(self.probes or ()) - set(PROBES))
        if unknown or (self.probes is not None and not self.probes):
            what = f"no probe named {unknown[0]}" if unknown else "no probe was chosen"
            raise LeadlineError("usage", what, hint="probes: " + ", ".join(PROBES))
        if self.host and self.probes is not None and set(self.probes) != {"host"}:
            raise LeadlineError("usage", "with --host the only probe is host", hint="remove --probes, or name a server")
        if self.tier not in TIERS:
            raise LeadlineError("usage", f"no tier named {self.tier}", hint="tiers: " + ", ".join(TIERS))
        if not self.for_s > 0:
            raise LeadlineError("usage", "the window must be longer than nothing", hint="--for 60s")
        if not self.host and not MIN_RATE_HZ <= self.rate <= MAX_RATE_HZ:
            raise LeadlineError(
                "usage",
                f"a rate of {self.rate:g} passes a second is not possible",
                hint=f"{MIN_RATE_HZ:g} to {MAX_RATE_HZ:,.0f} passes per second; over SQL at most {MAX_SQL_RATE_HZ:g}",
            )
        if self.host and (self.dsn is not None or self.pid is not None or self.data_dir is not None):
            hint = "leave out --host: a server on this host is measured with it"
            raise LeadlineError("usage", "--host measures the host alone", hint=hint)
        if self.only is not None and "wire" not in self.chosen:
            raise LeadlineError("usage", "--filter is for packets, which are not captured", hint="add --packets")
