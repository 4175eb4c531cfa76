//! Names of the functions in mapped files, looked up when the trace is over.

use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

/// A function, and the place in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Function {
    /// Its name; empty when the file has none for this address.
    pub name: String,
    /// Source file and line, where there is debugging information; empty and 0 otherwise.
    pub source: String,
    #[allow(missing_docs)]
    pub line: u32,
}

/// The functions at these addresses of a file, in the same order. A file that cannot be read has no names.
pub fn functions(symbolizer: &Symbolizer, path: &Path, addresses: &[u64]) -> Vec<Function> {
    let source = Source::Elf(Elf::new(path));
    let Ok(found) = symbolizer.symbolize(&source, Input::VirtOffset(addresses)) else {
        return vec![Function::default(); addresses.len()];
    };
    found
        .iter()
        .map(|one| match one {
            Symbolized::Sym(sym) => {
                let place = sym.code_info.as_ref();
                Function {
                    // The innermost of inlined functions is where the address is, but the frame is the outer one's.
                    name: sym.name.to_string(),
                    source: place.map_or_else(String::new, |c| c.to_path().to_string_lossy().into_owned()),
                    line: place.and_then(|c| c.line).unwrap_or(0),
                }
            }
            Symbolized::Unknown(_) => Function::default(),
        })
        .collect()
}
