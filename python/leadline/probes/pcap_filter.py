"""Expressions of tcpdump, compiled by libpcap where it is installed. The programs run in crates/wire, or in the kernel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from leadline.errors import LeadlineError

NAMES = ("libpcap.so.0.8", "libpcap.so.1", "libpcap.so")  # of Debian, of others, of who has its headers
INSTALL = "apt install libpcap0.8, or dnf install libpcap"
SYNTAX = "the syntax is that of tcpdump: man pcap-filter"
SNAPLEN = 262_144
NO_NETMASK = 0xFFFFFFFF
# Link types for which packets are read (crates/py/src/wire.rs): Ethernet, Linux cooked 1 and 2, raw IP.
ETHERNET, RAW_IP = 1, 12
LINKS = (ETHERNET, 113, 276, RAW_IP)

JUMP = 0x05
LOADS = (0x20, 0x28, 0x30)
BEHIND_PACKETS = 0xFFF00000
# An instruction: code, where to jump if so and if not, its constant.
Step = tuple[int, int, int, int]


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction)))


@dataclass(frozen=True)
class Filter:
    """An expression; by link type its program, or why it has none."""

    expression: str
    compiled: dict[int, list[Step] | str]

    def for_files(self) -> list[tuple[int, list[Step], str]]:
        """By link type the program, or why there is none."""
        asks = "it asks for what only the kernel knows of a packet"
        said = {link: asks if not isinstance(of, str) and any(map(_asks_kernel, of)) else of for link, of in self.compiled.items()}
        return [(link, [], of) if isinstance(of, str) else (link, of, "") for link, of in said.items()]

    def for_kernel(self) -> list[Step]:
        """The program for a packet socket, whose packets begin with their IP header. Raises LeadlineError('usage')."""
        program = self.compiled[RAW_IP]
        if isinstance(program, str):
            hint = "let tcpdump select: tcpdump -i IF -U -w - 'EXPRESSION' | leadline net packets --pcap -"
            detail = f"{program}; of an interface, packets are seen from their IP header on"
            raise LeadlineError("usage", f"the filter {self.expression!r} has no meaning here", detail=detail, hint=hint)
        return program


def _is_loop(step: Step) -> bool:
    code, _, _, constant = step
    return code == JUMP and constant >= 1 << 31


def _asks_kernel(step: Step) -> bool:
    """Loads from where no packet has bytes (SKF_AD_OFF of linux/filter.h)."""
    code, _, _, constant = step
    return code in LOADS and constant >= BEHIND_PACKETS


def compiled(expression: str) -> Filter:
    """Compiles an expression for each link type. Raises LeadlineError: usage, or unsupported without libpcap."""
    if not expression.strip() or "\0" in expression:
        raise LeadlineError("usage", "the filter is empty or has a zero byte", hint=SYNTAX)
    library = _library()
    found = {link: _compile(library, link, expression) for link in LINKS}
    if all(isinstance(of, str) for of in found.values()):
        raise LeadlineError("usage", f"{expression!r} is no filter", detail=str(found[ETHERNET]), hint=SYNTAX)
    return Filter(expression, found)


def _library() -> ctypes.CDLL:
    for name in NAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_geterr.restype = ctypes.c_char_p
        library.pcap_open_dead.argtypes = (ctypes.c_int, ctypes.c_int)
        library.pcap_compile.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Program), ctypes.c_char_p, ctypes.c_int, ctypes.c_uint)
        library.pcap_freecode.argtypes = (ctypes.POINTER(_Program),)
        library.pcap_geterr.argtypes = library.pcap_close.argtypes = (ctypes.c_void_p,)
        library.pcap_freecode.restype = library.pcap_close.restype = None
        return library
    raise LeadlineError("unsupported", "a filter needs libpcap", detail=f"none of {', '.join(NAMES)} is there", hint=INSTALL)


def _compile(library: ctypes.CDLL, link: int, expression: str) -> list[Step] | str:
    handle = library.pcap_open_dead(link, SNAPLEN)
    if not handle:
        return "libpcap has no memory"
    try:
        program = _Program()
        if library.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, NO_NETMASK) != 0:
            return str(library.pcap_geterr(handle).decode(errors="replace"))
        steps = [(i.code, i.jt, i.jf, i.k) for i in program.instructions[: program.length]]
        library.pcap_freecode(ctypes.byref(program))
        return "it needs a loop (protochain), which programs of the kernel do not have" if any(map(_is_loop, steps)) else steps
    finally:
        library.pcap_close(handle)
