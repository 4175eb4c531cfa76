"""Rules that no scenario plants: where they are planted, or why that cannot be done."""

from __future__ import annotations

from leadline.findings import all_findings

BY_HAND = "needs the packets of another host (on a way within one host each is met twice); its test is in tests/unit/test_findings_wire.py"
TRACES = "needs a kernel trace; planted in tests/live/host/test_findings_live_kernel.py"

ELSEWHERE = {d.id: TRACES for d in all_findings() if d.domain == "kernel"} | {
    "FAILING-CALL-STORM": "needs a kernel trace; planted in tests/live/host/test_trace.py",
    "PROGRAM-RETRANSMITS": "needs a kernel trace; planted in tests/live/host/test_trace_retransmits.py",
    "NUMA-MIGRATION": "needs a host with two memory nodes",
    "CPU-STEAL": "needs a hypervisor that is asked for more than it has",
    "CPU-FREQUENCY": "needs a kernel that sets the frequency of the CPUs",
    "SWAP": "needs a swap device, and would slow down all that runs on the host",
    "RECLAIM-STALL": "needs a host without free memory",
    "DIRTY-THROTTLED": "needs more dirty pages than the kernel of the host allows, for all that runs there",
    "INTERRUPT-LOAD": "needs interrupts for a seventh of all CPU time",
    "TCP-RETRANSMITS": "counts the segments of a whole network; planted in one of its own by tests/live/host/test_take_host.py",
    "WIRE-CHATTY": BY_HAND,
    "WIRE-FETCH-SIZE": BY_HAND,
    "NETWORK-BOUND": BY_HAND,
    "WIRE-NONTLS": BY_HAND,
    "WIRE-RETRANSMITS": "needs the packets of a way that loses some; planted in tests/live/test_wire_losses.py",
    "DELAYED-ACK": "needs a client that waits for the acknowledgement of half a message; planted in tests/live/test_wire.py",
    "POOLER-WAIT": "needs the packets on both sides of a pooler; planted in tests/live/test_pooler.py",
    "WIRE-MYSQL-HASH": "needs a MySQL server that is asked without TLS; its test is in tests/unit/test_findings_wire.py",
    "REPLAY-EVICTS": "needs a standby whose cache is full of changed pages; planted in tests/live/test_findings_live_replication.py",
    "WALSENDER-READ": "needs a standby that comes back to a sender on a slow disk; planted in tests/live/test_replication_cascade.py",
    "CASCADE-HOP": "needs a standby behind a standby, on a slow way; planted in tests/live/test_replication_cascade.py",
    "RESTARTPOINT-LAG": "needs a standby that replays without restartpoints; planted in tests/live/test_findings_live_replication.py",
    "FPI-STORM": "needs a load that goes on over a checkpoint; planted in tests/live/test_findings_live_page_images.py",
    "PREFETCH-WASTE": "needs a cold standby with a backlog of page images; planted in tests/live/test_findings_live_page_images.py",
    "STANDBY-DISK-FILLS": "needs a standby that replays less than it receives; planted in tests/live/test_findings_live_replication.py",
    "LOGICAL-APPLY-BOUND": "needs a publisher and a subscriber; planted in tests/live/test_findings_live_replication.py",
}
