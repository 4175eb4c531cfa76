//! Counters of the kernel for the whole host: rows of `host_stat`. Which ones is in `data/counters.csv`.

use crate::procfile::pairs;
use leadline_clockwork::ProcFile;
use std::collections::HashMap;

const LIST: &str = include_str!("../data/counters.csv");
const CPU_FIELDS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
/// The largest of the files is /proc/interrupts of a host with hundreds of CPUs.
const ROOM: usize = 1 << 20;

/// Takes the text of a file apart and gives each name with its number.
type Parse = fn(&str, &mut dyn FnMut(&str, i64));

/// What is taken from one file.
#[derive(Debug)]
struct Source {
    file: ProcFile,
    parse: Parse,
    wanted: HashMap<&'static str, (&'static str, i64)>,
    /// Beginnings of names, with the beginning of the metric.
    prefixes: Vec<(&'static str, &'static str, i64)>,
    /// Names that a prefix takes, as metrics; made once.
    named: HashMap<String, Option<(String, i64)>>,
}

/// The files, kept open.
#[derive(Debug)]
pub struct Counters {
    sources: Vec<Source>,
    buffer: Vec<u8>,
}

impl Counters {
    /// Opens what the kernel offers.
    pub fn open() -> Self {
        let mut sources: Vec<(&str, Source)> = Vec::new();
        for (path, name, metric, factor) in list() {
            if sources.last().is_none_or(|(last, _)| *last != path) {
                let Ok(file) = ProcFile::open(path) else { continue };
                let (wanted, prefixes, named) = Default::default();
                sources.push((path, Source { file, parse: parser(path), wanted, prefixes, named }));
            }
            let Some((_, source)) = sources.last_mut() else { continue };
            match name.strip_suffix('*') {
                Some(prefix) => source.prefixes.push((prefix, metric, factor)),
                None => _ = source.wanted.insert(name, (metric, factor)),
            }
        }
        Counters { sources: sources.into_iter().map(|(_, source)| source).collect(), buffer: vec![0; ROOM] }
    }

    /// All metrics now, each once.
    pub fn read(&mut self, mut each: impl FnMut(&str, i64)) {
        for source in &mut self.sources {
            let Ok(text) = source.file.read(&mut self.buffer) else { continue };
            let (wanted, prefixes, named) = (&source.wanted, &source.prefixes, &mut source.named);
            (source.parse)(text, &mut |name, value| {
                if let Some((metric, factor)) = wanted.get(name) {
                    each(metric, value.saturating_mul(*factor));
                } else if !prefixes.is_empty() {
                    if !named.contains_key(name) {
                        let metric = prefixes.iter().find_map(|(prefix, metric, factor)| {
                            Some((format!("{metric}{}", name.strip_prefix(prefix)?), *factor))
                        });
                        named.insert(name.to_owned(), metric);
                    }
                    if let Some(Some((metric, factor))) = named.get(name) {
                        each(metric, value.saturating_mul(*factor));
                    }
                }
            });
        }
    }
}

/// The rows of the list: file, name, metric, factor.
fn list() -> impl Iterator<Item = (&'static str, &'static str, &'static str, i64)> {
    LIST.lines().filter(|line| line.starts_with('/')).filter_map(|line| {
        let mut fields = line.splitn(4, ',');
        Some((fields.next()?, fields.next()?, fields.next()?, fields.next()?.parse().ok()?))
    })
}

fn parser(path: &str) -> Parse {
    match path {
        "/proc/stat" => stat,
        "/proc/softirqs" | "/proc/interrupts" => per_cpu,
        "/proc/meminfo" => |text, each| pairs(text).for_each(|(name, v)| each(name.trim_end_matches(':'), v)),
        "/proc/net/snmp" | "/proc/net/netstat" => headed,
        _ if path.starts_with("/proc/pressure/") => pressure,
        _ => |text, each| pairs(text).for_each(|(name, value)| each(name, value)),
    }
}

/// /proc/stat: the CPU line by field, of the others the first number.
fn stat(text: &str, each: &mut dyn FnMut(&str, i64)) {
    let ticks = text.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
    for (field, ticks) in CPU_FIELDS.iter().zip(ticks) {
        if let Ok(ticks) = ticks.parse() {
            each(&format!("cpu:{field}"), ticks);
        }
    }
    pairs(text).filter(|(name, _)| !name.starts_with("cpu")).for_each(|(name, value)| each(name, value));
}

/// "name: n n n ... text": the sum over the CPUs. A device's interrupt is named by its number and its handler.
fn per_cpu(text: &str, each: &mut dyn FnMut(&str, i64)) {
    let cpus = text.lines().next().map_or(0, |head| head.split_ascii_whitespace().count());
    for line in text.lines().skip(1) {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let (mut sum, name) = (0i64, name.trim());
        let mut fields = rest.split_ascii_whitespace();
        for count in fields.by_ref().take(cpus) {
            sum = sum.saturating_add(count.parse().unwrap_or(0));
        }
        match fields.last() {
            Some(handler) if name.bytes().all(|b| b.is_ascii_digit()) => each(&format!("{name}_{handler}"), sum),
            _ => each(name, sum),
        }
    }
}

/// "some avg10=... total=n": the total, in microseconds.
fn pressure(text: &str, each: &mut dyn FnMut(&str, i64)) {
    for line in text.lines() {
        let total = line.rsplit_once("total=").and_then(|(_, us)| us.trim().parse().ok());
        if let (Some(kind), Some(us)) = (line.split(' ').next(), total) {
            each(kind, us);
        }
    }
}

/// Two lines a group: "Tcp: names", "Tcp: numbers". The name is then Tcp:NAME.
fn headed(text: &str, each: &mut dyn FnMut(&str, i64)) {
    let mut lines = text.lines();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let (mut names, mut numbers) = (names.split_ascii_whitespace(), numbers.split_ascii_whitespace());
        let (Some(group), Some(same)) = (names.next(), numbers.next()) else { continue };
        if group != same || !matches!(group, "Tcp:" | "Udp:" | "TcpExt:") {
            continue;
        }
        for (name, number) in names.zip(numbers) {
            if let Ok(number) = number.parse() {
                each(&format!("{group}{name}"), number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_read() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.starts_with("file,")).count();
        assert_eq!(list().count(), lines);
    }

    #[test]
    fn the_running_kernel_gives_the_essential_ones() {
        let mut found = Vec::new();
        Counters::open().read(|name, value| found.push((name.to_owned(), value)));
        for name in [
            "vmstat.pgscan_direct",
            "vmstat.pswpin",
            "vmstat.nr_dirty_threshold",
            "stat.cpu_idle_ns",
            "stat.ctxt",
            "meminfo.Dirty_bytes",
            "softirq.TIMER",
            "tcp.segments_out",
            "tcp.timeouts",
        ] {
            assert!(found.iter().any(|(n, _)| n == name), "{name} is missing of {found:?}");
        }
        let mut names: Vec<_> = found.iter().map(|f| &f.0).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), found.len(), "each metric once");
    }

    #[test]
    fn texts_of_the_kernel_are_understood() {
        let taken = |parse: Parse, text: &str| {
            let mut found = Vec::new();
            parse(text, &mut |name, value| found.push(format!("{name}={value}")));
            found.join(" ")
        };
        assert_eq!(
            taken(stat, "cpu  1 2 3\ncpu0 1 2 3\nintr 9 0 1\nctxt 5\n"),
            "cpu:user=1 cpu:nice=2 cpu:system=3 intr=9 ctxt=5"
        );
        assert_eq!(
            taken(per_cpu, "      CPU0 CPU1\n 26: 1 2 IO-APIC 4-edge ttyS0\nLOC: 3 4 Local timer\n"),
            "26_ttyS0=3 LOC=7"
        );
        assert_eq!(taken(pressure, "some avg10=0.00 total=12\nfull avg10=0.00 total=3\n"), "some=12 full=3");
        assert_eq!(taken(headed, "Ip: A\nIp: 1\nTcp: MaxConn X\nTcp: -1 2\n"), "Tcp:MaxConn=-1 Tcp:X=2");
        assert_eq!(taken(headed, "Tcp: A\nUdp: 1\n"), "", "names and numbers of different groups");
        for broken in ["", "cpu", "x: :\n", "some total=x\n"] {
            for parse in [stat, per_cpu, pressure, headed] {
                assert_eq!(taken(parse, broken), "", "{broken:?}");
            }
        }
    }
}
