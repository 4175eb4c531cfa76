//! The only unsafe code of this crate: a hint to the processor.

/// Asks for the cache line of a byte, and goes on without waiting for it. A byte that is not there is asked for in vain.
///
/// To read the byte instead would do as well, but the processor looks no further ahead than some hundred instructions behind a read that it
/// waits for.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], at: usize) {
    let Some(byte) = bytes.get(at) else { return };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see, whatever the address; and this address is that of a byte.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(*byte);
}
