//! Statement texts: the same normalisation for every tier.

use pyo3::prelude::*;

/// A statement with its literals replaced by $n, and the 64-bit key of its shape (0 for an empty text).
#[pyfunction]
pub(crate) fn normalise(text: &str) -> (String, i64) {
    let normalised = leadline_shm::statement::normalise(text.as_bytes());
    (normalised.text, normalised.fingerprint)
}
