//! A /proc file kept open and read again with one call each time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open file of /proc: to open one costs more than to read it. Of a process that has ended it cannot be read, even when another one has
/// its pid.
#[derive(Debug)]
pub struct ProcFile {
    file: File,
}

impl ProcFile {
    /// Opens it; fails when the process is gone or may not be looked at.
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(ProcFile { file: File::open(path)? })
    }

    /// Its content now, in `buffer`. At most the size of the buffer, which cuts nothing we read.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a str> {
        std::str::from_utf8(self.read_bytes(buffer)?).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The same of a file with names in it, which may be any bytes.
    pub fn read_bytes<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let len = self.file.read_at(buffer, 0)?;
        Ok(&buffer[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_read_again() {
        let file = ProcFile::open("/proc/self/schedstat").unwrap();
        let mut buffer = [0; 128];
        let first: u64 = file.read(&mut buffer).unwrap().split(' ').next().unwrap().parse().unwrap();
        let mut sum = 0u64;
        for i in 0..20_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        let second: u64 = file.read(&mut buffer).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(second >= first, "{sum}");
    }
}
