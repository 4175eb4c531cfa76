//! Indexes of the access method btree.
//!
//! One pass over the file looks at each page by itself and keeps a few dozen bytes of it ([`rows`]). From these, the links between pages
//! are compared ([`links`]), and the keys where pages meet ([`edges`]). The same pass marks the rows that the index has, and the table is
//! read once to compare them ([`heap_index`]).
//!
//! What the rules are: src/backend/access/nbtree/README, contrib/amcheck/verify_nbtree.c.

mod about;
mod edges;
mod found;
mod heap_index;
mod keys;
mod links;
mod meta;
mod natts;
mod page;
mod rows;
#[cfg(test)]
mod tests;
mod tree;
mod tuple;
mod unique;
mod walk;

use std::ops::Range;

use leadline_errors::Result;

use heap_index::{Heap, Marks};

pub(crate) use found::{AllFound, Found};
pub(crate) use keys::{add_value, shortened};
pub(crate) use unique::Equals;

use crate::blocks::{Blocks, Settled};
use crate::order::Order;
use crate::problem::Report;
use crate::target::Target;
use about::About;
use edges::Edges;
use keys::{Column, Keys};
use meta::Meta;
use page::Pass;
use rows::{Downlink, Row};

/// Pages that are kept of one index: at 48 bytes each.
const MOST_PAGES: u32 = 3 << 20;
/// Threads; more only wait for the disk.
const MOST_THREADS: usize = 8;
/// Blocks from which on more than one thread is worth it.
const MANY: u32 = 512;

/// Checks a btree.
pub(crate) fn check(target: &Target<'_>, report: &mut Report<'_>) -> Result<()> {
    let Some(index) = target.index() else {
        report.skipped("indexes that pg_index does not have", 1);
        return Ok(());
    };
    if !index.is_valid {
        // What is left of one that could not be built may be any of its pages.
        report.skipped("indexes that are not valid", 1);
        return Ok(());
    }
    let mut blocks = target.blocks()?;
    // A running server makes the file of a relation empty before it removes it.
    if blocks.count() == 0 && blocks.settled() != Settled::All {
        return Ok(());
    }
    let heap = Heap::of(target, index, report);
    let keys = keys_of(target, index, report);
    let Some(mut keys) = keys else {
        report.skipped("indexes whose columns are not in the catalog", 1);
        return Ok(());
    };
    let mut found = AllFound::default();
    let meta = Meta::read(&mut blocks, &mut found)?;
    keys.has_tids = meta.as_ref().is_some_and(|meta| meta.version == 4);
    let keeps_rows = blocks.count() <= MOST_PAGES;
    if !keeps_rows {
        report.skipped("links between pages of btrees with more than 3 million pages", 1);
    }
    let about = About {
        keys,
        version: meta.as_ref().map(|meta| meta.version),
        allows_posting: meta.as_ref().filter(|meta| meta.is_settled).map(|meta| meta.allows_posting),
        blocks: blocks.count(),
        heap_blocks: heap.as_ref().and_then(Heap::certain_blocks),
        most_rows: blocks.most_rows(),
        settled: blocks.settled(),
        keeps_rows,
        unique: (index.is_unique && blocks.settled() == Settled::All).then_some(index.nulls_not_distinct),
    };
    let marks = heap.as_ref().map(|heap| heap.marks(0));
    let mut passed = pass(&blocks, &about, marks.as_ref())?;
    found.append(std::mem::take(&mut passed.found));
    report.skipped(why_unknown(about.settled), passed.unknown);
    report.skipped("keys at the edges of pages", passed.left_out);
    // Where the order of a column is not known, that is told.
    if about.keys.columns.iter().all(|column| !matches!(column.order, None | Some(Order::SameBytes))) {
        report.skipped("keys that could not be compared", passed.unordered);
    }
    if keeps_rows {
        edges::join(&passed.edges, &passed.rows, &about.keys, &mut found);
        links::check(&about, meta.as_ref(), &passed.rows, std::mem::take(&mut passed.downlinks), &mut found);
    }
    passed.edges.clear();
    passed.rows = Vec::new();
    if let (Some(heap), Some(first)) = (heap, marks) {
        let is_complete = passed.unknown == 0 && meta.as_ref().is_some_and(|meta| meta.is_settled);
        let mut marks = first;
        let mut live = Vec::new();
        report.skipped("equal keys of unique indexes", passed.equals.left_out);
        loop {
            heap.compare(&marks, is_complete, &passed.equals, &mut live, report)?;
            let Some(next) = heap.next(&marks) else { break };
            marks = heap.marks(next);
            mark(&blocks, &about, &marks)?;
        }
        passed.equals.tell(&live, &mut found);
    }
    found.tell(&mut blocks, report)
}

/// Why pages are not compared.
fn why_unknown(settled: Settled) -> &'static str {
    match settled {
        Settled::All => "pages that are damaged by themselves",
        _ => "pages changed after the last checkpoint",
    }
}

fn keys_of(target: &Target<'_>, index: &crate::index::Index, report: &mut Report<'_>) -> Option<Keys> {
    let storages: Vec<_> = target.attributes().iter().map(|attribute| attribute.storage).collect();
    if storages.len() != index.natts || index.keys.is_empty() || index.keys.len() > index.natts {
        return None;
    }
    let orders = target.orders();
    let column = |key: &crate::index::Key| {
        let order = Order::of(key.function, key.collation, &orders.collations, &orders.enums);
        if matches!(order, None | Some(Order::SameBytes)) {
            report.skipped(Order::why_unknown(key.function, key.collation, &orders.collations), 1);
        }
        Column::of(key, order)
    };
    let columns = index.keys.iter().map(column).collect();
    Some(Keys { storages, columns, has_tids: false })
}

/// What one pass over an index brings.
struct Passed {
    rows: Vec<Row>,
    downlinks: Vec<Vec<Downlink>>,
    edges: Vec<Edges>,
    equals: Equals,
    found: AllFound,
    unknown: u64,
    left_out: u64,
    unordered: u64,
}

/// Reads all pages but the first, in parts of about the same size at the same time.
fn pass(blocks: &Blocks, about: &About, marks: Option<&Marks>) -> Result<Passed> {
    let mut rows = vec![Row::default(); if about.keeps_rows { about.blocks as usize } else { 0 }];
    let parts = parts(1..about.blocks);
    let thread_count = parts.len();
    let mut rest = rows.get_mut(1..).unwrap_or_default();
    let outcome: Vec<Result<Pass<'_>>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for part in parts {
            let (own, others) = rest.split_at_mut(if about.keeps_rows { part.len() } else { 0 });
            rest = others;
            let mut blocks = blocks.again();
            threads.push(scope.spawn(move || {
                let mut pass = Pass::new(about, marks);
                pass.edges = Edges::new(thread_count);
                let mut seen = 0u64;
                blocks.each(part.clone(), |page| {
                    let row = pass.page(&page);
                    seen += 1;
                    if let Some(kept) = own.get_mut((page.block - part.start) as usize) {
                        *kept = row;
                    }
                    Ok(true)
                })?;
                pass.unknown += part.len() as u64 - seen.min(part.len() as u64);
                pass.edges.end();
                Ok(pass)
            }));
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    let mut passed = Passed {
        rows,
        downlinks: Vec::new(),
        edges: Vec::new(),
        equals: Equals::default(),
        found: AllFound::default(),
        unknown: 0,
        left_out: 0,
        unordered: 0,
    };
    let mut equals = Vec::new();
    for pass in outcome {
        let pass = pass?;
        equals.push(pass.equals);
        passed.found.append(pass.found);
        passed.downlinks.push(pass.downlinks);
        passed.unknown += pass.unknown;
        passed.unordered += pass.unordered;
        passed.left_out += pass.edges.left_out;
        passed.edges.push(pass.edges);
    }
    passed.equals = Equals::all(equals.into_iter());
    Ok(passed)
}

/// Marks rows of a later part of the table: nothing else is looked at again.
fn mark(blocks: &Blocks, about: &About, marks: &Marks) -> Result<()> {
    std::thread::scope(|scope| {
        let one = |part: Range<u32>| {
            let mut blocks = blocks.again();
            scope.spawn(move || {
                let mut pass = Pass::new(about, Some(marks));
                blocks.each(part, |page| {
                    pass.mark(&page);
                    Ok(true)
                })
            })
        };
        let threads: Vec<_> = parts(1..about.blocks).into_iter().map(one).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
    })
}

/// Cuts blocks into a part for each thread.
pub(crate) fn parts(blocks: Range<u32>) -> Vec<Range<u32>> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS)) as u32;
    let count = if blocks.end.saturating_sub(blocks.start) < MANY { 1 } else { threads };
    let len = blocks.end.saturating_sub(blocks.start);
    let at = |i: u32| blocks.start + (u64::from(len) * u64::from(i) / u64::from(count)) as u32;
    (0..count).map(|i| at(i)..at(i + 1)).collect()
}
