//! Recovers a data directory: `recover DATA_DIR [--plan] [MEMORY_MB] [THREADS]`.

use leadline_replay::{plan, recover, Options};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let plans = arguments.iter().any(|a| a == "--plan");
    arguments.retain(|a| a != "--plan");
    let number = |at: usize, otherwise| arguments.get(at).and_then(|a| a.parse().ok()).unwrap_or(otherwise);
    let options = Options { memory: number(1, 4096u64) << 20, threads: number(2, 2) as usize };
    let run = if plans { plan } else { recover };
    match run(arguments[0].as_ref(), &options, &mut |_, _, _| true) {
        Ok(report) => println!("{:?}", leadline_replay::Report { sums: Default::default(), ..report }),
        Err(e) => {
            eprintln!("error: {e}");
            std::process::exit(2);
        }
    }
}
