//! Makes the struct `Layout` and one of it for each major from data/layout.csv: src/layout.rs includes it.
//!
//! Fields are private to the crate, so that the compiler says which row nothing reads; a row that is missing is a field that is missing.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const TABLE: &str = "data/layout.csv";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={TABLE}");
    let text = fs::read_to_string(TABLE)?;
    let mut rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().ok_or("the table is empty")?;
    let majors: Vec<u32> = head[3..].iter().map(|major| major.parse()).collect::<Result<_, _>>()?;
    let rows: Vec<Vec<&str>> = rows.collect();
    let mut made = String::from(
        "/// Offsets in bytes of the fields leadline reads; None where the version has no such field.\n\
         #[derive(Debug, Clone)]\n#[deny(dead_code)]\npub struct Layout {\n    /// Of which version.\n    pub major: u32,\n",
    );
    let is_optional = |row: &[&str]| row[3..].contains(&"-");
    for row in &rows {
        if row.len() != head.len() {
            return Err(format!("{TABLE}: {} columns, {} are wanted: {row:?}", row.len(), head.len()).into());
        }
        let of = if row[0] == "const" { "u32" } else { "u64" };
        let of = if is_optional(row) { format!("Option<{of}>") } else { of.to_owned() };
        writeln!(made, "    pub(crate) {}: {of}, // {}.{}", row[2], row[0], row[1])?;
    }
    writeln!(made, "}}\n\nconst LAYOUTS: [Layout; {}] = [", majors.len())?;
    for (at, major) in majors.iter().enumerate() {
        writeln!(made, "    Layout {{\n        major: {major},")?;
        for row in &rows {
            let value = match row[3 + at] {
                "-" => "None".to_owned(),
                cell => {
                    let number: u32 = cell.parse().map_err(|e| format!("{TABLE}: {row:?}: {e}"))?;
                    if is_optional(row) {
                        format!("Some({number})")
                    } else {
                        number.to_string()
                    }
                }
            };
            writeln!(made, "        {}: {value},", row[2])?;
        }
        writeln!(made, "    }},")?;
    }
    writeln!(made, "];\n")?;
    let (first, last) = (majors.first().ok_or("no majors")?, majors.last().ok_or("no majors")?);
    writeln!(made, "/// The majors the table has columns for. 12 is best effort.\npub const MAJORS: std::ops::RangeInclusive<u32> = {first}..={last};")?;
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&out).join("layout.rs"), made)?;
    Ok(())
}
