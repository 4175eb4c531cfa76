//! The rows of one page, cut into values that are not copied: a table of where each of them lies, row after row, as they are cut.

use std::ops::Range;

use crate::cell::{Place, Value};
use crate::heap_file::Tuple;
use crate::outside::Outside;
use crate::tuple::{align, value_at, Storage, Stored};
use crate::varlena::{self, Varlena};
use leadline_errors::Result;

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

/// What a row has of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    Null,
    /// It is older than the attribute.
    Missing,
    Plain(&'a [u8]),
    /// Packed, or stored outside.
    Far(Varlena<'a>),
}

/// How values of an attribute are cut out.
#[derive(Debug)]
struct Step {
    storage: Storage,
    /// Of fixed width, or 0.
    width: usize,
    /// The alignment less one.
    mask: usize,
}

/// The attributes of a relation.
#[derive(Debug)]
pub(crate) struct Layout {
    steps: Vec<Step>,
    /// Which attribute a column is; dropped ones are no columns.
    columns: Vec<usize>,
}

impl Layout {
    /// Each attribute, and the number of the column that it is.
    pub(crate) fn new(attributes: impl Iterator<Item = (Storage, Option<usize>)>) -> Layout {
        let step = |storage: Storage| Step {
            storage,
            width: usize::try_from(storage.attlen).unwrap_or(0),
            mask: align(1, storage.attalign) - 1,
        };
        let (steps, columns): (Vec<Step>, Vec<Option<usize>>) = attributes.map(|(s, column)| (step(s), column)).unzip();
        let mut columns: Vec<_> = columns.iter().enumerate().filter_map(|(i, c)| c.map(|c| (c, i))).collect();
        columns.sort_unstable();
        Layout { steps, columns: columns.into_iter().map(|(_, attribute)| attribute).collect() }
    }
}

/// The table of one page after the other.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Of each row all attributes.
    cells: Vec<Cell>,
    places: Vec<Place>,
    has_far: bool,
}

impl Cells {
    /// For a page of at most so many rows; None when too long for a page.
    pub(crate) fn start(&mut self, page: &[u8], layout: &Layout, rows: usize) -> Option<()> {
        self.places.clear();
        self.has_far = false;
        if self.cells.len() < layout.steps.len() * rows {
            self.cells.resize(layout.steps.len() * rows, Cell::NULL);
        }
        (page.len() <= LONGEST_PAGE).then_some(())
    }

    /// Cuts a row of the page; None when its bytes do not match the columns, then it is none.
    #[inline]
    pub(crate) fn cut(&mut self, page: &[u8], tuple: &Tuple<'_>, layout: &Layout, place: Place) -> Option<()> {
        let steps = &layout.steps;
        let row = self.cells.get_mut(self.places.len() * steps.len()..)?.get_mut(..steps.len())?;
        let data = tuple.data;
        let start = data.as_ptr() as usize - page.as_ptr() as usize;
        let (there, missing) = row.split_at_mut(tuple.natts().min(steps.len()));
        let mut at = 0;
        // Eight at a time share a byte of the bitmap.
        for (i, (cells, steps)) in there.chunks_mut(8).zip(steps.chunks(8)).enumerate() {
            let bits = tuple.bitmap.map_or(Some(0xff), |bitmap| bitmap.get(i).copied())?;
            for (k, (cell, step)) in cells.iter_mut().zip(steps).enumerate() {
                if bits >> k & 1 == 0 {
                    *cell = Cell::NULL;
                    continue;
                }
                // Two kinds of values are most of all there are: those of fixed width, and short ones with a header of one byte.
                let (begin, end) = if step.width > 0 {
                    let begin = (at + step.mask) & !step.mask;
                    (begin, begin + step.width)
                } else if let Some(len) = short(data, at, step.storage) {
                    (at + 1, at + len)
                } else {
                    let (stored, end) = value_at(data, at, step.storage)?;
                    at = end;
                    match stored {
                        Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => {
                            *cell = Cell::new(bytes.as_ptr() as usize - page.as_ptr() as usize, bytes.len());
                        }
                        Stored::Varlena(far) => {
                            self.has_far = true;
                            *cell = Cell::new(start + end - far.far_len(), Cell::FAR);
                        }
                        Stored::Null | Stored::Missing => {}
                    }
                    continue;
                };
                if end > data.len() {
                    return None;
                }
                *cell = Cell::new(start + begin, end - begin);
                at = end;
            }
        }
        missing.fill(Cell::MISSING);
        self.places.push(place);
        Some(())
    }

    /// What the row that was cut last has of an attribute.
    pub(crate) fn last<'p>(&self, page: &'p [u8], layout: &Layout, attribute: usize) -> Held<'p> {
        let row = self.places.len().saturating_sub(1) * layout.steps.len();
        let cell = self.cells.get(row + attribute).copied().unwrap_or(Cell::NULL);
        match cell {
            Cell::NULL => Held::Null,
            Cell::MISSING => Held::Missing,
            _ => match cell.plain(page) {
                Some(bytes) => Held::Plain(bytes),
                None => {
                    page.get(cell.at()..).and_then(varlena::parse).map_or(Held::Null, |(value, _)| Held::Far(value))
                }
            },
        }
    }

    /// Takes the row back that was cut last.
    pub(crate) fn take_back(&mut self) {
        self.places.pop();
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
        self.layout.columns.len()
    }

    /// Whether values are packed or stored outside of the page, so that they may be much longer than it.
    pub(crate) fn has_far(&self) -> bool {
        self.cells.has_far
    }

    /// A column of some rows.
    #[inline]
    pub(crate) fn column(&mut self, column: usize, rows: Range<usize>) -> ColumnOf<'_, 'p> {
        let width = self.layout.steps.len();
        let first = self.layout.columns[column];
        let cells = self.cells.cells.get(rows.start * width + first..rows.end * width).unwrap_or_default();
        let places = self.cells.places.get(rows).unwrap_or_default();
        ColumnOf { page: self.page, cells, places, width, column, outside: self.outside }
    }

    /// One value.
    #[inline]
    pub(crate) fn value(&mut self, column: usize, row: usize) -> Result<Value<'_>> {
        let cell = self.cells.cells[row * self.layout.steps.len() + self.layout.columns[column]];
        match cell.plain(self.page) {
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => far(cell, self.page, &self.cells.places[row], column, self.outside),
        }
    }
}

/// Some values of one column.
pub(crate) struct ColumnOf<'r, 'p> {
    page: &'p [u8],
    /// From the first value on.
    cells: &'p [Cell],
    /// Of the rows.
    places: &'p [Place],
    /// From one value to the next.
    width: usize,
    column: usize,
    outside: &'r mut Outside,
}

impl ColumnOf<'_, '_> {
    /// Values, nulls among them.
    pub(crate) fn len(&self) -> usize {
        self.cells.len().div_ceil(self.width)
    }

    /// The next value.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Result<Value<'_>>> {
        let cell = *self.cells.first()?;
        self.cells = self.cells.get(self.width..).unwrap_or_default();
        Some(match cell.plain(self.page) {
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => {
                let place = self.places.len().checked_sub(self.len() + 1).and_then(|row| self.places.get(row))?;
                far(cell, self.page, place, self.column, self.outside)
            }
        })
    }
}

/// The length of a value of variable width with a header of one byte, header included.
#[inline]
fn short(data: &[u8], at: usize, storage: Storage) -> Option<usize> {
    let first = *data.get(at)?;
    (storage.attlen == -1 && varlena::is_short(first)).then_some(usize::from(first >> 1))
}

/// A value that is not in the page as it is.
#[cold]
fn far<'v>(cell: Cell, page: &'v [u8], place: &Place, column: usize, outside: &'v mut Outside) -> Result<Value<'v>> {
    match cell {
        Cell::NULL => Ok(Value::Null),
        Cell::MISSING => Ok(outside.missing(column)),
        _ => match page.get(cell.at()..).and_then(varlena::parse) {
            Some((value, _)) => outside.value(value, place, column),
            None => Ok(Value::Null), // it was read there before
        },
    }
}
