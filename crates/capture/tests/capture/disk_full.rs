//! No room: one clear error, nothing half written, nothing earlier lost.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use leadline_capture::{spec, BatchBuilder, Error, StorageOp, TableWriter, Value, WriterOptions};

use crate::scratch::{files, read, Scratch};
use leadline_testdata::Random;

/// Writes about 8 kB that do not compress.
fn write_noise(writer: &mut TableWriter, random: &mut Random) -> Result<(), Error> {
    let mut builder = BatchBuilder::new(spec("host_stat").unwrap());
    for _ in 0..500 {
        let row = [Value::Int(random.next() as i64), Value::Text("noise"), Value::Int(random.next() as i64)];
        builder.append(&row)?;
    }
    writer.write(&builder.finish()?)
}

/// Fills the place, then checks what is left there; `errno` is what the system says.
fn fill_and_check(folder: &Path, errno: i32, segment_rows: usize) {
    let mut random = Random(4);
    let mut writer = TableWriter::create(folder, "host_stat", WriterOptions::default()).unwrap();
    write_noise(&mut writer, &mut random).unwrap();
    writer.roll().unwrap();
    let error = loop {
        for _ in 0..segment_rows {
            write_noise(&mut writer, &mut random).unwrap();
        }
        assert!(writer.stats().segments < 100, "the place is not small");
        if let Err(error) = writer.roll() {
            break error;
        }
    };
    assert!(error.is_disk_full(), "{error}");
    assert!(
        matches!(&error, Error::Storage { op: StorageOp::Write, source, .. } if source.raw_os_error() == Some(errno)),
        "{error}"
    );
    let whole = files(folder, "host_stat");
    assert_eq!(whole.len() as u64, writer.stats().segments, "{whole:?}");
    for name in &whole {
        assert!(name.ends_with(".parquet") && !read(&folder.join("host_stat").join(name)).is_empty());
    }
    assert_eq!(writer.close().unwrap().segments, whole.len() as u64);
}

const FOLDER: &str = "LEADLINE_TEST_FULL_FOLDER";

/// Not a test: a process that may not make files over 64 kB, as if that were all the room there is.
#[test]
#[ignore = "started by a_file_size_limit_ends_with_one_error"]
fn writer_with_a_limit() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let limit = libc::rlimit { rlim_cur: 1 << 16, rlim_max: 1 << 16 };
    // SAFETY: both calls take plain values; the limit and the ignored signal are this child process's own.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    fill_and_check(Path::new(&folder), libc::EFBIG, 16);
}

#[test]
fn a_file_size_limit_ends_with_one_error() {
    let scratch = Scratch::new();
    let outcome = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "disk_full::writer_with_a_limit", "--ignored"])
        .env(FOLDER, &scratch.0)
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
    assert_eq!(files(&scratch.0, "host_stat"), ["000001.parquet"]);
}

/// A file system in memory of 256 kB, unmounted when the test is over.
struct Tmpfs<'a>(&'a Path);

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let path = CString::new(self.0.as_os_str().as_bytes()).unwrap();
        // SAFETY: `path` is a live C string.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

fn mount(path: &Path) -> std::io::Result<Tmpfs<'_>> {
    let at = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all pointers are live C strings; the kernel copies them.
    let outcome =
        unsafe { libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=256k".as_ptr().cast()) };
    if outcome == 0 {
        Ok(Tmpfs(path))
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn a_full_file_system_ends_with_one_error() {
    let scratch = Scratch::new();
    let mounted = mount(&scratch.0);
    match &mounted {
        Ok(tmpfs) => fill_and_check(tmpfs.0, libc::ENOSPC, 3),
        Err(e) => {
            assert!(std::env::var_os("LEADLINE_FORBID_SKIPS").is_none(), "tmpfs cannot be mounted: {e}");
            eprintln!("skipped: tmpfs cannot be mounted (needs root): {e}");
        }
    }
}
