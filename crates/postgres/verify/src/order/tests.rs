use super::*;
use Ordering::{Equal, Greater, Less};

fn none() -> (Collations, Enums) {
    (Collations::default(), Enums::default())
}

fn order(function: u32) -> Order {
    let (collations, enums) = none();
    Order::of(function, 950, &collations, &enums).unwrap()
}

/// A numeric of a weight and digits of base 10000.
fn numeric(is_negative: bool, weight: i16, digits: &[i16]) -> Vec<u8> {
    let sign: u16 = if is_negative { 0x4000 } else { 0 };
    let words = digits.iter().flat_map(|digit| digit.to_le_bytes());
    sign.to_le_bytes().into_iter().chain(weight.to_le_bytes()).chain(words).collect()
}

/// The same with the header of two bytes.
fn short_numeric(is_negative: bool, weight: i8, digits: &[i16]) -> Vec<u8> {
    let head = 0x8000 | u16::from(is_negative) << 13 | (weight as u16 & 0x7f);
    head.to_le_bytes().into_iter().chain(digits.iter().flat_map(|digit| digit.to_le_bytes())).collect()
}

#[test]
fn numerics_are_in_the_order_of_their_values() {
    let special = |head: u16| head.to_le_bytes().to_vec();
    let ascending = [
        special(0xf000),
        numeric(true, 2, &[1]),
        short_numeric(true, 0, &[12]),
        short_numeric(true, -1, &[5000]),
        short_numeric(false, 0, &[]),
        short_numeric(false, -1, &[5000]),
        numeric(false, -1, &[5000, 1]),
        short_numeric(false, 0, &[1]),
        short_numeric(false, 1, &[1]),
        special(0xd000),
        special(0xc000),
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(order(1769).compare(a, b), Some(i.cmp(&j)), "{a:?} {b:?}");
        }
    }
    assert_eq!(order(1769).compare(&numeric(true, -2, &[7]), &short_numeric(true, -2, &[7])), Some(Equal));
}

#[test]
fn nan_is_the_greatest_float_and_zeros_are_equal() {
    let compare = |a: f64, b: f64| order(355).compare(&a.to_le_bytes(), &b.to_le_bytes());
    assert_eq!(compare(f64::NAN, f64::INFINITY), Some(Greater));
    assert_eq!(compare(f64::NAN, f64::NAN), Some(Equal));
    assert_eq!(compare(0.0, -0.0), Some(Equal));
    assert_eq!(compare(-1.0, f64::NAN), Some(Less));
}

#[test]
fn a_month_has_30_days_and_a_zone_decides_last() {
    let interval = |time: i64, days: i32, months: i32| {
        [time.to_le_bytes().as_slice(), &days.to_le_bytes(), &months.to_le_bytes()].concat()
    };
    let compare = |a: &[u8], b: &[u8]| order(1315).compare(a, b);
    assert_eq!(compare(&interval(0, 30, 0), &interval(0, 0, 1)), Some(Equal));
    assert_eq!(compare(&interval(86_400_000_001, 29, 0), &interval(0, 0, 1)), Some(Greater));
    assert_eq!(
        compare(&interval(i64::MAX, i32::MAX, i32::MAX), &interval(i64::MIN, i32::MIN, i32::MIN)),
        Some(Greater)
    );
    let timetz = |time: i64, zone: i32| [time.to_le_bytes().as_slice(), &zone.to_le_bytes()].concat();
    assert_eq!(order(1358).compare(&timetz(0, 3600), &timetz(3_600_000_000, 0)), Some(Greater));
    assert_eq!(order(1358).compare(&timetz(0, 0), &timetz(1, 0)), Some(Less));
}

#[test]
fn networks_come_before_their_parts() {
    let ascending = [
        [2, 8, 10, 0, 0, 0].to_vec(),
        [2, 16, 10, 0, 0, 0].to_vec(),
        [2, 32, 10, 0, 0, 1].to_vec(),
        [2, 9, 10, 128, 0, 0].to_vec(),
        [[3, 0].as_slice(), &[0; 16]].concat(),
    ];
    for pair in ascending.windows(2) {
        assert_eq!(order(926).compare(&pair[0], &pair[1]), Some(Less), "{pair:?}");
    }
    assert_eq!(order(926).compare(&[2, 33, 1, 2, 3, 4], &ascending[0]), None);
}

#[test]
fn texts_without_a_known_collation_are_only_equal_or_not() {
    let (mut collations, enums) = none();
    collations.add(7, "de", false, true);
    let of = |function, collation| Order::of(function, collation, &collations, &enums);
    assert_eq!(of(360, 7).unwrap().compare(b"a", b"b"), None);
    assert_eq!(of(360, 7).unwrap().compare(b"a", b"a"), Some(Equal));
    assert!(of(1078, 7).is_none() && of(360, 8).is_none());
    assert_eq!(of(1078, 950).unwrap().compare(b"a ", b"a"), Some(Equal));
    assert_eq!(of(2180, 0).unwrap().compare(b"a b", b"a"), Some(Greater));
}

#[test]
fn odd_oids_of_enums_are_where_pg_enum_says() {
    let all = HashMap::from([(10, 1.0), (12, 2.0), (13, 1.5)]);
    assert_eq!(enums(&all, 10, 12), Some(Less));
    assert_eq!(enums(&all, 13, 12), Some(Less));
    assert_eq!(enums(&all, 13, 10), Some(Greater));
    assert_eq!(enums(&all, 13, 14), None);
}

#[test]
fn any_bytes_are_compared_or_not() {
    let mut random = leadline_testdata::Random(1);
    for function in [350, 351, 842, 356, 3251, 354, 355, 358, 1315, 1358, 1769, 926, 1596, 2794, 404, 3514, 1078] {
        for _ in 0..2000 {
            let [a, b] = [0, 1].map(|_| {
                let len = random.index(30);
                leadline_testdata::noise(&mut random, len)
            });
            let order = order(function);
            assert_eq!(order.compare(&a, &b), order.compare(&b, &a).map(Ordering::reverse), "{function} {a:?} {b:?}");
        }
    }
}
