"""Sections of a capture that has evidence of the host: who used it, what stood in line, and for what.

Of a host they come first; of a server they stand behind what is said of its sessions, in the report and in JSON only.
"""

from __future__ import annotations

from dataclasses import replace

from leadline.figures import count, percent, seconds
from leadline.units import sized
from leadline.views.grid import Column, Grid, Stack
from leadline.views.sections import Context, Section, Tile

MOST = 12
NEEDS = ("host_rate",)
_CPU = (  # metrics of host_stat that make up one kind of CPU time
    ("user", ("user", "nice")),
    ("system", ("system",)),
    ("interrupts", ("irq", "softirq")),
    ("stolen by the hypervisor", ("steal",)),
    ("idle, waiting for I/O", ("iowait",)),
    ("idle", ("idle",)),
)
_KIND = (
    "case "
    + " ".join(f"when metric in ({', '.join(repr(f'stat.cpu_{part}_ns') for part in parts)}) then '{name}'" for name, parts in _CPU)
    + " end"
)


def _cpu(of: Context) -> Grid:
    """CPU time of the host by kind, and the picture of what was used along the window."""
    rows = of.capture.rows(
        f"""
        select {_KIND} as kind, sum(grown) / 1e9 as seconds, sum(grown) / sum(sum(grown)) over () as share
        from host_rate where starts_with(metric, 'stat.cpu_') group by 1 having kind is not null
        """
    )
    order = [name for name, _ in _CPU]
    columns = (Column("kind", "CPU time", "text"), Column("seconds", "seconds", "seconds"), Column("share", "of all CPUs", "share"))
    found = sorted(((r["kind"], r["seconds"], r["share"]) for r in rows if r["seconds"] > 0), key=lambda r: order.index(r[0]))
    steps = of.capture.rows(
        f"""
        select (ts - dt_ns - c.ts_from) / 1e9 as from_s, (ts - c.ts_from) / 1e9 as to_s, {_KIND} as kind, sum(per_second) / 1e9 as cpus
        from host_rate cross join capture c where starts_with(metric, 'stat.cpu_') group by all
        having kind is not null and not starts_with(kind, 'idle') order by 1
        """
    )
    window_s = of.window.window_s or max((r["to_s"] for r in steps), default=1.0)
    values = [(max(r["from_s"], 0.0), min(r["to_s"], window_s), r["kind"], r["cpus"]) for r in steps if r["to_s"] > 0]
    values.sort(key=lambda v: (v[0], order.index(v[2])))
    return Grid(columns, found, picture=Stack(values, window_s, "seconds from the start", "CPUs in use", "CPUs"))


def _tiles(of: Context, grid: Grid) -> list[Tile]:
    shares = {kind: share for kind, _, share in grid.rows}
    busy = sum(share for kind, share in shares.items() if not kind.startswith("idle"))
    cpus = of.capture.manifest.target.cpu_count
    tiles = [Tile("CPUs busy", percent(busy), f"of {count(cpus, 'CPU')}" if cpus else "of all CPUs")]
    queued = of.capture.scalar("select sum(cpu_queue_ns) / 1e9 from process_use where not kernel")
    if queued is not None:
        tiles.append(Tile("Waiting for a CPU", seconds(queued), "of all processes together", " s"))
    device = _devices(of).as_dicts()
    if device:
        tiles.append(Tile("Busiest device", percent(device[0]["busy"]), str(device[0]["device"])))
    least = of.capture.rows("select min(value) filter (metric = 'meminfo.MemAvailable_bytes') as available from host_stat")[0]["available"]
    if least is not None:
        tiles.append(Tile("Memory available", sized(least), "at the least"))
    return tiles


def _processes(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select comm, pid, sum(cpu_ns) / 1e9 as cpu_s, sum(cpu_queue_ns) / 1e9 as queue_s, sum(blkio_delay_ns) / 1e9 as io_s,
               sum(read_bytes)::bigint as read_bytes, sum(write_bytes)::bigint as write_bytes, max(rss_bytes)::bigint as rss_bytes,
               sum(majflt)::bigint as majflt
        from process_use where process_id is not null group by process_id, comm, pid
        order by sum(cpu_ns) + coalesce(sum(cpu_queue_ns), 0) + coalesce(sum(blkio_delay_ns), 0) desc, pid
        """
    )
    columns = (
        Column("comm", "process", "text"),
        Column("pid", "pid", "text"),
        Column("cpu_s", "CPU, s", "seconds"),
        Column("queue_s", "queue, s", "seconds"),
        Column("io_s", "I/O, s", "seconds"),
        Column("read_bytes", "read", "bytes"),
        Column("write_bytes", "written", "bytes"),
        Column("rss_bytes", "memory", "bytes", minor=True),
        Column("majflt", "faults with I/O", "rate", minor=True),
    )
    note = "Seconds on a CPU, ready and waiting for one, and waiting for block I/O, of all threads."
    return of.grid(columns, rows, MOST, "process_use", note, "no process did anything")


def _short(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select comm, case when parent_comm = '' then 'pid ' || ppid else parent_comm end as parent, sum(processes)::bigint as processes,
               sum(unseen)::bigint as unseen, sum(processes) / any_value(c.window_s) as per_second,
               sum(lifetime_ns) / sum(processes) / 1e9 as mean_life_s, coalesce(sum(cpu_run_ns), 0) / 1e9 as cpu_s
        from process_exit cross join capture c group by 1, 2 order by processes desc, comm, parent
        """
    )
    columns = (
        Column("comm", "process", "text"),
        Column("parent", "started by", "text"),
        Column("processes", "ended"),
        Column("unseen", "never seen alive", minor=True),
        Column("per_second", "a second", "seconds"),
        Column("mean_life_s", "mean life, s", "seconds"),
        Column("cpu_s", "CPU, s", "seconds"),
    )
    return of.grid(columns, rows, MOST, "process_exit", empty="no process ended")


def _pressure(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select split_part(split_part(metric, '.', 2), '_', 1) as resource,
               sum(grown) filter (metric like '%_some_ns') / 1e9 as some_s, sum(grown) filter (metric like '%_full_ns') / 1e9 as full_s,
               sum(grown) filter (metric like '%_some_ns') / sum(dt_ns) filter (metric like '%_some_ns') as some_share,
               max(grown / dt_ns) filter (metric like '%_some_ns') as worst
        from host_rate where starts_with(metric, 'pressure.') group by 1 order by some_s desc, resource
        """
    )
    columns = (
        Column("resource", "resource", "text"),
        Column("some_s", "some stalled, s", "seconds"),
        Column("full_s", "all stalled, s", "seconds"),
        Column("some_share", "of the window", "share"),
        Column("worst", "worst interval", "share"),
    )
    note = "Time in which at least one task, or all runnable tasks, were stalled on the resource (PSI)."
    return Grid.of(columns, rows, note, empty="this kernel does not count pressure")


def _devices(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select device, sum(busy_ns) / any_value(c.window_s) / 1e9 as busy, sum(queue_ns) / any_value(c.window_s) / 1e9 as queue,
               sum(reads) / any_value(c.window_s) as reads, sum(read_bytes) / any_value(c.window_s) as read_rate,
               sum(writes) / any_value(c.window_s) as writes, sum(write_bytes) / any_value(c.window_s) as write_rate,
               sum(read_ns) / nullif(sum(reads), 0) / 1e6 as read_ms, sum(write_ns) / nullif(sum(writes), 0) / 1e6 as write_ms
        from device_delta cross join capture c group by device order by busy desc, device
        """
    )
    columns = (
        Column("device", "device", "text"),
        Column("busy", "busy", "share"),
        Column("queue", "queue", "seconds"),
        Column("reads", "reads/s", "rate"),
        Column("read_rate", "read/s", "bytes"),
        Column("read_ms", "read, ms", "seconds"),
        Column("writes", "writes/s", "rate"),
        Column("write_rate", "write/s", "bytes"),
        Column("write_ms", "write, ms", "seconds"),
    )
    note = "Busy: at least one request was there. Queue: requests there on average. Milliseconds: a request, with its time in the queue."
    return of.grid(columns, rows, MOST, "device_delta", note, "no device did anything")


def _network(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select interface, sum(rx_bytes) / any_value(c.window_s) as rx_rate, sum(rx_packets) / any_value(c.window_s) as rx_packets,
               sum(tx_bytes) / any_value(c.window_s) as tx_rate, sum(tx_packets) / any_value(c.window_s) as tx_packets,
               sum(rx_errors + tx_errors)::bigint as errors, sum(rx_dropped + tx_dropped)::bigint as dropped
        from net_delta cross join capture c group by interface order by rx_rate + tx_rate desc, interface
        """
    )
    columns = (
        Column("interface", "interface", "text"),
        Column("rx_rate", "received/s", "bytes"),
        Column("rx_packets", "packets/s", "rate"),
        Column("tx_rate", "sent/s", "bytes"),
        Column("tx_packets", "packets/s", "rate"),
        Column("errors", "errors"),
        Column("dropped", "dropped"),
    )
    return of.grid(columns, rows, MOST, "net_delta", empty="nothing was sent or received")


def _cgroups(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select cgroup, coalesce(sum(cpu_ns), 0) / 1e9 as cpu_s, coalesce(sum(throttled_ns), 0) / 1e9 as throttled_s,
               max(memory_bytes) as memory_bytes, max(memory_max_bytes) as memory_max_bytes,
               coalesce(sum(memory_limit_hits), 0)::bigint as limit_hits, coalesce(sum(oom_kills), 0)::bigint as oom_kills
        from cgroup_delta group by cgroup order by throttled_s desc, limit_hits desc, cpu_s desc, cgroup
        """
    )
    columns = (
        Column("cgroup", "control group", "text"),
        Column("cpu_s", "CPU, s", "seconds"),
        Column("throttled_s", "throttled, s", "seconds"),
        Column("memory_bytes", "memory", "bytes"),
        Column("memory_max_bytes", "limit", "bytes"),
        Column("limit_hits", "limit hits", "rate"),
        Column("oom_kills", "killed"),
    )
    return of.grid(columns, rows, MOST, "cgroup_delta", empty="no control group did anything")


def _is_host(of: Context) -> bool:
    return of.capture.manifest.target.kind == "host"


_ALL = (
    Section("host_cpu", "CPU", (*NEEDS, "process_use", "device_delta"), _cpu, tiles=_tiles),
    Section("host_processes", "Processes", ("process_use",), _processes),
    Section("host_short_processes", "Processes that ended", ("process_exit",), _short),
    Section("host_pressure", "Pressure", NEEDS, _pressure),
    Section("host_devices", "Devices", ("device_delta",), _devices),
    Section("host_network", "Network", ("net_delta",), _network),
    Section("host_cgroups", "Control groups", ("cgroup_delta",), _cgroups),
)
SECTIONS = tuple(replace(section, applies=_is_host) for section in _ALL)
BESIDE = tuple(replace(section, applies=lambda of: not _is_host(of), in_text=False, tiles=None) for section in _ALL)
