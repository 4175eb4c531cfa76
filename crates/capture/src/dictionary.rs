//! The distinct values of a column and their numbers, in the order they came.

use leadline_parquet::Int;

/// A hash table from value to number, open addressing. Numbers stay valid while values are added.
pub(crate) struct Dictionary {
    values: Vec<i64>,
    /// A power of two of them, at most half of them taken, so that a search ends.
    slots: Vec<Slot>,
    /// 64 less the binary logarithm of the number of slots.
    shift: u32,
    /// Slots of an earlier life are free: forgetting all of them costs nothing.
    life: u32,
}

/// A value and its number, in the life of the dictionary it was put here.
#[derive(Clone, Copy, Default)]
struct Slot {
    value: i64,
    number: u32,
    life: u32,
}

const SMALLEST: usize = 1 << 9;

impl Dictionary {
    pub(crate) fn new() -> Dictionary {
        Dictionary { values: Vec::new(), slots: vec![Slot::default(); SMALLEST], shift: shift_of(SMALLEST), life: 1 }
    }

    /// Forgets all values but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.life = self.life.wrapping_add(1);
        if self.life == 0 {
            self.slots.fill(Slot::default());
            self.life = 1;
        }
    }

    /// The values, each at its number.
    pub(crate) fn values(&self) -> &[i64] {
        &self.values
    }

    /// Puts the numbers of `values` into `numbers`, adding values not yet known. Gives up, with false, soon after that
    /// makes more than `limit` values; what was added until then stays.
    pub(crate) fn number_all<T: Int>(&mut self, values: &[T], limit: usize, numbers: &mut Vec<u32>) -> bool {
        numbers.resize(values.len(), 0);
        let mut last: Option<(T, u32)> = None;
        // Eight at a time, since a wrong guess about each value would cost the processor more than the search.
        for (eight, out) in values.chunks(8).zip(numbers.chunks_mut(8)) {
            match last {
                Some((value, number)) if same(eight, value) => {
                    out.fill(number);
                    continue;
                }
                _ => {}
            }
            match (<&[T; 8]>::try_from(eight), <&mut [u32; 8]>::try_from(&mut *out)) {
                (Ok(eight), Ok(out)) => *out = eight.map(|value| self.number(value.wide())),
                _ => out.iter_mut().zip(eight).for_each(|(number, value)| *number = self.number(value.wide())),
            }
            last = eight.last().copied().zip(out.last().copied());
            if self.values.len() > limit {
                return false;
            }
        }
        true
    }

    #[inline]
    fn number(&mut self, value: i64) -> u32 {
        match self.slots.get(hash(value, self.shift)) {
            Some(slot) if slot.value == value && slot.life == self.life => slot.number,
            _ => self.search(value),
        }
    }

    #[inline(never)]
    fn search(&mut self, value: i64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = hash(value, self.shift);
        while self.slots[at].life == self.life {
            if self.slots[at].value == value {
                return self.slots[at].number;
            }
            at = (at + 1) & mask;
        }
        let number = self.values.len() as u32;
        self.values.push(value);
        self.slots[at] = Slot { value, number, life: self.life };
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(size, Slot::default());
        self.shift = shift_of(size);
        self.life = 1;
        for (number, value) in (0..).zip(&self.values) {
            let mut at = hash(*value, self.shift);
            while self.slots[at].life == self.life {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = Slot { value: *value, number, life: self.life };
        }
    }
}

/// Whether all of a group have this value, without a branch per value.
#[inline]
fn same<T: Int>(group: &[T], value: T) -> bool {
    group.iter().fold(T::default(), |any, v| any | (*v ^ value)) == T::default()
}

fn shift_of(slots: usize) -> u32 {
    u64::BITS - slots.trailing_zeros()
}

/// Fibonacci hashing: the high bits of a product with 2^64 / golden ratio.
#[inline]
fn hash(value: i64, shift: u32) -> usize {
    ((value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value's number is its place among the distinct values, whatever came between, in each life anew.
    #[test]
    fn numbers_distinct_values_in_the_order_they_came() {
        let mut dictionary = Dictionary::new();
        for life in 0..3i64 {
            let values: Vec<i64> = (0..5000).map(|i| (i % 1700) * 0x1_0000_0001 * (life + 1) - 3).collect();
            let mut numbers = Vec::new();
            assert!(dictionary.number_all(&values, 1700, &mut numbers));
            assert_eq!(dictionary.values(), &values[..1700]);
            for (value, number) in values.iter().zip(&numbers) {
                assert_eq!(dictionary.values()[*number as usize], *value);
            }
            assert_eq!(numbers.len(), values.len());
            dictionary.clear();
            assert!(dictionary.values().is_empty());
        }
    }

    #[test]
    fn gives_up_over_the_limit() {
        let values: Vec<i64> = (0..100).collect();
        assert!(Dictionary::new().number_all(&values, 100, &mut Vec::new()));
        assert!(!Dictionary::new().number_all(&values, 99, &mut Vec::new()));
    }

    #[test]
    fn zero_is_a_value_like_others() {
        let mut numbers = Vec::new();
        assert!(Dictionary::new().number_all(&[0i32, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7], 9, &mut numbers));
        assert_eq!(numbers, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
