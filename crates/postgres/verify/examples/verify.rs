//! What is wrong with the relations of a data directory, or with the one that a file is of: `verify PATH [structure|values]`.

use leadline_verify::{check, Level, Progress};

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("a path");
    let level = if words.next().as_deref() == Some("structure") { Level::Structure } else { Level::Values };
    let mut print = |p: leadline_verify::Problem| {
        let item = p.item.map_or_else(String::new, |item| format!(":{item}"));
        println!(
            "{}:{}{item}: {}: {} [{}; {}]",
            p.path.display(),
            p.block,
            p.class,
            p.message,
            p.means,
            p.sure.as_str()
        );
        true
    };
    match check(path.as_ref(), level, &Progress::default(), &mut print) {
        Ok(summary) => println!("{summary:?}"),
        Err(e) => println!("error: {e}"),
    }
}
