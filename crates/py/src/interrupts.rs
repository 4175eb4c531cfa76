//! Work that may take long, as listing a compressed archive does, which is to read all of it.

use leadline_pagescan::GoOn;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::Error;

/// Runs it without the GIL. It asks now and then whether to go on, and Ctrl-C ends it.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&GoOn) -> Result<T, leadline_errors::Error> + Send,
) -> PyResult<T> {
    let interrupt = Mutex::new(None);
    let go_on = || {
        let mut raised = interrupt.lock();
        if raised.is_none() {
            *raised = Python::attach(|py| py.check_signals()).err();
        }
        raised.is_none()
    };
    let done = py.detach(|| work(&go_on));
    match interrupt.into_inner() {
        Some(e) => Err(e),
        None => Ok(done.map_err(Error::from)?),
    }
}
