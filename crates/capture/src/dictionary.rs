//! The distinct values of a column and their numbers, in the order they came.

/// A hash table from value to number, open addressing. Numbers stay valid while values are added.
pub(crate) struct Dictionary {
    values: Vec<i64>,
    slots: Vec<Slot>,
}

/// A value and its number + 1; 0 is a free slot. At most half of the slots are taken, so a search ends.
#[derive(Clone, Copy, Default)]
struct Slot {
    value: i64,
    number_1: u32,
}

const SMALLEST: usize = 1 << 9;

impl Dictionary {
    pub(crate) fn new() -> Dictionary {
        Dictionary { values: Vec::new(), slots: vec![Slot::default(); SMALLEST] }
    }

    /// Forgets all values but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.slots.fill(Slot::default());
    }

    /// The values, each at its number.
    pub(crate) fn values(&self) -> &[i64] {
        &self.values
    }

    /// Appends the numbers of `values` to `numbers`, adding values not yet known. Gives up, with false, when that would
    /// make more than `limit` values; what was added until then stays.
    pub(crate) fn number_all(&mut self, values: &[i64], limit: usize, numbers: &mut Vec<u32>) -> bool {
        // No short cut for a value like the one before: guessing wrong costs the processor more than the search.
        for chunk in values.chunks(512) {
            numbers.extend(chunk.iter().map(|value| self.number(*value)));
            if self.values.len() > limit {
                return false;
            }
        }
        true
    }

    #[inline]
    fn number(&mut self, value: i64) -> u32 {
        let slot = self.slots[hash(value, self.slots.len())];
        if slot.value == value && slot.number_1 != 0 {
            return slot.number_1 - 1;
        }
        self.search(value)
    }

    fn search(&mut self, value: i64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash(value, self.slots.len());
        while self.slots[at].number_1 != 0 {
            if self.slots[at].value == value {
                return self.slots[at].number_1 - 1;
            }
            at = (at + 1) & mask;
        }
        self.values.push(value);
        let number_1 = self.values.len() as u32;
        self.slots[at] = Slot { value, number_1 };
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        number_1 - 1
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 4;
        self.slots.clear();
        self.slots.resize(size, Slot::default());
        for (number_1, value) in (1..).zip(&self.values) {
            let mut at = hash(*value, size);
            while self.slots[at].number_1 != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = Slot { value: *value, number_1 };
        }
    }
}

/// Fibonacci hashing: the high bits of a product with 2^64 / golden ratio. `size` is a power of two.
#[inline]
fn hash(value: i64, size: usize) -> usize {
    ((value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - size.trailing_zeros())) as usize
}
