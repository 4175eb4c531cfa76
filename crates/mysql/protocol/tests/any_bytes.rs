//! Whatever the bytes: what is read of a packet lies in it, and nothing panics.

use leadline_bytes::{Bytes, Endian};
use leadline_mysql_protocol::{field, ErrorPacket, Greeting};
use leadline_testdata::{noise, Random};

#[test]
fn greetings_errors_and_fields_of_any_bytes() {
    let mut random = Random(31);
    let (mut greetings, mut errors) = (0, 0);
    for _ in 0..20_000 {
        let length = random.index(120);
        let mut bytes = noise(&mut random, length);
        if let (Some(first), true) = (bytes.first_mut(), random.below(2) == 0) {
            *first = [10, 0xff][random.index(2)];
        }
        if let Ok(greeting) = Greeting::parse(&bytes) {
            greetings += u32::from(greeting.salt.is_some());
            assert!(greeting.salt.is_none_or(|salt| salt.len() <= 8 + 255) && greeting.version.len() < bytes.len());
        }
        if let Some(error) = ErrorPacket::parse(&bytes) {
            errors += 1;
            assert_eq!(3 + error.sqlstate.map_or(0, |_| 6) + error.message.len(), bytes.len());
        }
        let mut fields = Bytes::new(&bytes, Endian::Little);
        while fields.left() > 0 && field::lenenc(&mut fields).is_ok() {
            field::until_zero(&mut fields);
        }
    }
    assert!(greetings > 100 && errors > 1000, "{greetings} greetings, {errors} errors");
}
