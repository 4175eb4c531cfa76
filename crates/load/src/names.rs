//! Names of variables as numbers, so that a client finds a variable without looking for its name.

use std::collections::HashMap;

/// Every name that a script or the command line has.
#[derive(Debug, Default, Clone)]
pub struct Names {
    by_name: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name, which is new or not.
    pub fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.by_name.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// The number of a name that some script has.
    pub fn known(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The name of a number.
    pub fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

/// Bytes that a name may have: letters, digits, underscores, and all beyond ASCII.
pub fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a variable may have this name.
pub fn is_name(name: &str) -> bool {
    name.bytes().all(in_name) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}
