//! The rows of the tables of TPC-C, in the text format of COPY. Each row is made from its own number: any part can be made again alone.

use crate::random::{permute, Random};

/// How many rows there are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of the table of items, and of stock for each warehouse.
    pub items: i64,
    /// Of each district, and orders at first.
    pub customers: i64,
}

/// Of each warehouse.
pub const DISTRICTS: i64 = 10;
const NAMES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// Of 1,000 last names, and the constant with which the first ones are drawn.
const LAST_NAMES: i64 = 1000;
const C_LOAD: i64 = 157;
const SEED: u64 = 0x7063_6362_656e_6368;

/// Tables that have rows of a warehouse, and that of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named as the tables are
pub enum Table {
    Item,
    Warehouse,
    District,
    Customer,
    History,
    Orders,
    NewOrder,
    OrderLine,
    Stock,
}

impl Table {
    /// Of its name.
    pub fn of(name: &str) -> Option<Table> {
        Some(match name {
            "item" => Table::Item,
            "warehouse" => Table::Warehouse,
            "district" => Table::District,
            "customer" => Table::Customer,
            "history" => Table::History,
            "orders" => Table::Orders,
            "new_order" => Table::NewOrder,
            "order_line" => Table::OrderLine,
            "stock" => Table::Stock,
            _ => return None,
        })
    }

    /// How many numbers there are for `rows`. Of a number, `order_line` has 5 to 15 rows, and `new_order` none or one.
    pub fn numbers(self, sizes: Sizes) -> i64 {
        match self {
            Table::Item | Table::Stock => sizes.items,
            Table::Warehouse => 1,
            Table::District => DISTRICTS,
            _ => DISTRICTS * sizes.customers,
        }
    }
}

/// The rows of these numbers, from 0. entered: a timestamp for what has one.
pub fn rows(table: Table, warehouse: i64, sizes: Sizes, numbers: std::ops::Range<i64>, entered: &str) -> String {
    let mut out = String::new();
    for number in numbers {
        let mut row = Row { random: seeded(table, warehouse, number), out: &mut out, first: true };
        let (district, within) = (number / sizes.customers.max(1) + 1, number % sizes.customers.max(1) + 1);
        match table {
            Table::Item => row.item(number + 1),
            Table::Stock => row.stock(warehouse, number + 1),
            Table::Warehouse => row.place(&[warehouse], 300_000),
            Table::District => {
                row.place(&[number + 1, warehouse], 30_000);
                row.cell(sizes.customers + 1);
            }
            Table::Customer => row.customer(warehouse, district, within, entered),
            Table::History => {
                row.cells(&[within, district, warehouse, district, warehouse]);
                row.cell(entered);
                row.cell("10.00");
                row.text(12, 24);
            }
            Table::NewOrder => {
                if is_delivered(within, sizes) {
                    continue;
                }
                row.cells(&[within, district, warehouse]);
            }
            Table::Orders => row.order((warehouse, district, within), sizes, entered),
            Table::OrderLine => {
                let lines = lines(warehouse, number);
                for line in 1..=lines {
                    row.first = true;
                    row.line((warehouse, district, within), line, sizes, entered);
                    if line < lines {
                        row.out.push('\n');
                    }
                }
            }
        }
        out.push('\n');
    }
    out
}

fn seeded(table: Table, warehouse: i64, number: i64) -> Random {
    Random::new(SEED ^ ((table as u64) << 56) ^ ((warehouse as u64) << 28) ^ number as u64)
}

/// Of the first orders of a district, the last three tenths are not delivered.
fn is_delivered(order: i64, sizes: Sizes) -> bool {
    order <= sizes.customers - sizes.customers * 3 / 10
}

/// Of an order, by its number within the warehouse.
fn lines(warehouse: i64, number: i64) -> i64 {
    seeded(Table::Orders, warehouse, number).between(5, 15)
}

/// The name that customers of this number have.
pub fn last_name(number: i64) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].iter().map(|digit| NAMES[*digit as usize]).collect()
}

struct Row<'a> {
    random: Random,
    out: &'a mut String,
    first: bool,
}

impl Row<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push('\t');
        }
    }

    fn cell(&mut self, value: impl std::fmt::Display) {
        use std::fmt::Write;
        self.next();
        let _ = write!(self.out, "{value}"); // a String takes everything
    }

    fn cells(&mut self, values: &[i64]) {
        values.iter().for_each(|value| self.cell(value));
    }

    fn null(&mut self) {
        self.cell("\\N");
    }

    fn drawn(&mut self, least: i64, most: i64) {
        let value = self.random.between(least, most);
        self.cell(value);
    }

    /// Hundredths, or smaller: with so many digits behind the point.
    fn fraction(&mut self, least: i64, most: i64, digits: usize) {
        let value = self.random.between(least, most);
        let unit = 10_i64.pow(digits as u32);
        self.cell(format_args!("{}.{:0digits$}", value / unit, value % unit));
    }

    fn characters(&mut self, from: &[u8], least: i64, most: i64) {
        for _ in 0..self.random.between(least, most) {
            let at = self.random.between(0, from.len() as i64 - 1);
            self.out.push(char::from(from[at as usize]));
        }
    }

    fn text(&mut self, least: i64, most: i64) {
        self.next();
        self.characters(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", least, most);
    }

    fn digits(&mut self, count: i64, then: &str) {
        self.next();
        self.characters(b"0123456789", count, count);
        self.out.push_str(then);
    }

    /// One in ten has ORIGINAL somewhere in it.
    fn data(&mut self) {
        self.text(26, 50);
        if self.random.between(1, 10) == 1 {
            let begin = self.out.rfind('\t').map_or(0, |at| at + 1);
            let at = begin + self.random.between(0, (self.out.len() - begin) as i64 - 8) as usize;
            self.out.replace_range(at..at + 8, "ORIGINAL");
        }
    }

    fn address(&mut self) {
        (0..3).for_each(|_| self.text(10, 20));
        self.next();
        self.characters(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2, 2);
        self.digits(4, "11111");
    }

    /// A warehouse or a district.
    fn place(&mut self, keys: &[i64], year_to_date: i64) {
        self.cells(keys);
        self.text(6, 10);
        self.address();
        self.fraction(0, 2000, 4);
        self.cell(format_args!("{year_to_date}.00"));
    }

    fn item(&mut self, item: i64) {
        self.cell(item);
        self.drawn(1, 10_000);
        self.text(14, 24);
        self.fraction(100, 10_000, 2);
        self.data();
    }

    fn stock(&mut self, warehouse: i64, item: i64) {
        self.cells(&[item, warehouse]);
        self.drawn(10, 100);
        (0..DISTRICTS).for_each(|_| self.text(24, 24));
        self.cells(&[0, 0, 0]);
        self.data();
    }

    fn customer(&mut self, warehouse: i64, district: i64, customer: i64, entered: &str) {
        self.cells(&[customer, district, warehouse]);
        self.text(8, 16);
        self.cell("OE");
        let (low, high) = (self.random.between(0, 255), self.random.between(0, LAST_NAMES - 1));
        let drawn = ((low | high) + C_LOAD) % LAST_NAMES;
        self.cell(last_name(if customer <= LAST_NAMES { customer - 1 } else { drawn }));
        self.address();
        self.digits(16, "");
        self.cell(entered);
        let bad = self.random.between(1, 10) == 1;
        self.cell(if bad { "BC" } else { "GC" });
        self.cell("50000.00");
        self.fraction(0, 5000, 4);
        self.cell("-10.00");
        self.cell("10.00");
        self.cells(&[1, 0]);
        self.text(300, 500);
    }

    fn order(&mut self, (warehouse, district, order): (i64, i64, i64), sizes: Sizes, entered: &str) {
        let lines = self.random.between(5, 15); // as `lines` draws it
        let customer = permute(order - 1, sizes.customers, warehouse * DISTRICTS + district) + 1;
        self.cells(&[order, district, warehouse, customer]);
        self.cell(entered);
        match is_delivered(order, sizes) {
            true => self.drawn(1, 10),
            false => self.null(),
        }
        self.cells(&[lines, 1]);
    }

    fn line(&mut self, (warehouse, district, order): (i64, i64, i64), line: i64, sizes: Sizes, entered: &str) {
        self.cells(&[order, district, warehouse, line]);
        self.drawn(1, sizes.items);
        self.cell(warehouse);
        match is_delivered(order, sizes) {
            true => self.cell(entered),
            false => self.null(),
        }
        self.cell(5);
        match is_delivered(order, sizes) {
            true => self.cell("0.00"),
            false => self.fraction(1, 999_999, 2),
        }
        self.text(24, 24);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SIZES: Sizes = Sizes { items: 100_000, customers: 3000 };
    const AT: &str = "2026-01-01";

    fn cells(table: Table, numbers: std::ops::Range<i64>) -> Vec<Vec<String>> {
        let text = rows(table, 7, SIZES, numbers, AT);
        text.lines().map(|line| line.split('\t').map(String::from).collect()).collect()
    }

    #[test]
    fn rows_are_as_many_and_as_long_as_the_specification_says() {
        let items = cells(Table::Item, 0..100_000);
        let original = items.iter().filter(|row| row[4].contains("ORIGINAL")).count();
        assert_eq!(items.len(), 100_000);
        assert!((9_500..10_500).contains(&original), "{original}");
        assert!(items.iter().all(|row| (14..=24).contains(&row[2].len()) && (26..=50).contains(&row[4].len())));
        assert!(items.iter().all(|row| (1.0..=100.0).contains(&row[3].parse::<f64>().unwrap())));
        assert_eq!(cells(Table::NewOrder, 0..30_000).len(), 9000);
        assert_eq!(cells(Table::NewOrder, 0..3000)[0], ["2101", "1", "7"]);
        assert_eq!(cells(Table::Stock, 5..6)[0].len(), 17);
        assert_eq!(cells(Table::Warehouse, 0..1)[0].len(), 9);
        assert_eq!(cells(Table::District, 0..10)[9].last().unwrap(), "3001");
    }

    #[test]
    fn orders_are_of_each_customer_once_and_have_their_lines() {
        let orders = cells(Table::Orders, 0..3000);
        assert_eq!(orders.iter().map(|row| row[3].clone()).collect::<HashSet<_>>().len(), 3000);
        assert_eq!((orders[2099][5].as_str() == "\\N", orders[2100][5].as_str()), (false, "\\N"));
        let count: i64 = orders.iter().map(|row| row[6].parse::<i64>().unwrap()).sum();
        let lines = cells(Table::OrderLine, 0..3000);
        assert_eq!(lines.len() as i64, count);
        assert_eq!(lines.iter().filter(|row| row[0] == "17").count().to_string(), orders[16][6]);
        assert!(lines.iter().all(|row| row.len() == 10));
    }

    #[test]
    fn every_name_is_there_and_a_part_is_the_same_alone() {
        let customers = cells(Table::Customer, 0..3000);
        assert_eq!((customers[0][5].as_str(), customers[371][5].as_str()), ("BARBARBAR", "PRICALLYOUGHT"));
        assert_eq!(customers.iter().map(|row| row[5].clone()).collect::<HashSet<_>>().len(), 1000);
        let bad = customers.iter().filter(|row| row[13] == "BC").count();
        assert!((240..360).contains(&bad), "{bad}");
        assert_eq!(cells(Table::Customer, 100..200), customers[100..200]);
        assert_ne!(rows(Table::Stock, 1, SIZES, 0..9, AT), rows(Table::Stock, 2, SIZES, 0..9, AT));
    }
}
