//! The line pointers and row versions of a page, with what became of who wrote them.

use leadline_page::postgres::heap::TupleHeader;
use leadline_page::postgres::line_pointer::{line_pointers, LinePointer, LP_NORMAL, LP_REDIRECT};
use leadline_rows::xact::Logged;

use super::xacts::{Deleted, Ends};
use crate::blocks::Page;

/// A row version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    pub header: TupleHeader,
    pub inserted: Logged,
    pub deleted: Deleted,
    /// Who updated it, also when that was rolled back; 0: nobody; None: not known.
    pub updater: Option<u32>,
}

/// Of one page.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pointers: Vec<LinePointer>,
    versions: Vec<Option<Version>>,
}

impl Items {
    /// Takes those of another page.
    pub(crate) fn fill(&mut self, page: &Page<'_>, ends: &mut Ends) {
        self.pointers.clear();
        self.versions.clear();
        for (_, lp) in line_pointers(page.bytes, &page.header) {
            let tuple = lp.item(page.bytes).filter(|_| lp.flags() == LP_NORMAL);
            self.versions.push(tuple.and_then(TupleHeader::parse).map(|header| Version {
                header,
                inserted: ends.inserted(&header),
                deleted: ends.deleted(&header),
                updater: ends.updater(&header),
            }));
            self.pointers.push(lp);
        }
    }

    /// How many line pointers there are.
    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }

    /// Their numbers, from 1.
    pub(crate) fn numbers(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.pointers.len() as u16
    }

    /// The version at a number.
    pub(crate) fn version(&self, number: u16) -> Option<&Version> {
        self.versions.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// The line pointer with a number.
    pub(crate) fn pointer(&self, number: u16) -> Option<LinePointer> {
        self.pointers.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Where a redirect leads to.
    pub(crate) fn redirect(&self, number: u16) -> Option<u16> {
        let lp = self.pointer(number)?;
        (lp.flags() == LP_REDIRECT).then_some(lp.off() as u16)
    }
}
