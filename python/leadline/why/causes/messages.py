"""Messages that tell the cause themselves: of the loader, of compilers and linkers, of TLS, of servers, of package managers.

A row for each kind. The process that wrote it is one that decided how the command ended (`chain`). Lines are looked at from the last
one to the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leadline.why.cause import Cause
from leadline.why.seen import Process
from leadline.why.words import LONGEST, lines_of

MOST_LINES = 60

Q = "[`'\"‘’“”]"  # what stands around names
QQ = Q + "?"  # or does not


@dataclass(frozen=True)
class Message:
    """statement and fix: texts with {process}, {program} and the named groups of the pattern. errors_only: lines without a word for a
    failure do not count."""

    kind: str
    weight: int
    pattern: re.Pattern[str]
    statement: str
    fix: str


def _row(kind: str, weight: int, pattern: str, statement: str, fix: str) -> Message:
    return Message(kind, weight, re.compile(pattern), statement, fix)


_GLIBC = "use a build of it for this system, or a newer system: it was made against a newer version of the library"
_CERTIFICATES = (
    "check the certificate with: openssl s_client -connect HOST:PORT -showcerts; ca-certificates has those of public authorities"
)
_LOCK = "wait for that process or end it; delete the lock only if no such process runs"
_SERVER_USER = "run it as the user that owns the data, for example: su postgres -c '...'"

MESSAGES = (
    # The loader, at start and in dlopen().
    _row("library_too_old", 95, rf"(?P<lib>[^\s:]+): version {Q}(?P<x>[^`'\"]+){Q} not found \(required by (?P<by>[^)]+)\)",
        "{by} needs version {x} of {lib}, which is not in it.", _GLIBC),
    _row("undefined_symbol", 95, r"(?:symbol lookup error|ImportError|OSError|relocation error): (?P<by>[^\s:]+):.*(?:undefined symbol:|symbol) (?P<x>[\w@.]+)",
        "{by} uses the symbol {x}, which none of its libraries has: another version of a library was loaded than it was built for.",
        "ldd -r {by} shows which library it takes; look at LD_LIBRARY_PATH, and install versions that fit together"),
    _row("bad_library", 95, r"(?:error while loading shared libraries|ImportError|OSError|ERROR): (?P<x>[^\s:]+): (?P<what>invalid ELF header|file too short|"
        r"wrong ELF class: \w+|only ET_DYN and ET_EXEC can be loaded|ELF load command [\w ]+|cannot apply additional memory protection.*)",
        "{x} is not a library that {process} can load: {what}.", "file {x} shows what it is; install it again, for this architecture"),
    _row("missing_library", 94, r"(?:error while loading shared libraries|ImportError|OSError): (?P<x>[^\s:]+): cannot open shared object file: No such",
        "{program} needs the library {x}, which is in none of the directories searched.",
        "install the package that has {x}; if it is in another directory, add that to LD_LIBRARY_PATH or /etc/ld.so.conf.d"),
    # Compilers and linkers.
    _row("missing_header", 75, r"(?P<at>[^\s:]+:\d+)(?::\d+)?: fatal error: (?P<x>[^\s:]+): No such file",
        "{at} includes {x}, which is in none of the directories of headers.",
        "install the package with this header (its name ends in -dev or -devel), or name its directory with -I"),
    _row("missing_link_library", 75, r"cannot find -l(?P<x>[\w+.-]+)",
        "The linker finds no library {x} (lib{x}.so or lib{x}.a).",
        "install its package for development (-dev or -devel), or name its directory with -L"),
    _row("undefined_reference", 75, rf"undefined reference to {Q}(?P<x>[^`'\"]+?){Q}$",
        "The program uses {x}, which none of the files and libraries that are linked has.", "link the library that has it (-l, after the files that use it)"),
    _row("program_not_found", 80, r"no acceptable C compiler found|No CMAKE_(?P<x>C|CXX)_COMPILER could be found|error: linker .cc. not found",
        "There is no C compiler in the directories of PATH.", "install one (Debian: build-essential; Red Hat: gcc), or set CC"),
    _row("no_rule", 75, rf"No rule to make target {Q}(?P<x>[^`'\"]+?){Q}(?:, needed by {Q}(?P<by>[^`'\"]+?){Q})?\.",
        "make has no rule to make {x}, and there is no file of this name.", "create {x}, or correct its name in the Makefile"),
    _row("pkg_config", 75, rf"Package (?P<x>\S+) was not found in the pkg-config|No package {Q}(?P<y>[^`'\"]+?){Q} found",
        "pkg-config knows no package {x}{y}.", "install it for development (-dev or -devel), or name the directory of its .pc file in PKG_CONFIG_PATH"),
    # Programs and modules that are not there.
    _row("program_not_found", 70, r"^(?:\S*sh|\S+): (?:line )?\d+: (?P<x>[^\s:/]+): (?:command )?not found$|^\S*sh: (?P<y>[^\s:/]+): (?:command )?not found$"
        r"|^make(?:\[\d+\])?: (?P<z>[^\s:/]+): No such file or directory$",
        "There is no program {x}{y}{z}: it is in none of the directories of PATH.", "install it, or add its directory to PATH"),
    _row("perl_module", 82, r"Can't locate (?P<x>\S+\.pm) in @INC", "Perl has no module {x}.", "install it (Debian: lib...-perl), or name its directory with -I or PERL5LIB"),
    _row("python_module", 78, r"ModuleNotFoundError: No module named '(?P<x>[^']+)'|python[\d.]*: No module named (?P<y>[\w.]+)",
        "{program} has no module {x}{y}.", "{program} -m pip install {x}{y}, if the package has that name; or use the Python that has it"),
    _row("node_module", 78, rf"Cannot find (?:module|package) {Q}(?P<x>[^`'\"]+?){Q}(?: |$)",
        "Node finds no module {x}.", "npm install, in the directory of package.json; or correct the name"),
    _row("java_class", 78, r"Could not find or load main class (?P<x>\S+)|NoClassDefFoundError: (?P<y>\S+)|ClassNotFoundException: (?P<z>\S+)",
        "Java finds no class {x}{y}{z}.", "correct the class path (-cp, CLASSPATH), or the name"),
    _row("java_version", 80, r"UnsupportedClassVersionError: (?P<x>\S+)",
        "The class {x} was compiled for a newer Java than {program}.", "run it with a newer Java, or compile it for this one (--release)"),
    _row("package_not_found", 76, r"No matching distribution found for (?P<x>\S+)|no matching package named `(?P<y>[^`]+)`|Unable to locate package (?P<z>\S+)",
        "The package manager finds no package {x}{y}{z}.", "correct the name or the version, or the index that is asked"),
    # TLS.
    _row("certificate", 82, r"[Cc]ertificate has expired|certificate expired", "A TLS certificate has expired.", "renew it; is the clock of this host right (date)?"),
    _row("certificate", 82, r"[Cc]ertificate (?:is )?not yet valid", "A TLS certificate is not valid yet.", "is the clock of this host right (date)?"),
    _row("certificate", 82, r"unable to get (?:local )?issuer cert|unable to verify the first cert|[Ss]elf[- ]signed cert|SELF_SIGNED_CERT|signed by unknown authority"
        r"|certificate is not trusted|issuer is unknown|PKIX path building failed|certificate verify failed(?!.*(?:[Hh]ostname|IP address))",
        "{process} does not trust a TLS certificate: its issuer is not among those that it knows.", "add the issuer's certificate to those that {process} trusts; " + _CERTIFICATES),
    _row("certificate", 83, r"[Hh]ostname mismatch|does not match (?:target )?host ?name|no alternative certificate subject name matches|IP does not match certificate"
        r"|IP address mismatch|doesn't match ['‘\"]?[\w.-]+|server certificate for .* does not match", "A TLS certificate is for another host name than the one asked for.", "use a name that the certificate has; " + _CERTIFICATES),
    _row("tls", 78, r"wrong version number|unexpected message.*handshake|http: server gave HTTP response|record layer failure",
        "{process} speaks TLS, and what answers does not.", "correct the port, or the scheme (http, https)"),
    _row("certificate", 80, r"key values mismatch|private key does not match", "A TLS certificate and its private key do not belong together.", "install the pair anew"),
    _row("key_mode", 80, r"private key file \"(?P<x>[^\"]+)\" (?:has group or world access|must be owned)|UNPROTECTED PRIVATE KEY FILE|Permissions \d+ for '(?P<y>[^']+)' are too open",
        "The private key {x}{y} may be read by others, or has another owner: {process} refuses it.", "chmod 600 {x}{y}, owned by the user that runs {process}"),
    # Servers, users, locks.
    _row("data_directory_mode", 82, r"data directory \"(?P<x>[^\"]+)\" has (?:invalid permissions|group or world access)",
        "Others may enter the data directory {x}: {process} refuses it.", "chmod 700 {x}"),
    _row("data_directory_owner", 82, r"data directory \"(?P<x>[^\"]+)\" has wrong ownership",
        "The data directory {x} belongs to another user than the one that starts {process}.", "start it as the owner, or chown -R USER {x}"),
    _row("as_root", 82, r"[Cc]annot be run as root|\"root\" execution of the PostgreSQL server is not permitted|(?:must|should) not (?:be )?run as root|refus\w+ to run as root"
        r"|Please read \"Security\" section", "{process} refuses to run as root.", _SERVER_USER),
    _row("needs_root", 74, r"must be (?:run as )?(?:super)?(?:user|root)|are you root|requires (?:root|superuser)|need to be root|only root (?:can|may)|[Rr]oot privileges",
        "{process} needs the rights of root.", "run it as root (sudo)"),
    _row("unknown_user", 80, rf"[Ii]nvalid (?P<what>user|group|owner)(?! name):? {QQ}(?P<x>[^`'\"‘’\s]+)|[Uu]nknown (?P<what2>user|group):? (?:name |id )?{QQ}(?P<x2>[^`'\"‘’\s]+)"
        rf"|[Uu]ser {QQ}(?P<x3>[\w.-]+){QQ} does not exist(?! in)|no such (?P<what4>user|group):? {QQ}(?P<x4>[\w.-]+)|get(?:pw|gr)nam\S* .*name not found: '(?P<x5>[^']+)'"
        r"|getpwnam\(\"(?P<x6>[^\"]+)\"\) failed|user '(?P<x7>[^']+)' not found|(?:failed to parse|unknown) \w*id: (?P<x8>\S+)|look up effective user ID (?P<x9>\d+): user does not exist",
        "This host has no {what}{what2}{what4} {x}{x2}{x3}{x4}{x5}{x6}{x7}{x8}{x9} for {process}.", "create it (useradd, groupadd), or correct the name; getent passwd lists the users"),
    _row("held_lock", 82, r"lock file \"(?P<x>[^\"]+)\" already exists", "The lock {x} is there: another server uses its directory, or one ended without removing it.", _LOCK),
    _row("held_lock", 82, r"Unable to create '(?P<x>[^']+\.lock)': File exists", "The lock {x} is there: another git runs in this repository, or one ended without removing it.", _LOCK),
    _row("held_lock", 80, r"[Cc]ould not get lock (?P<x>\S+?)\.?(?:\s|$)|another process is using|[Aa]nother instance is (?:already )?running|database is locked|is locked by another",
        "Another process holds the lock {x} that {process} needs.", _LOCK),
    _row("name_resolution", 72, r"[Cc]ould not resolve (?:host|proxy)(?:name)?:? (?P<x>[\w.-]+)|could not translate host name \"(?P<x2>[^\"]+)\"|getaddrinfo \w+ (?P<x3>[\w.-]+)"
        r"|lookup (?P<x4>[\w.-]+)[^:]*: no such host|Name or service not known|Temporary failure in name resolution|[Uu]nknown host:? ?(?P<x5>[\w.-]*)|No address associated with hostname|unable to resolve host address .(?P<x6>[\w.-]+)",
        "The name {x}{x2}{x3}{x4}{x5}{x6} of a host was not found.", "check the name; getent hosts NAME; the name servers stand in /etc/resolv.conf"),
    _row("memory", 62, r"\bMemoryError\b|std::bad_alloc|OutOfMemoryError|[Oo]ut of memory|virtual memory exhausted|Could not reserve enough space|[Cc]annot allocate memory",
        "{process} got no more memory.", "free -m; ulimit -v; the limit of its control group; for Java: -Xmx"),
)  # fmt: skip


def told(process: Process) -> Cause | None:
    """The last of its lines that is known."""
    if not process.failed or process.signal is not None:
        return None
    lines = lines_of(process.said)[-MOST_LINES:]
    lines = [line for line in lines_of(process.first_error) if line not in lines] + lines
    for place, line in enumerate(reversed(lines)):
        for message in MESSAGES:
            found = message.pattern.search(line)
            if found is None:
                continue
            names = {name: (value or "").strip() for name, value in found.groupdict().items()}
            if "what" in names and not any(value for name, value in names.items() if name.startswith("what")):
                names["what"] = "user"
            names |= {"process": process.name, "program": process.program}
            statement = re.sub(r"\s+", " ", message.statement.format(**names))
            evidence = [f"{process.name} (pid {process.pid}) reported: {line.strip()[:LONGEST]}"]
            return Cause(
                message.kind, message.weight - min(place, 10), statement, evidence, message.fix.format(**names), process, line=line
            )
    return None
