"""A systemd unit that runs a recorder, with the least rights that its probes need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STATE = Path("/var/lib")  # below it, systemd makes the directory and gives it to the user
MEMORY = 512  # MB for a server
LOCAL = ("AF_UNIX", "AF_NETLINK")  # netlink: what sockets of the server do
NETWORK = (*LOCAL, "AF_INET", "AF_INET6")
WHY = {
    "CAP_CHECKPOINT_RESTORE": "maps the server's memory; without it, each pass copies what it needs and costs more",
    "CAP_SYS_NICE": "passes begin on time, also beside a busy server",
}
CAPABILITIES = tuple(WHY)
OWN = ("StateDirectory={}", "StateDirectoryMode=0700")
OTHERS = ("# It must exist and belong to the user.", "ReadWritePaths={}")

TEXT = """\
# Write it to /etc/systemd/system/{name}.service, then: systemctl daemon-reload; systemctl enable --now {name}
[Unit]
Description=leadline recorder of {what}
After=network.target postgresql.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{variables}{user}
Restart=always
RestartSec=5s
{directory}

{why}AmbientCapabilities={capabilities}
CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
{network}

# Not here, because it would hide the server: PrivateTmp, PrivateUsers, PrivatePIDs, ProtectProc, PrivateNetwork.
ProtectSystem=strict
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0077
MemoryMax={memory}M
OOMScoreAdjust=500

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Wanted:
    """command: words of the recorder. what: the server, for people. user: as whom it runs; empty for a user of its own, who owns nothing.

    directory: that of the recorder, absolute. over_network: the server is asked over TCP. of_server: not only the host is watched.
    on_loopback: it gives metrics to this host. variables: it takes what is not for a command line from the environment. servers: how many,
    each with a process of its own.
    """

    command: Sequence[str]
    what: str
    user: str
    directory: Path
    over_network: bool
    of_server: bool = True
    on_loopback: bool = False
    variables: bool = False
    servers: int = 1


def unit(wanted: Wanted) -> str:
    capabilities = CAPABILITIES if wanted.of_server else ()
    families = NETWORK if wanted.over_network or wanted.on_loopback else LOCAL
    network = [f"RestrictAddressFamilies={' '.join(families)}", *([] if wanted.over_network else ["IPAddressDeny=any"])]
    network += ["IPAddressAllow=localhost"] * (wanted.on_loopback and not wanted.over_network)
    own, name = is_state(wanted.directory), name_of(wanted.directory)
    return TEXT.format(
        name=name, what=_escaped(wanted.what), command=" ".join(map(_word, wanted.command)),
        variables=f"# Such as OTEL_EXPORTER_OTLP_HEADERS.\nEnvironmentFile=-/etc/default/{name}\n" * wanted.variables,
        user=f"User={wanted.user}" if wanted.user else "DynamicUser=yes",
        directory="\n".join(OWN if own else OTHERS).format(_path(wanted.directory.relative_to(STATE) if own else wanted.directory)),
        why="".join(f"# {capability}: {WHY[capability]}.\n" for capability in capabilities), capabilities=" ".join(capabilities),
        network="\n".join(network), memory=MEMORY * wanted.servers,
    )  # fmt: skip


def name_of(directory: Path) -> str:
    """Of the unit that records into a directory."""
    return f"leadline-record-{re.sub(r'[^A-Za-z0-9]', '-', directory.name)}"


def is_state(directory: Path) -> bool:
    """Whether systemd makes the directory and gives it to the user of the unit."""
    return directory.is_relative_to(STATE) and directory != STATE


def records_into(text: str, directory: Path) -> bool:
    """Whether a unit of ours does."""
    return any(line.startswith("ExecStart=") and f" {_word(f'--to={directory}')} " in f"{line} " for line in text.splitlines())


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("%", "%%")


def _path(path: Path) -> str:
    """In quotes, as a list of paths has one that has blanks."""
    return f'"{_quoted(str(path))}"'


def _word(word: str) -> str:
    """One argument of ExecStart: systemd has its own quotes, specifiers and variables."""
    quoted = _quoted(word).replace("$", "$$")
    return quoted if quoted and not set(quoted) & set(" \t\n'\";\\") else f'"{quoted}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
