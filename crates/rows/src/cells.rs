//! The rows of one page, cut into values that are not copied: a table of where each of them lies, column after column, so that
//! what takes a column goes through memory from one end to the other.

use std::ops::Range;

use crate::error::Result;
use crate::heap_file::Tuple;
use crate::outside::Outside;
use crate::tuple::{walk, Storage, Stored};
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

/// What has to be known of a relation's columns to cut its rows.
#[derive(Debug)]
pub(crate) struct Layout {
    storages: Vec<Storage>,
    /// Where each attribute is among the columns; a dropped one is nowhere.
    columns: Vec<Option<usize>>,
    /// Columns.
    count: usize,
}

impl Layout {
    pub(crate) fn new(attributes: impl Iterator<Item = (Storage, Option<usize>)>) -> Layout {
        let (storages, columns): (Vec<_>, Vec<_>) = attributes.unzip();
        let count = columns.iter().flatten().count();
        Layout { storages, columns, count }
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
        if self.cells.len() < layout.count * rows {
            self.cells.resize(layout.count * rows, Cell::NULL);
        }
        (page.len() <= LONGEST_PAGE).then_some(())
    }

    /// Cuts a row of the page; None when its bytes do not fit the columns, then it is none.
    #[inline]
    pub(crate) fn cut(&mut self, page: &[u8], tuple: &Tuple<'_>, layout: &Layout, place: Place) -> Option<()> {
        let (row, stride) = (self.places.len(), self.stride);
        let (cells, has_far) = (&mut self.cells, &mut self.has_far);
        let start = page.as_ptr() as usize;
        let at = |bytes: &[u8]| bytes.as_ptr() as usize - start;
        let start_of_data = at(tuple.data);
        walk(tuple.data, tuple.bitmap, tuple.natts(), &layout.storages, |i, stored, next| {
            let Some(column) = layout.columns[i] else { return };
            let cell = match stored {
                Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => Cell::new(at(bytes), bytes.len()),
                Stored::Null => Cell::NULL,
                Stored::Missing => Cell::MISSING,
                Stored::Varlena(far) => {
                    *has_far = true;
                    Cell::new(start_of_data + next - far.far_len(), Cell::FAR)
                }
            };
            if let Some(room) = cells.get_mut(column * stride + row) {
                *room = cell;
            }
        })?;
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
        self.layout.count
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
