//! The rows of one page, cut into values that are not copied: a table of where each of them lies, column after column, so that
//! what takes a column goes through memory from one end to the other.

use std::ops::Range;

use crate::error::Result;
use crate::heap_file::Tuple;
use crate::outside::Outside;
use crate::tuple::{align, value_at, Storage, Stored};
use crate::varlena::{self, Varlena};
use crate::xact::Status;

/// Where a row is and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub block: u32,
    pub lp: u16,
    pub xmin: u32,
    pub xmax: u32,
    pub status: Status,
}

/// A value on its way to where it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Bytes(&'a [u8]),
    /// Not there, or damaged: what is said instead of it.
    Lost(&'a str),
}

/// The longest page that there is.
const LONGEST_PAGE: usize = 1 << 15;

/// Where a value is: its place in the page above its length, 16 bits each. No page is long enough for the lengths below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell(u32);

impl Cell {
    const NULL: Cell = Cell(0xffff_ffff);
    /// The tuple is older than the column.
    const MISSING: Cell = Cell(0xffff_fffe);
    /// The length of what is packed, or stored outside: more has to be done to have it.
    const FAR: usize = 0xfffd;

    #[inline]
    fn new(at: usize, len: usize) -> Cell {
        Cell((at << 16 | len) as u32)
    }

    fn at(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Its bytes, when they are in the page as they are.
    #[inline]
    fn plain(self, page: &[u8]) -> Option<&[u8]> {
        let (at, len) = (self.at(), (self.0 & 0xffff) as usize);
        // The lengths that say something else reach behind the end of every page.
        page.get(at..at + len)
    }
}

/// What has to be known of an attribute to cut its values out.
#[derive(Debug)]
struct Step {
    storage: Storage,
    /// Where it is among the columns; a dropped one is nowhere.
    column: Option<u32>,
}

/// The attributes of a relation.
#[derive(Debug)]
pub(crate) struct Layout {
    steps: Vec<Step>,
    columns: usize,
}

impl Layout {
    pub(crate) fn new(attributes: impl Iterator<Item = (Storage, Option<usize>)>) -> Layout {
        let step = |(storage, column): (Storage, Option<usize>)| Step { storage, column: column.map(|c| c as u32) };
        let steps: Vec<Step> = attributes.map(step).collect();
        Layout { columns: steps.iter().filter(|s| s.column.is_some()).count(), steps }
    }
}

/// The table of one page after the other.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    places: Vec<Place>,
    /// Rows that a column has room for.
    stride: usize,
    has_far: bool,
}

impl Cells {
    /// For a page of at most so many rows; None when no page is so long.
    pub(crate) fn start(&mut self, page: &[u8], layout: &Layout, rows: usize) -> Option<()> {
        self.places.clear();
        (self.stride, self.has_far) = (rows, false);
        if self.cells.len() < layout.columns * rows {
            self.cells.resize(layout.columns * rows, Cell::NULL);
        }
        (page.len() <= LONGEST_PAGE).then_some(())
    }

    /// Cuts a row of the page; None when its bytes do not fit the columns, then it is none.
    #[inline]
    pub(crate) fn cut(&mut self, page: &[u8], tuple: &Tuple<'_>, layout: &Layout, place: Place) -> Option<()> {
        let (row, stride) = (self.places.len(), self.stride);
        let cells = &mut self.cells;
        let mut put = |step: &Step, cell| {
            let column = step.column.map(|c| c as usize * stride + row);
            if let Some(room) = column.and_then(|at| cells.get_mut(at)) {
                *room = cell;
            }
        };
        let data = tuple.data;
        let start = data.as_ptr() as usize - page.as_ptr() as usize;
        let (there, missing) = layout.steps.split_at(tuple.natts().min(layout.steps.len()));
        let mut at = 0;
        for (i, step) in there.iter().enumerate() {
            if let Some(bitmap) = tuple.bitmap {
                if bitmap.get(i / 8)? >> (i % 8) & 1 == 0 {
                    put(step, Cell::NULL);
                    continue;
                }
            }
            // Two kinds of values are most of all there are: those of fixed width, and short ones with a header of one byte.
            let (begin, end) = match step.storage.attlen {
                -1 if data.get(at).is_some_and(|first| varlena::is_short(*first)) => {
                    (at + 1, at + usize::from(data[at] >> 1))
                }
                len @ 1.. => {
                    let begin = align(at, step.storage.attalign);
                    (begin, begin + len as usize)
                }
                _ => {
                    let (stored, end) = value_at(data, at, step.storage)?;
                    at = end;
                    match stored {
                        Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => {
                            put(step, Cell::new(bytes.as_ptr() as usize - page.as_ptr() as usize, bytes.len()));
                        }
                        Stored::Varlena(far) => {
                            self.has_far = true;
                            put(step, Cell::new(start + end - far.far_len(), Cell::FAR));
                        }
                        Stored::Null | Stored::Missing => {}
                    }
                    continue;
                }
            };
            if end > data.len() {
                return None;
            }
            put(step, Cell::new(start + begin, end - begin));
            at = end;
        }
        for step in missing {
            put(step, Cell::MISSING);
        }
        self.places.push(place);
        Some(())
    }

    /// What was cut out of the page.
    pub(crate) fn rows<'p>(&'p self, page: &'p [u8], layout: &'p Layout, outside: &'p mut Outside) -> Rows<'p> {
        Rows { page, cells: self, layout, outside }
    }
}

/// The rows of a page.
pub(crate) struct Rows<'p> {
    page: &'p [u8],
    cells: &'p Cells,
    layout: &'p Layout,
    outside: &'p mut Outside,
}

impl<'p> Rows<'p> {
    pub(crate) fn places(&self) -> &'p [Place] {
        &self.cells.places
    }

    pub(crate) fn columns(&self) -> usize {
        self.layout.columns
    }

    /// Whether values are packed or stored outside of the page, so that they may be much longer than it.
    pub(crate) fn has_far(&self) -> bool {
        self.cells.has_far
    }

    /// A column of some rows.
    #[inline]
    pub(crate) fn column(&mut self, column: usize, rows: Range<usize>) -> ColumnOf<'_, 'p> {
        let first = column * self.cells.stride;
        let cells = self.cells.cells.get(first + rows.start..first + rows.end).unwrap_or_default();
        ColumnOf { page: self.page, cells, column, outside: self.outside }
    }

    /// One value.
    #[inline]
    pub(crate) fn value(&mut self, column: usize, row: usize) -> Result<Value<'_>> {
        let cell = self.cells.cells[column * self.cells.stride + row];
        match cell.plain(self.page) {
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => far(cell, self.page, column, self.outside),
        }
    }
}

/// Some values of one column.
pub(crate) struct ColumnOf<'r, 'p> {
    page: &'p [u8],
    cells: &'p [Cell],
    column: usize,
    outside: &'r mut Outside,
}

impl ColumnOf<'_, '_> {
    /// Calls `each` with all values.
    #[inline]
    pub(crate) fn each(self, mut each: impl FnMut(Value<'_>)) -> Result<()> {
        for cell in self.cells {
            match cell.plain(self.page) {
                Some(bytes) => each(Value::Bytes(bytes)),
                None => each(far(*cell, self.page, self.column, self.outside)?),
            }
        }
        Ok(())
    }
}

/// A value that is not in the page as it is.
#[cold]
fn far<'v>(cell: Cell, page: &'v [u8], column: usize, outside: &'v mut Outside) -> Result<Value<'v>> {
    match cell {
        Cell::NULL => Ok(Value::Null),
        Cell::MISSING => Ok(outside.missing(column)),
        _ => match page.get(cell.at()..).and_then(varlena::parse) {
            Some((value, _)) => outside.value(value),
            None => Ok(Value::Null), // it was read there before
        },
    }
}
