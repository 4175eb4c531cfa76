"""Packets that pass a host by several interfaces: a bridge between two network namespaces, as container networks have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

ROUNDS = 300
# In a network of its own: a bridge, and two networks behind it, of a client and of a server that echoes. {family} 4 or 6.
SCRIPT = r"""
import json, subprocess, sys, time
from pathlib import Path
from leadline.probes.wire import WireProbe

rounds, net, bits = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ECHO = '''
import socket, struct, sys
with socket.create_server((sys.argv[1], 7777), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as listener:
    print("ready", flush=True)
    line, _ = listener.accept()
    while data := line.recv(100_000):
        line.sendall(data)
    print(*struct.unpack_from("I", line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100))
'''
ASK = '''
import socket, struct, sys
with socket.create_connection((sys.argv[1], 7777)) as line:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for n in range(int(sys.argv[2])):
        line.sendall(b"x" * (30 * n))
        got = 0
        while got < 30 * n:
            got += len(line.recv(100_000))
    print(*struct.unpack_from("I", line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100))
'''

def ip(*words):
    subprocess.run(["ip", *words], check=True)

def within(pid, *command, **more):
    return subprocess.Popen(["nsenter", "-t", str(pid), "-n", *command], text=True, **more)

ip("link", "set", "lo", "up")
ip("link", "add", "br0", "type", "bridge")
ip("link", "set", "br0", "up")
holders = []
try:
    for n in (1, 2):
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo there; exec sleep 100"], stdout=subprocess.PIPE)
        holders.append(holder)
        holder.stdout.readline()
        pid = str(holder.pid)
        ip("link", "add", f"h{n}", "type", "veth", "peer", "name", "eth0", "netns", pid)
        ip("link", "set", f"h{n}", "master", "br0", "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{net}{n}/{bits}", "dev", "eth0", *(["nodad"] if ":" in net else [])],
                      ["link", "set", "eth0", "up"]):
            assert within(pid, "ip", *words).wait() == 0
    server = within(holders[1].pid, sys.executable, "-c", ECHO, f"{net}2", stdout=subprocess.PIPE)
    server.stdout.readline()
    probe = WireProbe(None, "any", [7777])
    probe.start()
    client = within(holders[0].pid, sys.executable, "-c", ASK, f"{net}2", str(rounds), stdout=subprocess.PIPE)
    again = [int(end.communicate()[0]) for end in (client, server)]
    final = probe.stop()
    print(json.dumps(probe.summary() | {"lost": final["lost"], "again": again}))
finally:
    for holder in holders:
        holder.kill()
        holder.wait()
"""


@pytest.mark.parametrize(("net", "bits"), [("10.9.0.", "24"), ("fd00:9::", "64")])
def test_packets_over_a_bridge_are_seen_twice_and_count_once(net: str, bits: str) -> None:
    command = ["unshare", "--net", sys.executable, "-c", SCRIPT, str(ROUNDS), net, bits]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    [c] = seen["connections"]
    assert (seen["lost"], c["round_trips"]) == (0, ROUNDS - 1)
    # On a busy host TCP sends again what was not acknowledged at once: no more than it says itself (tcpi_total_retrans).
    assert all(c[f"{end}_retransmits"] <= again for end, again in zip(("client", "server"), seen["again"]))
    for end in ("client", "server"):
        data = 30 * ROUNDS * (ROUNDS - 1) // 2
        assert data <= c[f"{end}_payload_bytes"] <= data + 30 * ROUNDS * c[f"{end}_retransmits"]
    # Each packet comes in by one port of the bridge and goes out by the other.
    assert (c["client_copies"], c["server_copies"]) == (c["client_packets"], c["server_packets"])
