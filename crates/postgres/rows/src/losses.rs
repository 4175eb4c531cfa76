//! What could not be read, one by one: which row, which value of it, and why.

use std::sync::Arc;

use crate::cell::Place;

/// More are counted and not kept.
const MOST: usize = 10_000;

/// A page, a row or a value that could not be read. Those of one page are in the order of its rows and columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The partition that it is in, of a partitioned table.
    pub partition: Option<Arc<str>>,
    /// Its block.
    pub block: u32,
    /// Its line pointer; 0 of a whole page.
    pub lp: u16,
    /// The number of its column; none of a whole row.
    pub column: Option<usize>,
    /// Why.
    pub reason: String,
}

/// The first that were met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    kept: Vec<Loss>,
    /// How many more there were.
    pub left_out: u64,
}

impl Losses {
    pub(crate) fn page(&mut self, block: u32, reason: &str) {
        self.push(Loss { partition: None, block, lp: 0, column: None, reason: reason.into() });
    }

    pub(crate) fn row(&mut self, block: u32, lp: u16, reason: &str) {
        self.push(Loss { partition: None, block, lp, column: None, reason: reason.into() });
    }

    pub(crate) fn value(&mut self, place: &Place, column: usize, reason: &str) {
        let (block, lp, reason) = (place.block, place.lp, reason.into());
        self.push(Loss { partition: None, block, lp, column: Some(column), reason });
    }

    fn push(&mut self, loss: Loss) {
        if self.kept.len() < MOST {
            self.kept.push(loss);
        } else {
            self.left_out += 1;
        }
    }

    /// All of them are in this partition.
    pub(crate) fn of_partition(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        self.kept.iter_mut().for_each(|loss| loss.partition = Some(Arc::clone(&name)));
    }

    pub(crate) fn add(&mut self, other: &Losses) {
        self.left_out += other.left_out;
        other.kept.iter().for_each(|loss| self.push(loss.clone()));
        self.kept.sort();
    }

    /// In the order of partitions, blocks, rows and columns.
    pub fn all(&self) -> &[Loss] {
        &self.kept
    }
}
