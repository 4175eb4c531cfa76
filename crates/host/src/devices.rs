//! Block devices and network interfaces: rows of `device_delta` and `net_delta`. A device that did nothing gives no row.

use leadline_clockwork::OwnedRow;
use leadline_clockwork::ProcFile;
use std::collections::HashMap;
use std::path::Path;

const SECTOR: i64 = 512; // of /proc/diskstats, whatever the device has
const MS: i64 = 1_000_000;
/// What each counter of /proc/diskstats is multiplied with, from reads completed on; in_flight, the ninth, is no counter.
const DISK: [i64; 17] = [1, 1, SECTOR, MS, 1, 1, SECTOR, MS, 1, MS, MS, 1, 1, SECTOR, MS, 1, MS];
const IN_FLIGHT: usize = 8;
/// Places in /proc/net/dev of bytes, packets, errors and drops, received and sent.
const NET: [usize; 8] = [0, 1, 2, 3, 8, 9, 10, 11];

/// Differences of one file's counters, by the name of the device.
#[derive(Debug)]
struct Source<const N: usize> {
    file: Option<ProcFile>,
    last: HashMap<String, [i64; N]>,
}

impl<const N: usize> Source<N> {
    fn open(path: &str) -> Self {
        Source { file: ProcFile::open(path).ok(), last: HashMap::new() }
    }

    /// What was counted since the last reading; None the first time.
    fn since(&mut self, name: &str, now: [i64; N]) -> Option<[i64; N]> {
        let Some(last) = self.last.get_mut(name) else {
            self.last.insert(name.to_owned(), now);
            return None;
        };
        let mut used = now;
        used.iter_mut().zip(last.iter()).for_each(|(now, last)| *now = (*now - last).max(0));
        *last = now;
        Some(used)
    }
}

/// Follows devices and interfaces.
#[derive(Debug)]
pub struct Devices {
    disks: Source<17>,
    nets: Source<8>,
    whole: HashMap<String, bool>,
    last_ts: Option<i64>,
    buffer: Vec<u8>,
}

/// What one reading gave.
#[derive(Debug, Default)]
pub struct Found {
    /// Rows of `device_delta`.
    pub disks: Vec<OwnedRow>,
    /// Rows of `net_delta`.
    pub nets: Vec<OwnedRow>,
}

impl Devices {
    /// Opens what the kernel offers.
    pub fn open() -> Self {
        Devices {
            disks: Source::open("/proc/diskstats"),
            nets: Source::open("/proc/net/dev"),
            whole: HashMap::new(),
            last_ts: None,
            buffer: vec![0; 256 << 10],
        }
    }

    /// Reads all. The first reading gives no differences.
    pub fn read(&mut self, ts: i64) -> Found {
        let mut found = Found::default();
        let dt_ns = self.last_ts.map_or(0, |last| ts - last);
        self.last_ts = Some(ts);
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some(text) = self.disks.file.as_ref().and_then(|f| f.read(&mut buffer).ok()) {
            for (name, now) in text.lines().filter_map(disk_line) {
                let whole = self.whole.entry(name.to_owned()).or_insert_with(|| is_whole(name));
                if !*whole {
                    continue;
                }
                let Some(used) = self.disks.since(name, now) else { continue };
                let in_flight = now[IN_FLIGHT];
                if in_flight == 0 && used.iter().all(|v| *v == 0) {
                    continue;
                }
                let mut row = OwnedRow::default();
                row.int(ts).int(dt_ns).text(name);
                for (at, v) in used.iter().enumerate() {
                    row.int(if at == IN_FLIGHT { in_flight } else { *v });
                }
                found.disks.push(row);
            }
        }
        if let Some(text) = self.nets.file.as_ref().and_then(|f| f.read(&mut buffer).ok()) {
            for (name, now) in text.lines().filter_map(net_line) {
                let Some(used) = self.nets.since(name, now).filter(|used| used.iter().any(|v| *v != 0)) else {
                    continue;
                };
                let mut row = OwnedRow::default();
                row.int(ts).int(dt_ns).text(name);
                used.iter().for_each(|v| _ = row.int(*v));
                found.nets.push(row);
            }
        }
        self.buffer = buffer;
        found
    }
}

/// A whole device and no partition: what a partition does is counted at its device too.
fn is_whole(name: &str) -> bool {
    Path::new("/sys/block").join(name.replace('/', "!")).exists()
}

/// Name and counters of a line; counters that an older kernel does not have are 0.
fn disk_line(line: &str) -> Option<(&str, [i64; 17])> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let name = fields.next()?;
    let mut counters = [0; 17];
    let mut read = 0;
    for ((place, factor), field) in counters.iter_mut().zip(DISK).zip(fields) {
        *place = field.parse::<i64>().ok()?.saturating_mul(factor);
        read += 1;
    }
    (read >= 11).then_some((name, counters))
}

fn net_line(line: &str) -> Option<(&str, [i64; 8])> {
    let (name, rest) = line.split_once(':')?;
    let fields: Vec<i64> = rest.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let mut counters = [0; 8];
    for (place, at) in counters.iter_mut().zip(NET) {
        *place = *fields.get(at)?;
    }
    Some((name.trim(), counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_capture::spec;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let (name, disk) = disk_line(" 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").unwrap();
        assert_eq!((name, disk[2], disk[3], disk[IN_FLIGHT], disk[9]), ("vda", 3 * 512, 4_000_000, 9, 10_000_000));
        let (_, old) = disk_line(" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!(old[10..], [11_000_000, 0, 0, 0, 0, 0, 0]);
        let (name, net) = net_line("  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
        assert_eq!((name, net), ("eth0", [1, 2, 3, 4, 9, 10, 11, 12]));
        for broken in ["", "vda", "1 2 vda", "1 2 vda x 2 3 4 5 6 7 8 9 10 11", " face |bytes packets"] {
            assert!(disk_line(broken).is_none() && net_line(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn rows_have_the_columns_of_their_tables() {
        assert_eq!(spec("device_delta").unwrap().columns.len(), 3 + 17);
        assert_eq!(spec("net_delta").unwrap().columns.len(), 3 + 8);
        let mut devices = Devices::open();
        let first = devices.read(0);
        assert!(first.disks.is_empty() && first.nets.is_empty());
        let before = devices.nets.last["lo"][1];
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let second = devices.read(7);
        assert!(devices.nets.last["lo"][1] > before);
        assert!(second.nets.iter().all(|row| row.row().len() == 11) && !second.nets.is_empty());
    }
}
