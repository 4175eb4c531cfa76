//! BRIN indexes: the map leads to the summary of each range, and each summary is in the map.
//!
//! Source: src/include/access/brin_page.h, brin_revmap.c, brin_pageops.c (`brin_doinsert` and `brin_doupdate` change the page and the map in
//! one record). VACUUM that truncates a table leaves the summaries of what was cut.

mod values;

use leadline_errors::Result;
use leadline_page::postgres::brin::BrinTuple;
use leadline_page::postgres::Kind;
use leadline_page::Tid;

use crate::blocks::{Blocks, Page};
use crate::index_pages::{self, items, u32_at, Comparable, Few};
use crate::problem::{Level, Report};
use crate::target::Target;

/// Behind the page header: `rm_tids`, and the fields of the meta page.
const AT: usize = 24;
/// Ranges that are held at a time: 8 bytes each.
const MOST_RANGES: u64 = 32 << 20;
const MISSED: &str = "index scans look into ranges without need, or miss rows";

/// What the meta page says.
#[derive(Debug, Clone, Copy)]
struct Meta {
    pages_per_range: u32,
    last_revmap_page: u32,
}

/// Where the summary of a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Summary {
    /// Nobody knows: its page of the map cannot be compared.
    Unknown,
    None,
    At(Tid),
}

/// Checks a BRIN index.
///
/// # Errors
/// When the file system says no.
pub(crate) fn check(target: &Target<'_>, level: Level, report: &mut Report<'_>) -> Result<()> {
    let Some(mut blocks) = index_pages::open(target, report)? else { return Ok(()) };
    let names = blocks.again();
    let map = structure(&mut blocks, &names, report)?;
    match map {
        Some(map) if level >= Level::Values => values::check(target, &map, &mut blocks, &names, report),
        _ => Ok(()),
    }
}

/// Compares the pages with each other; None if nobody knows where what is.
fn structure(blocks: &mut Blocks, names: &Blocks, report: &mut Report<'_>) -> Result<Option<Map>> {
    let mut comparable = Comparable::of(blocks);
    let Some(meta) = meta(blocks, names, report)? else {
        report.skipped("indexes without a meta page that can be compared", 1);
        return Ok(None);
    };
    let per_page = (blocks.block_size() - AT - 8) / 6;
    if u64::from(meta.last_revmap_page) * per_page as u64 > MOST_RANGES {
        report.skipped("pages of indexes that are too large", blocks.count().into());
        return Ok(None);
    }
    let mut map = vec![Summary::Unknown; meta.last_revmap_page as usize * per_page];
    let mut told = Few::default();
    blocks.each(1..meta.last_revmap_page.saturating_add(1), |page| {
        if !comparable.take(&page) {
            return Ok(true);
        }
        if page.kind != Kind::BrinRevmap {
            if told.take(page.block) {
                let message =
                    format!("block {} should be of the map, but is a {} page", page.block, page.kind.as_str());
                report.found(names.problem("revmap", page.block, None, message, "the index cannot be read"));
            }
            return Ok(true);
        }
        let first = (page.block as usize - 1) * per_page;
        let places = page.bytes.get(AT..).unwrap_or(&[]).chunks_exact(6).take(per_page);
        for (i, b) in places.enumerate() {
            let tid = b.first_chunk().map_or(Tid::default(), |b| Tid::parse(*b));
            map[first + i] = if tid.posid == 0 { Summary::None } else { Summary::At(tid) };
        }
        Ok(true)
    })?;
    let mut state = Map { meta, map, per_page, told };
    let mut met = vec![false; state.map.len()];
    blocks.each(meta.last_revmap_page.saturating_add(1)..u32::MAX, |page| {
        if comparable.take_own(&page, is_own, names, report) && page.kind == Kind::BrinRegular {
            state.summaries(&page, &mut met, names, report);
        }
        Ok(!report.is_stopped())
    })?;
    comparable.tell(report);
    state.compare(&met, blocks, names, report)?;
    state.told.tell(report);
    Ok(Some(state))
}

fn is_own(block: u32, kind: Kind) -> bool {
    match block {
        0 => kind == Kind::BrinMeta,
        _ => matches!(kind, Kind::BrinRevmap | Kind::BrinRegular | Kind::New),
    }
}

fn meta(blocks: &mut Blocks, names: &Blocks, report: &mut Report<'_>) -> Result<Option<Meta>> {
    let mut comparable = Comparable::of(blocks);
    let count = blocks.count();
    let Some(page) = blocks.read(0)? else { return Ok(None) };
    if !comparable.take_own(&page, is_own, names, report) {
        return Ok(None);
    }
    let meta = Meta { pages_per_range: u32_at(page.bytes, AT + 8), last_revmap_page: u32_at(page.bytes, AT + 12) };
    let message = if meta.last_revmap_page >= count {
        format!("lastRevmapPage is {}, but the index has {count} blocks", meta.last_revmap_page)
    } else if !(1..=131_072).contains(&meta.pages_per_range) {
        format!("pagesPerRange should be from 1 to 131072, but is {}", meta.pages_per_range)
    } else {
        return Ok(Some(meta));
    };
    report.found(names.problem("meta", 0, None, message, "the index cannot be read"));
    Ok(None)
}

/// The map of an index.
struct Map {
    meta: Meta,
    map: Vec<Summary>,
    per_page: usize,
    told: Few,
}

impl Map {
    /// Compares the summaries of a page with the map.
    fn summaries(&mut self, page: &Page<'_>, met: &mut [bool], names: &Blocks, report: &mut Report<'_>) {
        for (number, item) in items(page) {
            let Some(tuple) = BrinTuple::parse(item) else { continue };
            let (first, size) = (tuple.bt_blkno, self.meta.pages_per_range);
            let here = Tid { block: page.block, posid: number };
            let before = format!(
                "item {number} of block {} is the summary of the range at block {first} of the table",
                page.block
            );
            let message = match self.map.get((first / size) as usize) {
                _ if first % size != 0 => format!("{before}, where none of {size} blocks begins"),
                None => format!("{before}, which the map does not have"),
                Some(Summary::Unknown) => continue,
                Some(Summary::At(tid)) if *tid == here => {
                    met[(first / size) as usize] = true;
                    continue;
                }
                Some(Summary::At(tid)) => format!("{before}, but the map leads to {tid}"),
                Some(Summary::None) => format!("{before}, but the map leads nowhere"),
            };
            if self.told.take(page.block) {
                report.found(names.problem("summary", page.block, Some(number), message, MISSED));
            }
        }
    }

    /// Looks at those places of the map whose summary was not met.
    fn compare(&mut self, met: &[bool], blocks: &mut Blocks, names: &Blocks, report: &mut Report<'_>) -> Result<()> {
        for (range, summary) in self.map.iter().enumerate() {
            let Summary::At(tid) = *summary else { continue };
            if self.told.is_full() || report.is_stopped() {
                break;
            }
            if met[range] {
                continue;
            }
            let at = range as u64 * u64::from(self.meta.pages_per_range);
            let before = format!("the map leads to {tid} for the range at block {at} of the table");
            let count = blocks.count();
            let why = match blocks.read(tid.block)? {
                None if tid.block >= count => format!("but the index has {count} blocks"),
                None => continue,
                Some(page) if !Comparable::of(names).take(&page) => continue,
                Some(page) if page.kind != Kind::BrinRegular => format!("which is a {} page", page.kind.as_str()),
                Some(page) => match items(&page).find(|(number, _)| *number == tid.posid) {
                    None => "where no summary is".into(),
                    Some((_, item)) => {
                        let first = BrinTuple::parse(item).unwrap_or_default().bt_blkno;
                        format!("which is the summary of the range at block {first}")
                    }
                },
            };
            let block = 1 + (range / self.per_page) as u32;
            if self.told.take(block) {
                let means = "the index cannot be read, or index scans miss rows";
                report.found(names.problem("revmap", block, None, format!("{before}, {why}"), means));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{found, page, page_of, tid, words, Made, Random};

    fn special(kind: u16) -> Vec<u8> {
        [0, 0, 0, kind].iter().flat_map(|n: &u16| n.to_le_bytes()).collect()
    }

    fn summary(first: u32) -> Vec<u8> {
        [words(&[first]), vec![8, 0, 0, 0], words(&[1, 9])].concat()
    }

    /// Ranges of four blocks: the first and the third have summaries.
    fn pages() -> Vec<Vec<u8>> {
        let mut map = [&tid(2, 1)[..], &tid(0, 0), &tid(2, 2)].concat();
        map.resize(8160, 0);
        vec![
            page_of(&words(&[0xa810_9cfa, 1, 4, 1]), &special(0xf091)),
            page_of(&map, &special(0xf092)),
            page(&[summary(0), summary(8)], &special(0xf093)),
        ]
    }

    fn problems(name: &str, pages: &[Vec<u8>]) -> Vec<String> {
        let made = Made::new(name, pages);
        found(|report| drop(structure(&mut made.blocks(), &made.blocks(), report).unwrap()))
    }

    #[test]
    fn the_map_and_the_summaries_lead_to_each_other() {
        assert_eq!(problems("brin", &pages()), Vec::<String>::new());
        let changed = |block: usize, at: usize, to: &[u8]| {
            let mut pages = pages();
            pages[block][at..at + to.len()].copy_from_slice(to);
            problems(&format!("brin-{block}-{at}"), &pages)
        };
        let begins = "summary: item 2 of block 2 is the summary of the range at block 8 of the table";
        let lost = format!("{begins}, but the map leads nowhere");
        assert_eq!(changed(1, 24 + 12, &tid(0, 0)), [lost]);
        let found = changed(1, 24 + 12, &tid(2, 1));
        assert_eq!(found[0], format!("{begins}, but the map leads to (2,1)"));
        assert!(found[1].ends_with("which is the summary of the range at block 0"), "{found:?}");
        assert_eq!(changed(0, 24 + 12, &[9]), ["meta: lastRevmapPage is 9, but the index has 3 blocks"]);
        assert!(changed(2, 8184 - 16, &[2])[0].contains("where none of 4 blocks begins"));
    }

    #[test]
    fn damaged_pages_never_stop_the_check() {
        let mut random = Random(11);
        for _ in 0..300 {
            let mut pages = pages();
            random.damage(&mut pages);
            problems("brin-random", &pages);
        }
    }
}
