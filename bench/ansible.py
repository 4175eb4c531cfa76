"""Measures what recording costs a run of Ansible: 500 results without it, with our plugin, and with Ara.

    python bench/ansible.py                    10 rounds, about 15 minutes
    python bench/ansible.py --rounds 2         does everything work?

In each round the playbook (25 hosts, 20 tasks that do nothing, by a local connection) runs once bare and once with each recorder, in an
order drawn at random. Wall time is that of the process; CPU time is its own with that of its workers, which a busy machine disturbs less.
The ratio of a recorder is that of its trial to the bare trial of the same round. Ara runs offline, as it does when installed.

Output: JSON. ansible-core and Ara are installed by pip into a cache (tests/support/ansible_cores.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from leadline.lab.machine import read_environment
from leadline.lab.paired import reading
from leadline.lab.signed_rank import signed_rank_ratio

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import ansible_cores  # noqa: E402

PLUGIN = ROOT / "python" / "leadline" / "book" / "ansible" / "plugin"
HOSTS, TASKS = 25, 20


def site(folder: Path) -> None:
    (folder / "hosts").write_text("".join(f"h{n} ansible_connection=local\n" for n in range(HOSTS)))
    tasks = "".join(f"    - name: task {n}\n      debug: {{msg: 'result {n}'}}\n" for n in range(TASKS))
    (folder / "site.yml").write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}")


def trial(core: ansible_cores.Core, folder: Path, recorder: str) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "LEADLINE_", "ARA_"))}
    plugins = {"none": "", "leadline": str(PLUGIN), "ara": str(core.plugins_of_ara)}[recorder]
    environment = kept | {"HOME": str(folder), "LEADLINE_BOOK": str(folder / "book"), "ARA_BASE_DIR": str(folder / "ara")}
    environment |= {"ANSIBLE_CALLBACK_PLUGINS": plugins, "ANSIBLE_HOME": str(folder / ".ansible"), "ANSIBLE_NOCOLOR": "1"}
    command = [str(core.bin_dir / "ansible-playbook"), "-i", "hosts", "-f", "5", "site.yml"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own_seconds(folder: Path) -> list[float]:
    """What the plugin says that it took, of each run."""
    spools = sorted((folder / "book" / "spool").glob("*.jsonl"))
    return [json.loads(spool.read_bytes().splitlines()[-1])["metrics"]["record_s"] for spool in spools]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--version", default="2.19.14", help="of ansible-core")
    parser.add_argument("--recorders", default="leadline,ara")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment = random.Random(options.seed), read_environment(ROOT, ("python",))
    core = ansible_cores.core(options.version, with_ara=True)
    recorders = options.recorders.split(",")
    took: dict[str, list[tuple[float, float]]] = {recorder: [] for recorder in ("none", *recorders)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site(folder)
        for recorder in took:
            trial(core, folder, recorder)  # what is done once: bytecode, Ara's tables
        for round_ in range(options.rounds):
            for recorder in rng.sample(list(took), len(took)):
                took[recorder].append(trial(core, folder, recorder))
                wall, cpu = took[recorder][-1]
                print(f"round {round_ + 1}, {recorder}: {wall:.2f} s, CPU {cpu:.2f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        own = own_seconds(folder)
    rows = []
    for recorder in recorders:
        row: dict[str, Any] = {"recorder": recorder}
        for what, which in (("wall", 0), ("cpu", 1)):
            pairs = [(bare[which], with_[which]) for bare, with_ in zip(took["none"], took[recorder])]
            ratio = signed_rank_ratio(pairs)
            row[what] = {
                "bare_s": median(bare for bare, _ in pairs), "with_s": median(with_ for _, with_ in pairs), "ratio": ratio.estimate,
                "low": ratio.low, "high": ratio.high, "pairs": ratio.pairs, "reading": reading(ratio),
            }  # fmt: skip
            print(f"{recorder}: {what} {ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of none", file=sys.stderr)
        rows.append(row)
    if own:
        print(f"leadline's plugin says that it took {median(own):.3f} s of each run", file=sys.stderr)
    json.dump({"environment": environment, "options": vars(options), "trials": took, "own_s": own, "rows": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
