//! A relation that is checked, with what the catalog says of it.

use std::collections::HashMap;

use leadline_errors::Result;
use leadline_rows::catalog::{Attribute, Catalog, Class};

use crate::blocks::{Blocks, Settled};
use crate::heap::about::About;
use crate::index::Index;
use crate::order::{Collations, Enums};

/// The relations of a database and what is known of them.
pub(crate) struct Definitions {
    pub catalog: Catalog,
    /// Columns of tables and indexes, dropped ones too.
    pub attributes: HashMap<u32, Vec<Attribute>>,
    pub indexes: HashMap<u32, Index>,
    pub settled: Settled,
    /// What checks of rows have to know.
    pub rows: About,
    pub orders: Orders,
}

/// What the order of keys depends on, beside operator classes.
pub(crate) struct Orders {
    pub collations: Collations,
    pub enums: Enums,
}

/// A relation with a file.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub(crate) of: &'a Definitions,
    /// Its row in pg_class.
    pub class: &'a Class,
}

impl<'a> Target<'a> {
    /// schema.name
    pub fn name(&self) -> String {
        format!("{}.{}", self.class.schema, self.class.relname)
    }

    /// The catalog of its database.
    pub fn catalog(&self) -> &'a Catalog {
        &self.of.catalog
    }

    /// Its columns in order, dropped ones too; of an index those of its tuples.
    pub fn attributes(&self) -> &'a [Attribute] {
        self.of.attributes.get(&self.class.oid).map_or(&[], Vec::as_slice)
    }

    /// What pg_index says, if it is an index.
    pub fn index(&self) -> Option<&'a Index> {
        self.of.indexes.get(&self.class.oid)
    }

    /// The indexes of a table, in the order of their oids.
    pub fn indexes(&self) -> Vec<&'a Index> {
        let mut found: Vec<_> = self.of.indexes.values().filter(|index| index.table == self.class.oid).collect();
        found.sort_by_key(|index| index.oid);
        found
    }

    /// What the order of keys depends on.
    pub(crate) fn orders(&self) -> &'a Orders {
        &self.of.orders
    }

    /// Another relation of the same database.
    pub fn other(&self, oid: u32) -> Option<Target<'a>> {
        self.of.catalog.classes.get(&oid).map(|class| Target { of: self.of, class })
    }

    /// Its blocks.
    ///
    /// # Errors
    /// When it has no file, or the file system says no.
    pub fn blocks(&self) -> Result<Blocks> {
        let file = self.of.catalog.heap(self.class.oid)?;
        // After a crash, an unlogged relation is made empty; its pages have no LSN.
        let is_logged = self.class.relpersistence == b'p';
        let settled = if is_logged || self.of.settled == Settled::All { self.of.settled } else { Settled::None };
        Ok(Blocks::new(file, &self.of.catalog.dir, settled))
    }
}
