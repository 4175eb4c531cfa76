"""Names of functions that have no symbols: code made while a program runs, and stripped programs with unwind tables."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from bpf import needs_bpf
from conftest import background
from leadline.capture.reader import open_capture
from leadline.probes.trace import trace
from leadline.views.flame import folded, functions
from traced import Goes

# Two functions that count down from 2^28: mov ecx, imm32; dec ecx; jnz; ret. The program tells perf of the first in a map, and of the
# second in a dump that it maps.
MADE = r"""
import ctypes, mmap, os, struct, sys
code = b"\xb9\x00\x00\x00\x10\xff\xc9\x75\xfc\xc3"
memory = mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code); memory.seek(4096); memory.write(code)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
one, two = ctypes.CFUNCTYPE(ctypes.c_int)(at), ctypes.CFUNCTYPE(ctypes.c_int)(at + 4096)
names = f"/tmp/perf-{os.getpid()}.map"
dump = os.path.join(sys.argv[1], f"jit-{os.getpid()}.dump")
head = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, os.getpid(), 0, 0)
body = struct.pack("<IIQQQQ", os.getpid(), os.getpid(), at + 4096, at + 4096, len(code), 1) + b"Order.sumOfItems()\0" + code
with open(dump, "wb+") as file:
    file.write((head + struct.pack("<IIQ", 0, 16 + len(body), 1) + body).ljust(4096, b"\0"))
    file.flush()
    marker = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
try:
    open(names, "w").write(f"{at:x} {len(code):x} Shop.countDown(int)\n")
    sys.stdin.readline()
    for _ in range(4):
        one(); two()
    sys.stdout.write("done\n"); sys.stdout.flush(); sys.stdin.readline()
finally:
    os.unlink(names)
"""


@needs_bpf
def test_code_made_while_a_program_runs_has_its_names(tmp_path: Path) -> None:
    with background([sys.executable, "-c", MADE, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=0.3, out=tmp_path / "j.leadline", progress=Goes(program))
    with closing(open_capture(path)) as capture:
        spent = {f.name: f.itself for f in functions(folded(capture, "on-cpu"))}
        on_cpu = sum(spent.values())
        assert {"Shop.countDown(int)", "Order.sumOfItems()"} <= set(spent)
        assert spent["Shop.countDown(int)"] + spent["Order.sumOfItems()"] > 0.8 * on_cpu
        assert capture.rows("select path from mapped_file where path like '[%'") == [{"path": f"[made by {program.pid}]"}]


STRIPPED = """
#include <cstdio>
static __attribute__((noinline)) unsigned mix(unsigned n) {
  for (unsigned i = 0; i < 1u << 28; i++) { n = n * 1664525u + 1013904223u; n ^= n >> 13; n += i * n; asm volatile("" : "+r"(n)); }
  return n;
}
int main() {
  char line[8];
  if (!fgets(line, 8, stdin)) return 1;
  unsigned n = mix(mix(1));
  puts("done"); fflush(stdout);
  return !fgets(line, 8, stdin) && n == 7;
}
"""


@needs_bpf
def test_a_function_without_a_name_is_one_line(tmp_path: Path) -> None:
    """By the address at which it begins: its samples lie at many."""
    (tmp_path / "mixer.cc").write_text(STRIPPED)
    subprocess.run(["c++", "-O2", "-o", tmp_path / "mixer", tmp_path / "mixer.cc"], check=True)
    symbols = subprocess.run(["nm", tmp_path / "mixer"], check=True, capture_output=True, text=True).stdout
    [begin] = re.findall(r"^0*([0-9a-f]+) t _ZL3mixj$", symbols, re.M)
    subprocess.run(["strip", tmp_path / "mixer"], check=True)
    with background([tmp_path / "mixer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=0.3, out=tmp_path / "m.leadline", progress=Goes(program))
    with closing(open_capture(path)) as capture:
        spent = {f.name: f.itself for f in functions(folded(capture, "on-cpu"))}
        assert spent[f"mixer+0x{begin}"] > 0.8 * sum(spent.values())
        assert capture.scalar("select count(distinct addresses[1]) from user_stack") > 1
