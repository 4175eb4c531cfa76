//! Packets and files of packets as a small writer makes them, and messages of PostgreSQL to put into them.

use std::io::Read;

use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::file::PacketReader;

/// A file of packets.
pub struct File {
    pub bytes: Vec<u8>,
    ng: bool,
}

impl File {
    /// pcap in little-endian with microseconds.
    pub fn pcap(link: u32) -> File {
        let mut bytes = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        bytes.extend(link.to_le_bytes());
        File { bytes, ng: false }
    }

    /// pcapng in little-endian with nanoseconds and one interface.
    pub fn pcapng(link: u16) -> File {
        let mut file = File { bytes: Vec::new(), ng: true };
        let section = [&0x1A2B_3C4Du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xFF; 8]].concat();
        file.block(0x0A0D_0D0A, &section);
        let interface = [&link.to_le_bytes()[..], &[0, 0, 0, 0, 4, 0], &[9, 0, 1, 0, 9, 0, 0, 0], &[0; 4]].concat();
        file.block(1, &interface);
        file
    }

    /// A block of pcapng.
    pub fn block(&mut self, kind: u32, body: &[u8]) {
        let padding = vec![0; (4 - body.len() % 4) % 4];
        let length = (12 + body.len() + padding.len()) as u32;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.extend(padding);
        self.bytes.extend(length.to_le_bytes());
    }

    /// One more interface, of Ethernet; its number is that of those before.
    pub fn interface(&mut self) {
        self.block(1, &[&[1, 0, 0, 0, 0, 0, 4, 0][..], &[9, 0, 1, 0, 9, 0, 0, 0], &[0; 4]].concat());
    }

    /// A packet of an interface of pcapng.
    pub fn packet_at(&mut self, interface: u32, ts_ns: i64, frame: &[u8]) {
        let ts = ts_ns as u64;
        let words = [interface, (ts >> 32) as u32, ts as u32, frame.len() as u32, frame.len() as u32];
        let body = [&words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()[..], frame].concat();
        self.block(6, &body);
    }

    /// A packet of which `captured` bytes are in the file.
    pub fn packet(&mut self, ts_ns: i64, frame: &[u8], captured: usize) {
        let (captured, length) = (&frame[..frame.len().min(captured)], frame.len() as u32);
        if self.ng {
            let ts = ts_ns as u64;
            let mut body = vec![0; 4];
            body.extend(((ts >> 32) as u32).to_le_bytes());
            body.extend((ts as u32).to_le_bytes());
            body.extend((captured.len() as u32).to_le_bytes());
            body.extend(length.to_le_bytes());
            body.extend(captured);
            self.block(6, &body);
        } else {
            self.bytes.extend(((ts_ns / 1_000_000_000) as u32).to_le_bytes());
            self.bytes.extend(((ts_ns % 1_000_000_000 / 1000) as u32).to_le_bytes());
            self.bytes.extend((captured.len() as u32).to_le_bytes());
            self.bytes.extend(length.to_le_bytes());
            self.bytes.extend(captured);
        }
    }
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// An IPv4 packet with a TCP segment.
pub fn tcp(from: (u8, u16), to: (u8, u16), seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((40 + data.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from.0, 10, 0, 0, to.0]);
    ip.extend(from.1.to_be_bytes());
    ip.extend(to.1.to_be_bytes());
    ip.extend(seq.to_be_bytes());
    ip.extend(ack.to_be_bytes());
    ip.extend([0x50, flags, 2, 0, 0, 0, 0, 0]);
    ip.extend(data);
    ip
}

/// The same with a number in the IP header and time stamps, as Linux sends it.
pub fn stamped(mut packet: Vec<u8>, id: u16, ms: u32) -> Vec<u8> {
    let length = packet.len() as u16 + 12;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[32] += 3 << 4;
    let option = [&[1, 1, 8, 10][..], &ms.to_be_bytes(), &[0, 0, 0, 1]].concat();
    packet.splice(40..40, option);
    packet
}

/// The same with IPv6 and a header of options in front.
pub fn tcp6(from: (u8, u16), to: (u8, u16), seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let four = tcp(from, to, seq, ack, flags, data);
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((28 + data.len() as u16).to_be_bytes());
    ip.extend([60, 64]);
    for end in [from.0, to.0] {
        ip.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    ip.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    ip.extend(&four[20..]);
    ip
}

/// A frame of Ethernet with VLAN tags.
pub fn ether(tags: &[u16], ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for kind in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xDD] });
    frame.extend(ip);
    frame
}

/// One connection, packet by packet, written into a file of Ethernet frames. Time goes on by `step_ns` for each packet.
pub struct Line {
    pub file: File,
    pub ts: i64,
    pub step_ns: i64,
    pub client: (u8, u16),
    pub server: (u8, u16),
    pub seqs: [u32; 2],
    pub captured: usize,
}

impl Line {
    pub fn new(file: File, server_port: u16) -> Line {
        Line {
            file,
            ts: 1_700_000_000_000_000_000,
            step_ns: 100_000,
            client: (1, 40_000),
            server: (2, server_port),
            seqs: [0xFFFF_FFF0, 5000],
            captured: usize::MAX,
        }
    }

    /// A packet as it is.
    pub fn raw(&mut self, from_client: bool, seq: u32, ack: u32, flags: u8, data: &[u8]) {
        let (from, to) = if from_client { (self.client, self.server) } else { (self.server, self.client) };
        self.file.packet(self.ts, &ether(&[], &tcp(from, to, seq, ack, flags, data)), self.captured);
        self.ts += self.step_ns;
    }

    pub fn handshake(&mut self) {
        let [client, server] = self.seqs;
        self.raw(true, client, 0, SYN, &[]);
        self.raw(false, server, client.wrapping_add(1), SYN | ACK, &[]);
        self.seqs = [client.wrapping_add(1), server.wrapping_add(1)];
        self.ack(true);
    }

    pub fn ack(&mut self, from_client: bool) {
        let me = usize::from(!from_client);
        self.raw(from_client, self.seqs[me], self.seqs[1 - me], ACK, &[]);
    }

    /// Data in one segment.
    pub fn say(&mut self, from_client: bool, data: &[u8]) {
        let me = usize::from(!from_client);
        self.raw(from_client, self.seqs[me], self.seqs[1 - me], ACK | 8, data);
        self.seqs[me] = self.seqs[me].wrapping_add(data.len() as u32);
    }

    pub fn client(&mut self, data: &[u8]) {
        self.say(true, data);
    }

    pub fn server(&mut self, data: &[u8]) {
        self.say(false, data);
    }

    /// What was said before comes again.
    pub fn again(&mut self, from_client: bool, data: &[u8]) {
        let me = usize::from(!from_client);
        self.raw(from_client, self.seqs[me].wrapping_sub(data.len() as u32), self.seqs[1 - me], ACK | 8, data);
    }

    pub fn close(&mut self) {
        let [client, server] = self.seqs;
        self.raw(true, client, server, FIN | ACK, &[]);
        self.raw(false, server, client.wrapping_add(1), FIN | ACK, &[]);
    }
}

/// Messages of PostgreSQL.
pub mod pg {
    pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut all = vec![kind];
        all.extend((body.len() as u32 + 4).to_be_bytes());
        all.extend(body);
        all
    }

    pub fn first(code: u32, body: &[u8]) -> Vec<u8> {
        let mut all = (body.len() as u32 + 8).to_be_bytes().to_vec();
        all.extend(code.to_be_bytes());
        all.extend(body);
        all
    }

    pub fn startup(user: &str, database: &str) -> Vec<u8> {
        first(196_608, format!("user\0{user}\0database\0{database}\0application_name\0test\0\0").as_bytes())
    }

    pub fn ssl_request() -> Vec<u8> {
        first(80_877_103, &[])
    }

    pub fn query(text: &str) -> Vec<u8> {
        message(b'Q', format!("{text}\0").as_bytes())
    }

    pub fn execute(rows: i32) -> Vec<u8> {
        message(b'E', &[&b"portal\0"[..], &rows.to_be_bytes()].concat())
    }

    pub fn auth(code: u32) -> Vec<u8> {
        message(b'R', &code.to_be_bytes())
    }

    pub fn ready(status: u8) -> Vec<u8> {
        message(b'Z', &[status])
    }

    pub fn row(bytes: usize) -> Vec<u8> {
        message(b'D', &[&[0, 1][..], &(bytes as u32).to_be_bytes(), &vec![b'x'; bytes]].concat())
    }

    /// An answer: rows, the end of the statement, and ready.
    pub fn answer(rows: usize, status: u8) -> Vec<u8> {
        let mut all = message(b'T', &[0, 0]);
        (0..rows).for_each(|_| all.extend(row(20)));
        all.extend(message(b'C', b"SELECT\0"));
        all.extend(ready(status));
        all
    }
}

/// From the first packet to the first ReadyForQuery, without a password.
pub fn login(line: &mut Line) {
    line.handshake();
    line.client(&pg::startup("app", "shop"));
    line.server(&[pg::auth(0), pg::message(b'S', b"server_version\x0015\0"), pg::ready(b'I')].concat());
}

/// What is in the packets of a connection.
pub fn analysed(line: &Line) -> Analyser {
    analysed_for(&line.file.bytes[..], &[])
}

/// What is in a file of packets, followed to its end. Ports of servers; none for all.
pub fn analysed_for(file: impl Read, ports: &[u16]) -> Analyser {
    let mut packets = PacketReader::new(file).unwrap();
    let options = Options { ports: ports.to_vec(), interval_ns: 1_000_000_000, keep_rows: true, ..Options::default() };
    let mut analyser = Analyser::new(options);
    while let Some(packet) = packets.next_packet().unwrap() {
        analyser.take(&packet);
    }
    analyser.finish();
    analyser
}
