//! Records laid out by hand, and what redo makes of a page.

#![allow(dead_code)] // each test file uses a part

use leadline_datadir::{BlockId, RelFile};
use leadline_redo::consistency::Consistency;
use leadline_redo::{apply, targets, Applied, Context, Misfit, Page, Part, Target};
use leadline_wal::fuzzing;

/// Where every record here ends: 24 and its length, which is less than this.
pub const LATER: u64 = 1 << 20;

/// `main` and the rows of blocks of one record.
#[derive(Debug, Clone, Default)]
pub struct Made {
    pub major: u8,
    pub rmid: u8,
    pub info: u8,
    pub xid: u32,
    pub main: Vec<u8>,
    blocks: Vec<u8>,
    data: Vec<u8>,
}

impl Made {
    pub fn new(major: u8, rmid: u8, info: u8, main: &[u8]) -> Made {
        Made { major, rmid, info, xid: 700, main: main.to_vec(), ..Made::default() }
    }

    /// Adds a block of the relation 1663/5/16384.
    pub fn block(mut self, id: u8, fork: u8, block: u32, will_init: bool, data: &[u8]) -> Made {
        let flags = fork | if data.is_empty() { 0 } else { 0x20 } | if will_init { 0x40 } else { 0 };
        self.blocks.extend([id, flags]);
        self.blocks.extend((data.len() as u16).to_le_bytes());
        self.locator(block);
        self.data.extend(data);
        self
    }

    /// Adds a block with an image of its whole page, stored as it is.
    pub fn image(mut self, id: u8, block: u32, apply: bool, page: &[u8]) -> Made {
        self.blocks.extend([id, 0x10, 0, 0]);
        self.blocks.extend((page.len() as u16).to_le_bytes());
        let apply_bit = if self.major >= 15 { 0x02 } else { 0x04 };
        self.blocks.extend([0, 0, if apply { apply_bit } else { 0 }]);
        self.locator(block);
        self.data.extend(page);
        self
    }

    fn locator(&mut self, block: u32) {
        for number in [1663, 5, 16384, block] {
            self.blocks.extend(number.to_le_bytes());
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[4..8].copy_from_slice(&self.xid.to_le_bytes());
        (bytes[16], bytes[17]) = (self.info, self.rmid);
        bytes.extend(&self.blocks);
        if !self.main.is_empty() {
            bytes.push(255);
            bytes.push(self.main.len() as u8);
        }
        bytes.extend(&self.data);
        bytes.extend(&self.main);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    pub fn context(&self) -> Context {
        Context { major: self.major, block_size: 8192, hint_bits_are_logged: true }
    }

    pub fn targets(&self) -> Vec<Target> {
        let (mut all, bytes) = (Vec::new(), self.bytes());
        let mut is_read = false;
        fuzzing::record(&bytes, self.major, |record| {
            is_read = true;
            targets(&self.context(), record, |target| all.push(target));
        });
        assert!(is_read, "the record is laid out wrong");
        all
    }

    /// Applies it to the page of a block id.
    pub fn apply(&self, id: u8, page: &mut [u8]) -> Result<Applied, Misfit> {
        self.apply_part(Part::Block(id), page)
    }

    pub fn apply_part(&self, part: Part, page: &mut [u8]) -> Result<Applied, Misfit> {
        self.apply_in(self.context(), part, page)
    }

    pub fn apply_in(&self, context: Context, part: Part, page: &mut [u8]) -> Result<Applied, Misfit> {
        let bytes = self.bytes();
        let mut outcome = None;
        fuzzing::record(&bytes, self.major, |record| {
            let target = Target { page: BlockId::default(), part };
            outcome = Some(apply(&context, record, &target, page));
        });
        outcome.expect("the record is laid out wrong")
    }

    pub fn give_to(&self, check: &mut Consistency) {
        fuzzing::record(&self.bytes(), self.major, |record| check.take(record));
    }

    /// What the page's LSN becomes.
    pub fn end(&self) -> u64 {
        24 + self.bytes().len() as u64
    }
}

pub const RELATION: RelFile = RelFile { spc: 1663, db: 5, rel: 16384 };

pub fn empty_page(special: usize) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    Page::new(&mut bytes).unwrap().init(special).unwrap();
    bytes
}

/// `xl_heap_header` and columns.
pub fn row(columns: &[u8]) -> Vec<u8> {
    [&[2, 0, 0x02, 0x08, 24][..], &[0], columns].concat()
}

/// A page with rows of these columns, inserted one after the other.
pub fn heap_page(rows: &[&[u8]]) -> Vec<u8> {
    let mut page = empty_page(0);
    for (number, columns) in (1u16..).zip(rows) {
        let main = [&number.to_le_bytes()[..], &[0]].concat();
        let insert = Made::new(18, 10, 0, &main).block(0, 0, 7, false, &row(columns));
        // Whatever the length: the page is older.
        Page::new(&mut page).unwrap().set_lsn(0);
        assert_eq!(insert.apply(0, &mut page), Ok(Applied::Changed));
    }
    Page::new(&mut page).unwrap().set_lsn(0);
    page
}

/// The columns of a row.
pub fn columns(page: &mut [u8], number: u16) -> Vec<u8> {
    Page::new(page).unwrap().item(number).unwrap()[24..].to_vec()
}
