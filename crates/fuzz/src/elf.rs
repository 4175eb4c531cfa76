//! The server's binary, which is read before anything of the server is.

use leadline_shm::elf::{parse_version, Binary};
use leadline_shm::held_locks::HeldLocks;
use leadline_shm::Kind;

/// An ELF file, and what is looked for in it.
pub fn elf(data: &[u8]) -> &'static str {
    let binary = match Binary::parse(data.to_vec()) {
        Ok(binary) => binary,
        Err(e) => {
            assert!(e.kind == Kind::Unsupported && !e.message.is_empty());
            return "no ELF";
        }
    };
    if let Some((_, code)) = binary.code("LWLockHeldByMe", 128) {
        assert!(code.len() <= 128.min(data.len()));
    }
    let version = binary.version_text();
    if let Some(text) = &version {
        assert!(text.len() <= 200);
        let _ = parse_version(text);
    }
    let found = HeldLocks::find(&binary, 0x5555_5555_4000);
    // Wherever such a file says that it is loaded.
    let _ = HeldLocks::find(&binary, u64::MAX - 100);
    match (found, version) {
        (Some(_), _) => "held locks",
        (None, Some(_)) => "version",
        (None, None) => "ELF",
    }
}
