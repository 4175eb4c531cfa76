//! Tables, TOAST tables and materialized views: the versions on their pages.

pub(crate) mod about;
mod chains;
pub(crate) mod found;
pub(crate) mod items;
#[cfg(test)]
mod tests;
mod tuples;
mod visible;
pub(crate) mod xacts;
mod xids;

use leadline_errors::Result;
use leadline_page::postgres::line_pointer::line_pointers;
use leadline_page::postgres::Kind;

use crate::blocks::{Page, Settled};
use crate::maps::{Bits, VisibilityMap};
use crate::problem::{Level, Report};
use crate::target::Target;
use crate::values::Columns;
use crate::{catalog_rows, toast};

use about::Thresholds;
use found::{At, Found};
use items::Items;
use xacts::Ends;

/// The access method of tables that comes with PostgreSQL (pg_am.dat).
pub(crate) const HEAP: u32 = 2;

/// One table on the way through its pages.
struct Heap<'a> {
    target: Target<'a>,
    level: Level,
    is_final: bool,
    than: Thresholds,
    ends: Ends,
    map: VisibilityMap,
    /// What it says of the page that is looked at.
    bits: Bits,
    columns: Option<Columns<'a>>,
    items: Items,
    unsettled: u64,
}

/// Checks a table.
///
/// # Errors
/// When its files cannot be read.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let mut blocks = target.blocks()?;
    let mut found = Found::new(report, blocks.again());
    let about = &target.of.rows;
    let settled = blocks.settled();
    let columns = if level >= Level::Values { Columns::of(target, about, settled) } else { None };
    if level >= Level::Values && columns.is_none() {
        found.skipped("tables whose columns are not all in pg_attribute", 1);
    }
    let mut heap = Heap {
        target: *target,
        level,
        is_final: settled == Settled::All,
        than: about.thresholds.get(&target.class.oid).copied().unwrap_or_default(),
        ends: Ends::new(&target.catalog().dir, about.before, about.after),
        map: VisibilityMap::of(target, settled)?,
        bits: Bits::default(),
        columns,
        items: Items::default(),
        unsettled: 0,
    };
    let count = blocks.count();
    blocks.each(0..count, |page| {
        heap.look_at(&page, &mut found)?;
        Ok(!found.is_stopped())
    })?;
    if heap.is_final {
        heap.map.check_end(count, &mut found)?;
    }
    found.skipped("pages changed after the last checkpoint, or damaged", heap.unsettled);
    found.skipped("pages of visibility maps changed after the last checkpoint, or damaged", heap.map.unsettled);
    if level >= Level::Values && catalog_rows::is_looked_at(target) {
        catalog_rows::check(target, &mut found)?;
    }
    found.finish();
    Ok(())
}

impl Heap<'_> {
    /// Looks at a page; a second time where the server may be writing it.
    fn look_at(&mut self, page: &Page<'_>, found: &mut Found<'_, '_>) -> Result<()> {
        if self.is_final {
            return self.page(page, found);
        }
        found.hold();
        self.page(page, found)?;
        let bits = self.bits;
        found.settle(page, || Ok(self.map.bits_again(page.block)? == bits))
    }

    fn page(&mut self, page: &Page<'_>, found: &mut Found<'_, '_>) -> Result<()> {
        if !page.is_settled {
            self.unsettled += 1;
            return Ok(());
        }
        let block = page.block;
        if !matches!(page.kind, Kind::Heap | Kind::New) {
            let message = format!("block {block} is a page of the kind {}, in a table", page.kind.as_str());
            found.certain("page_kind", At { block, item: 0 }, message, "rows of the page are lost");
            return Ok(());
        }
        let bits = self.map.bits(block)?;
        self.bits = bits;
        if page.kind == Kind::New {
            if bits.visible {
                let message =
                    format!("the visibility map says that all rows of block {block} are visible, which is a new page");
                let means = "rows that are put there later are taken for visible to all";
                found.certain("visibility_map", At { block, item: 0 }, message, means);
            }
            return Ok(());
        }
        self.items.fill(page, &mut self.ends);
        chains::check(&self.items, block, found);
        let natts = self.target.class.relnatts.max(0) as u16;
        tuples::check(&self.items, block, natts, self.is_final, found);
        visible::check(&self.items, block, page.header.pd_flags, bits, self.is_final, found);
        if self.target.class.relkind == b't' {
            toast::check_rows(page.bytes, &self.items, block, found);
        }
        if self.level >= Level::Values {
            xids::check(&self.items, block, &self.than, self.is_final, &mut self.ends, found);
            self.values(page, found)?;
        }
        Ok(())
    }

    fn values(&mut self, page: &Page<'_>, found: &mut Found<'_, '_>) -> Result<()> {
        let Some(columns) = &mut self.columns else { return Ok(()) };
        for (number, lp) in line_pointers(page.bytes, &page.header) {
            let item = number as u16;
            let Some((version, bytes)) = self.items.version(item).zip(lp.item(page.bytes)) else { continue };
            columns.check(bytes, version, At { block: page.block, item }, found)?;
        }
        Ok(())
    }
}
