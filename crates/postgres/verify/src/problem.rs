//! What is found, and how it is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// How much is compared. Each level does what the one before it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Pages with each other, and rows with indexes.
    Structure,
    /// Values of rows with the catalog, with TOAST chunks and with the transaction logs, too.
    Values,
}

/// How sure a problem is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// Two things in the files contradict each other: no server writes both.
    Certain,
    /// A server could have written it, by a fault of its own or of what it was given, such as another version of a collation.
    Likely,
}

impl Sure {
    /// For programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Sure::Certain => "certain",
            Sure::Likely => "likely",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its sort, for programs and for counting: a word or two with `_`, such as `sibling`, `downlink`, `order`, `hot_chain`, `toast`.
    pub class: &'static str,
    /// schema.name of the relation; filled in where it is told.
    pub relation: String,
    /// The file.
    pub path: PathBuf,
    /// The block within that file.
    pub block: u32,
    /// The line pointer, from 1.
    pub item: Option<u16>,
    /// What is wrong: a sentence without a full stop, which names blocks by their number in the fork.
    pub message: String,
    /// What that means for the data, such as "an index scan misses rows".
    pub means: &'static str,
    /// Whether it must be one.
    pub sure: Sure,
}

/// Takes what is found in one run, and counts it.
pub struct Report<'a> {
    take: &'a mut dyn FnMut(Problem) -> bool,
    /// The one that is being checked: schema.name.
    pub relation: String,
    /// Problems by class.
    pub classes: BTreeMap<&'static str, u64>,
    /// What was not compared, by the reason: "pages changed after the last checkpoint", "keys with the collation \"de_DE\"".
    pub skipped: BTreeMap<String, u64>,
    is_stopped: bool,
}

impl<'a> Report<'a> {
    /// `take` is given each problem; it says whether to go on.
    pub fn new(take: &'a mut dyn FnMut(Problem) -> bool) -> Report<'a> {
        Report { take, relation: String::new(), classes: BTreeMap::new(), skipped: BTreeMap::new(), is_stopped: false }
    }

    /// Something is wrong.
    pub fn found(&mut self, mut problem: Problem) {
        problem.relation.clone_from(&self.relation);
        *self.classes.entry(problem.class).or_default() += 1;
        if !self.is_stopped {
            self.is_stopped = !(self.take)(problem);
        }
    }

    /// Something could not be compared.
    pub fn skipped(&mut self, why: impl Into<String>, count: u64) {
        if count > 0 {
            *self.skipped.entry(why.into()).or_default() += count;
        }
    }

    /// Who asked does not want to know more.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}
