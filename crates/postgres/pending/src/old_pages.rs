//! The old rows of one table, page by page, for whoever rewrites them.

use leadline_bytes::ReadBuffer;
use leadline_errors::Error;
use leadline_rows::heap_file::HeapFile;

use crate::form::{Form, Looked, OldRow};
use crate::relations::{Relation, What};
use crate::scan::{Living, LOOKS};

/// A page with old rows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OldPage {
    pub block: u32,
    /// Bytes for tuples and their line pointers.
    pub room: usize,
    /// Each with about its bytes once rewritten.
    pub rows: Vec<(OldRow, usize)>,
}

/// Walks over a table from its first block to the last it had when this was opened.
pub struct OldPages {
    form: Form,
    living: Living,
    file: HeapFile,
    block: u32,
    buffer: ReadBuffer,
}

impl OldPages {
    /// None when the relation is no table.
    pub fn new(relation: &Relation, oldest_running: Option<u32>) -> Option<OldPages> {
        let What::Table(form) = &relation.what else { return None };
        let file = relation.file.again();
        let buffer = ReadBuffer::new(16 * file.block_size);
        Some(OldPages { form: form.clone(), living: Living::new(relation, oldest_running), file, block: 0, buffer })
    }

    /// Blocks looked at and blocks there are.
    pub fn progress(&self) -> (u32, u32) {
        (self.block, self.file.blocks)
    }

    /// The next pages with old rows, as many as have about this many rows; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn next_pages(&mut self, about_rows: usize) -> Result<Option<Vec<OldPage>>, Error> {
        let (mut pages, mut rows) = (Vec::new(), 0);
        while rows < about_rows && self.block < self.file.blocks {
            let read = self.file.read(self.block, &mut self.buffer)?;
            if read == 0 {
                self.block = self.file.blocks; // it shrank
                break;
            }
            let buffer = std::mem::take(&mut self.buffer);
            for page in buffer.chunks_exact(self.file.block_size).take(read) {
                let found = self.page(page)?;
                self.block += 1;
                rows += found.rows.len();
                if !found.rows.is_empty() {
                    pages.push(found);
                }
                if rows >= about_rows {
                    break;
                }
            }
            self.buffer = buffer;
        }
        Ok((!pages.is_empty() || self.block < self.file.blocks).then_some(pages))
    }

    fn page(&mut self, page: &[u8]) -> Result<OldPage, Error> {
        let (mut looked, mut rows) = self.look(page);
        let mut again = Vec::new();
        for _ in 1..LOOKS {
            if !looked.unread && looked.unread_rows == 0 {
                break;
            }
            again.resize(self.file.block_size, 0);
            if self.file.read(self.block, &mut again)? == 0 {
                break;
            }
            (looked, rows) = self.look(&again);
        }
        Ok(OldPage { block: self.block, room: looked.room, rows })
    }

    fn look(&mut self, page: &[u8]) -> (Looked, Vec<(OldRow, usize)>) {
        let mut rows = Vec::new();
        let (form, living) = (&self.form, &mut self.living);
        let looked = form.old_rows(page, |h| living.counts(h).is_some(), |row| rows.push((row, form.new_len(&row))));
        (looked, rows)
    }
}
