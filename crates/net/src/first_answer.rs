//! What databases answer before a login: PRELOGIN of SQL Server (TDS), and the ping of an Oracle listener (TNS), as tnsping asks it.

use std::time::Duration;

use serde_json::{json, Value};

use crate::address::{connect, resolve, Place};
use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};
use crate::link::Link;

const PRELOGIN: u8 = 0x12;
const TABULAR_RESULT: u8 = 0x04;
const TDS_HEADER: usize = 8;
const VERSION: u8 = 0;
const ENCRYPTION: u8 = 1;
const TERMINATOR: u8 = 0xFF;
/// What a server says of encryption, by its byte.
const ENCRYPTIONS: [&str; 4] = ["of the login", "of everything", "not supported", "required"];

const TNS_HEADER: usize = 8;
const TNS_CONNECT: u8 = 1;
const TNS_ACCEPT: u8 = 2;
const TNS_REFUSE: u8 = 4;
const TNS_RESEND: u8 = 11;
/// Where the data of a connect packet begin.
const CONNECT_DATA: u16 = 58;
const PING: &str = "(CONNECT_DATA=(COMMAND=ping))";
/// A listener asks once to send a packet again.
const MOST_RESENDS: u32 = 3;

/// From the question to the whole answer, and what it says.
pub type Answer = (i64, Value);

/// The first answer of a SQL Server. Source: [MS-TDS] 2.2.6.5.
pub fn tds(place: &Place, timeout: Duration) -> Outcome<Answer> {
    let mut link = open(place, timeout, "prelogin")?;
    let began = now_ns();
    link.send(&prelogin())?;
    let head = link.take(TDS_HEADER)?;
    let (kind, length) = (head[0], usize::from(u16::from_be_bytes([head[2], head[3]])));
    if kind != TABULAR_RESULT || length < TDS_HEADER {
        return Err(Fault::protocol("prelogin", "the answer is not that of a SQL Server"));
    }
    let body = link.take(length - TDS_HEADER)?.to_vec();
    let took = now_ns() - began;
    let version = option(&body, VERSION).filter(|v| v.len() >= 4);
    let version = version.map(|v| format!("{}.{}.{}", v[0], v[1], u16::from_be_bytes([v[2], v[3]])));
    let encryption = option(&body, ENCRYPTION).and_then(|v| ENCRYPTIONS.get(usize::from(*v.first()?)).copied());
    if version.is_none() {
        return Err(Fault::protocol("prelogin", "the answer has no version"));
    }
    Ok((took, json!({ "version": version, "encryption": encryption })))
}

/// The first answer of an Oracle listener: it refuses what is no service, and says who it is.
pub fn oracle(place: &Place, timeout: Duration) -> Outcome<Answer> {
    let mut link = open(place, timeout, "listener")?;
    let packet = tns_connect(PING);
    let began = now_ns();
    for _ in 0..=MOST_RESENDS {
        link.send(&packet)?;
        let head = link.take(TNS_HEADER)?;
        let (length, kind) = (usize::from(u16::from_be_bytes([head[0], head[1]])), head[4]);
        // Before its length is believed: of other servers these bytes are anything.
        if length < TNS_HEADER || ![TNS_RESEND, TNS_REFUSE, TNS_ACCEPT].contains(&kind) {
            return Err(Fault::protocol("listener", "the answer is not that of an Oracle listener"));
        }
        let body = link.take(length - TNS_HEADER)?.to_vec();
        match kind {
            TNS_RESEND => {}
            TNS_REFUSE => {
                let took = now_ns() - began;
                let text = String::from_utf8_lossy(body.get(4..).unwrap_or_default()).into_owned();
                return Ok((
                    took,
                    json!({ "version": number(&text, "(VSNNUM=").map(version_of), "error": number(&text, "(ERR=") }),
                ));
            }
            _ => return Ok((now_ns() - began, json!({ "version": null, "error": null }))),
        }
    }
    Err(Fault::protocol("listener", "the listener asks again and again to send the packet"))
}

fn open(place: &Place, timeout: Duration, phase: &'static str) -> Outcome<Link> {
    let (addresses, _) = resolve(place, timeout)?;
    let mut link = Link::new(connect(&addresses, timeout, None)?.0, timeout);
    link.phase = phase;
    Ok(link)
}

/// VERSION and ENCRYPTION (not supported by us), with a table of where they are.
fn prelogin() -> Vec<u8> {
    let options = [(VERSION, vec![0; 6]), (ENCRYPTION, vec![2])];
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for (name, value) in &options {
        let at = options.len() * 5 + 1 + data.len();
        table.push(*name);
        table.extend((at as u16).to_be_bytes());
        table.extend((value.len() as u16).to_be_bytes());
        data.extend(value);
    }
    table.push(TERMINATOR);
    let length = (TDS_HEADER + table.len() + data.len()) as u16;
    let mut packet = vec![PRELOGIN, 1];
    packet.extend(length.to_be_bytes());
    packet.extend([0; 4]);
    [packet, table, data].concat()
}

fn option(body: &[u8], wanted: u8) -> Option<&[u8]> {
    let entry = body.chunks_exact(5).take_while(|entry| entry[0] != TERMINATOR).find(|entry| entry[0] == wanted)?;
    let at = usize::from(u16::from_be_bytes([entry[1], entry[2]]));
    body.get(at..at + usize::from(u16::from_be_bytes([entry[3], entry[4]])))
}

fn tns_connect(data: &str) -> Vec<u8> {
    let length = CONNECT_DATA + data.len() as u16;
    let mut packet = length.to_be_bytes().to_vec();
    packet.extend([0, 0, TNS_CONNECT, 0, 0, 0]);
    // Version 310, compatible with 300, no options, sizes of data and transport units, what the transport can, no turnaround, byte order.
    packet.extend([0x01, 0x36, 0x01, 0x2C, 0, 0, 0x20, 0, 0x7F, 0xFF, 0x7F, 0x08, 0, 0, 0, 1]);
    packet.extend((data.len() as u16).to_be_bytes());
    packet.extend(CONNECT_DATA.to_be_bytes());
    packet.resize(usize::from(CONNECT_DATA), 0);
    packet.extend(data.as_bytes());
    packet
}

fn number(text: &str, name: &str) -> Option<u32> {
    let rest = &text[text.find(name)? + name.len()..];
    rest.split(')').next()?.trim().parse().ok()
}

/// Five numbers in a word: of 8, 4, 8, 4 and 8 bits; from 18 on, of 8, 8, 4, 4 and 8.
fn version_of(word: u32) -> String {
    let part = |shift: u32, bits: u32| (word >> shift) & ((1 << bits) - 1);
    let parts = if part(24, 8) < 18 {
        [part(24, 8), part(20, 4), part(12, 8), part(8, 4), part(0, 8)]
    } else {
        [part(24, 8), part(16, 8), part(12, 4), part(8, 4), part(0, 8)]
    };
    parts.map(|p| p.to_string()).join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_five_numbers() {
        assert_eq!(version_of(0x0B20_0400), "11.2.0.4.0"); // VSNNUM=186647552
        assert_eq!(version_of(318_767_104), "19.0.0.0.0");
        assert_eq!(version_of(0x1303_0000), "19.3.0.0.0");
    }

    #[test]
    fn packets_are_as_the_specifications_have_them() {
        let wanted = [0x12, 1, 0, 26, 0, 0, 0, 0, 0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 0, 0, 0, 0, 0, 0, 2];
        assert_eq!(prelogin(), wanted);
        let packet = tns_connect(PING);
        assert_eq!((packet.len(), &packet[..5]), (87, &[0, 87, 0, 0, 1][..]));
        assert_eq!(&packet[24..28], [0, 29, 0, 58]);
        assert_eq!(&packet[58..], PING.as_bytes());
    }
}
