//! Writes the seeds of every target into a folder, as libFuzzer wants them: `seeds FOLDER`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: seeds FOLDER"));
    for (target, _) in leadline_fuzz::TARGETS {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in leadline_fuzz::seeds::seeds(target).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
