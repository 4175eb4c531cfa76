"""Findings over who comes from where: sessions without TLS, and rules that let other hosts in."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.findings import Evaluation, evaluate


@pytest.fixture
def made(tmp_path: Path) -> SyntheticCapture:
    return SyntheticCapture(tmp_path)


def evaluated(made: SyntheticCapture, only: str, **thresholds: float) -> Evaluation:
    with made.open() as capture:
        return evaluate(capture, only=[only], thresholds=thresholds)


def rule(made: SyntheticCapture, line: int, kind: str, address: str, method: str, netmask: str = "", error: str = "") -> None:
    made.add(
        "hba_rule", line_number=line, type=kind, database="all", user_name="all", address=address, netmask=netmask, auth_method=method,
        error=error,
    )  # fmt: skip


def test_sessions_from_outside_without_tls(made: SyntheticCapture) -> None:
    made.add_session(client_addr="203.0.113.9", ssl=False)
    made.add_session(client_addr="203.0.113.9", ssl=False)
    made.add_session(client_addr="2001:db8::7", ssl=True)
    [found] = evaluated(made, "NONTLS-REMOTE").findings
    assert (found.subject, found.samples, found.severity) == ("client 203.0.113.9", 2, "medium")


@pytest.mark.parametrize(
    "address", ["local", "127.0.0.1", "::1", "10.1.2.3", "172.31.0.1", "192.168.7.7", "::ffff:10.0.0.1", "fd00::1", "fe80::1"]
)
def test_sessions_of_this_host_and_of_private_networks_are_not_from_outside(made: SyntheticCapture, address: str) -> None:
    made.add_session(client_addr=address, ssl=False)
    made.add_session(client_addr="203.0.113.9", ssl=True)
    assert evaluated(made, "NONTLS-REMOTE").clean == ["NONTLS-REMOTE"]


def test_private_networks_count_when_they_are_not_trusted(made: SyntheticCapture) -> None:
    made.add_session(client_addr="10.1.2.3", ssl=False)
    made.add_session(client_addr="127.0.0.1", ssl=False)
    [found] = evaluated(made, "NONTLS-REMOTE", nontls_private=1).findings
    assert found.subject == "client 10.1.2.3"


def test_rules_that_let_other_hosts_in_by_a_weak_method(made: SyntheticCapture) -> None:
    rule(made, 90, "host", "0.0.0.0", "trust", "0.0.0.0")
    rule(made, 91, "hostnossl", "10.0.0.0", "password", "255.0.0.0")
    rule(made, 92, "host", "all", "md5")
    rule(made, 93, "hostssl", "all", "trust")
    found = {f.evidence[0]["line_number"]: (f.severity, f.statement) for f in evaluated(made, "HBA-WEAK").findings}
    assert {line: severity for line, (severity, _) in found.items()} == {90: "high", 91: "high", 92: "medium", 93: "high"}
    assert found[90][1] == "line 90 lets every user of every host in without a password"
    assert "by password" in found[91][1] and "guessed" in found[92][1]
    assert "user of 10.0.0.0/8 in" in found[91][1]


def test_the_mask_of_a_rule_belongs_to_its_address(made: SyntheticCapture) -> None:
    rule(made, 1, "host", "127.0.0.1", "trust", "0.0.0.0")  # every host, though the address looks local
    rule(made, 2, "host", "0.0.0.0", "trust", "128.0.0.0")
    rule(made, 3, "host", "2001:db8::", "trust", "ffff:ffff::")
    rule(made, 4, "host", "::1", "trust", "::")
    rule(made, 5, "host", "127.0.0.0", "trust", "255.0.0.0")
    rule(made, 6, "host", "::1", "trust", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
    rule(made, 7, "host", "samenet", "trust")
    found = {f.evidence[0]["line_number"]: (f.subject, f.statement) for f in evaluated(made, "HBA-WEAK").findings}
    assert {line: subject for line, (subject, _) in found.items()} == {
        1: "rule host all all 127.0.0.1/0 trust",
        2: "rule host all all 0.0.0.0/1 trust",
        3: "rule host all all 2001:db8::/32 trust",
        4: "rule host all all ::1/0 trust",
        7: "rule host all all samenet trust",
    }
    of = {line: statement.split(" of ")[1].split(" in ")[0] for line, (_, statement) in found.items()}
    assert of == {1: "every host", 2: "0.0.0.0/1", 3: "2001:db8::/32", 4: "every host", 7: "samenet"}


def test_rules_of_this_host_and_strong_rules_are_not_weak(made: SyntheticCapture) -> None:
    rule(made, 1, "local", "", "trust")
    rule(made, 2, "host", "127.0.0.1", "trust", "255.255.255.255")
    rule(made, 3, "host", "::1", "md5")
    rule(made, 4, "host", "samehost", "trust")
    rule(made, 5, "host", "all", "scram-sha-256")
    rule(made, 6, "hostssl", "all", "password")
    rule(made, 7, "host", "all", "reject")
    rule(made, 8, "host", "all", "trust", error="wrong")
    assert evaluated(made, "HBA-WEAK").clean == ["HBA-WEAK"]


def test_rules_that_nobody_read_are_not_called_strong(made: SyntheticCapture) -> None:
    result = evaluated(made, "HBA-WEAK")
    [(rule_id, why)] = result.not_evaluated
    assert (rule_id, result.clean) == ("HBA-WEAK", []) and "pg_hba.conf could not be read" in why
