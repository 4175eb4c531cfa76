//! TCP within tunnels.

#[allow(dead_code)]
mod made;

use leadline_wire::headers::content;
use leadline_wire::packet::{Content, Link, Packet};
use made::{ether, tcp, tcp6, ACK};

/// An IPv4 packet of this protocol.
fn ip(protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut all = vec![0x45, 0];
    all.extend((20 + body.len() as u16).to_be_bytes());
    all.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2]);
    all.extend(body);
    all
}

fn udp(port: u16, body: &[u8]) -> Vec<u8> {
    let ports = [[0xC0, 0], port.to_be_bytes(), (8 + body.len() as u16).to_be_bytes(), [0, 0]].concat();
    ip(17, &[&ports[..], body].concat())
}

fn gre(flags: u16, kind: u16, body: &[u8]) -> Vec<u8> {
    ip(47, &[&flags.to_be_bytes()[..], &kind.to_be_bytes(), body].concat())
}

fn found(data: &[u8]) -> String {
    let packet = Packet { ts: 0, wire_len: data.len() as u32, link: Link::Ethernet, place: 0, data };
    match content(&packet) {
        Content::Tcp(s) => {
            format!("{} to {} port {}+{}", s.from.addr_text(), s.to.addr_text(), s.to.port, s.payload_len)
        }
        other => format!("{other:?}"),
    }
}

fn four() -> Vec<u8> {
    tcp((1, 9), (2, 5432), 1, 1, ACK, b"abc")
}

const FOUR: &str = "10.0.0.1 to 10.0.0.2 port 5432+3";

#[test]
fn each_tunnel_leads_to_the_segment_in_it() {
    let four = four();
    let six = tcp6((1, 9), (2, 5432), 1, 1, ACK, b"abc");
    let frame = ether(&[0x8100], &four);
    let behind = |front: &[u8], body: &[u8]| [front, body].concat();
    for (name, outer) in [
        ("IP in IP", ip(4, &four)),
        ("GRE", gre(0, 0x0800, &four)),
        ("GRE with checksum, key and number", gre(0xB000, 0x0800, &behind(&[9; 12], &four))),
        ("a frame in GRE", gre(0x2000, 0x6558, &behind(&[0; 4], &frame))),
        ("ERSPAN 1", gre(0, 0x88BE, &frame)),
        ("ERSPAN 2", gre(0x1000, 0x88BE, &behind(&[0; 12], &frame))),
        ("ERSPAN 3", gre(0x1000, 0x22EB, &behind(&[0; 16], &frame))),
        ("ERSPAN 3 with a subheader", gre(0x1000, 0x22EB, &behind(&[&[0; 15][..], &[1], &[0; 8]].concat(), &frame))),
        ("VXLAN", udp(4789, &behind(&[8, 0, 0, 0, 0, 0, 7, 0], &frame))),
        ("VXLAN at Linux' first port", udp(8472, &behind(&[8, 0, 0, 0, 0, 0, 7, 0], &frame))),
        ("VXLAN-GPE", udp(4790, &behind(&[12, 0, 0, 1, 0, 0, 7, 0], &four))),
        ("Geneve with options", udp(6081, &behind(&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 4], &frame))),
        ("MPLS in IP", ip(137, &behind(&[0, 0, 0, 64, 0, 0, 0x11, 64], &four))),
        ("VXLAN in IP in IP", ip(4, &udp(4789, &behind(&[8, 0, 0, 0, 0, 0, 7, 0], &frame)))),
    ] {
        assert_eq!(found(&ether(&[], &outer)), FOUR, "{name}");
    }
    assert_eq!(found(&ether(&[], &ip(41, &six))), "2001:db8::1 to 2001:db8::2 port 5432+3");
    let link = |kind: u16, front: &[u8], body: &[u8]| [&[2; 12][..], &kind.to_be_bytes(), front, body].concat();
    assert_eq!(found(&link(0x8847, &[0, 0, 0, 64, 0, 0, 0x11, 64], &four)), FOUR);
    assert_eq!(found(&link(0x8847, &[0, 0, 0x11, 64, 0, 0, 0, 0], &frame)), FOUR); // a pseudowire with its control word
    assert_eq!(found(&link(0x8926, &[0, 0, 0, 7, 0x81, 0, 0, 7, 8, 0], &four)), FOUR); // VN-Tag, then VLAN
    assert_eq!(found(&link(0x8909, &[1, 1, 0, 1, 0, 7, 8, 0], &four)), FOUR);
    assert_eq!(found(&link(0x8864, &[0x11, 0, 0, 1, 0, 45, 0, 0x21], &four)), FOUR);
}

#[test]
fn what_is_no_tunnel_or_too_deep_is_something_else_and_half_a_tunnel_is_cut() {
    let mut deep = four();
    for _ in 0..4 {
        deep = ip(4, &deep);
    }
    assert_eq!(found(&ether(&[], &deep)), FOUR);
    assert_eq!(found(&ether(&[], &ip(4, &deep))), "Other");
    for outer in
        [udp(53, &[8; 80]), udp(4789, &[0xFF; 40]), udp(4789, b"ab"), udp(6081, &[0xC0; 40]), gre(1, 0x880B, &[0; 40])]
    {
        assert_eq!(found(&ether(&[], &outer)), "Other");
    }
    let whole = ether(&[], &udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &ether(&[], &four())].concat()));
    assert_eq!(found(&whole[..whole.len() - 30]), "Cut");
}

/// Headers with any bytes behind them, at any length: read or not, but never more than there is.
#[test]
fn any_bytes_behind_the_headers_are_something() {
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for round in 0..20_000u32 {
        let noise: Vec<u8> = (0..random() % 90).map(|_| random()).collect();
        let outer = match round % 6 {
            0 => udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &noise].concat()),
            1 => udp(6081, &noise),
            2 => ip(47, &noise),
            3 => ip(4, &noise),
            4 => gre(0x1000, 0x22EB, &noise),
            _ => ip(137, &noise),
        };
        let mut frame = ether(&[], &outer);
        let places = frame.len();
        for _ in 0..random() % 3 {
            let at = usize::from(random()) % places;
            frame[at] = random();
        }
        frame.truncate(places - usize::from(random()) % places);
        assert!(!found(&frame).is_empty());
    }
}
