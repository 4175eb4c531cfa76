//! Bodies of pages: packed or as they are, and the buffers that hold them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::errors::Result as ParquetResult;

/// Buffers of chunks that are written, for those to come of the same column: fresh memory costs more than to fill it.
#[derive(Clone, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        /// A buffer that held more is not kept.
        const KEPT: usize = 16 << 20;
        if buffer.capacity() <= KEPT {
            buffer.clear();
            self.0.lock().push(buffer);
        }
    }
}

/// Whether the first bytes lose half of themselves when they are packed: less is not worth the time that it takes.
pub(super) fn packs_well(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 1 << 16;
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    lz4_flex::block::compress(bytes).len() * 2 <= bytes.len()
}

/// Packs into the first bytes of `out`, which becomes as long as it has to be; how many.
pub(super) fn pack(body: &[u8], out: &mut Vec<u8>) -> usize {
    let most = lz4_flex::block::get_maximum_output_size(body.len());
    if out.len() < most {
        out.resize(most, 0);
    }
    // There is room for the worst case.
    lz4_flex::block::compress_into(body, out).unwrap_or(0)
}

/// Lends the first bytes of a buffer to what takes no slice, and gives the buffer back: nothing is copied.
pub(super) fn lend<T>(
    buffer: Vec<u8>,
    len: usize,
    to: impl FnOnce(Bytes) -> ParquetResult<T>,
) -> ParquetResult<(Vec<u8>, T)> {
    let buffer = Bytes::from(buffer);
    let given = to(buffer.slice(..len))?;
    Ok((buffer.into(), given))
}
