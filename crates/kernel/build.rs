//! Compiles the BPF programs with clang; they become part of the library.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&folder).join("trace.bpf.o");
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let outcome = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
        .arg(format!("-I/usr/include/{machine}-linux-gnu"))
        // Where those of another processor are missing. Types of fixed sizes are all that is used of them.
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .args(["-c", "bpf/trace.bpf.c", "-o"])
        .arg(&object)
        .status();
    match outcome {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile bpf/trace.bpf.c: {status}"),
        Err(e) => panic!("cannot run {clang}: {e}; it compiles the BPF programs: apt-get install clang"),
    }
}
