//! The hash codes of a hash index: in order within each page, and in the bucket they belong to.

use leadline_errors::Result;

use super::chains::Chains;
use super::flag;
use crate::blocks::Blocks;
use crate::index_pages::{items, u32_at, Few, NO_BLOCK};
use crate::problem::Report;

/// Checks the items of all pages that are in chains.
pub(super) fn check(chains: &Chains<'_>, blocks: &mut Blocks, report: &mut Report<'_>) -> Result<()> {
    let first_pages = first_pages(chains);
    let (mut told, mut disordered) = (Few::default(), Few::default());
    blocks.each(0..u32::MAX, |page| {
        let Some(about) = chains.pages.get(page.block as usize).filter(|about| about.is_reached && page.is_settled)
        else {
            return Ok(true);
        };
        let first = first_pages.get(about.bucket as usize).and_then(|block| chains.pages.get(*block as usize));
        let mut last = 0;
        let (mut is_ordered, mut is_at_home) = (true, true);
        for (number, item) in items(&page) {
            let hash = u32_at(item, 8);
            if hash < last && is_ordered && disordered.take(page.block) {
                let message = format!(
                    "the hash code of item {number} is {hash:#010x}, less than {last:#010x} of the item before it"
                );
                let means = "index scans miss rows";
                report.found(chains.names.problem("order", page.block, Some(number), message, means));
            }
            is_ordered &= hash >= last;
            last = hash;
            let Some(first) = first else { continue };
            let bucket = bucket_of(hash, first.prev);
            let moves = first.flag & (flag::BEING_SPLIT | flag::NEEDS_SPLIT_CLEANUP) != 0;
            if bucket != about.bucket && !(moves && comes_from(hash, about.bucket)) {
                if is_at_home && told.take(page.block) {
                    let message = format!(
                        "item {number} has the hash code {hash:#010x} of bucket {bucket}, but the page is of bucket {}",
                        about.bucket
                    );
                    report.found(chains.names.problem(
                        "bucket",
                        page.block,
                        Some(number),
                        message,
                        "index scans miss rows",
                    ));
                }
                is_at_home = false;
            }
        }
        Ok(!report.is_stopped())
    })?;
    told.tell(report);
    disordered.tell(report);
    Ok(())
}

/// The first page of each bucket, by its number.
fn first_pages(chains: &Chains<'_>) -> Vec<u32> {
    let count = chains.pages.len();
    let mut blocks = vec![NO_BLOCK; count];
    for (block, about) in chains.pages.iter().enumerate() {
        // One whose number of buckets cannot be is reported where chains are followed.
        if about.is(flag::BUCKET)
            && about.is_reached
            && (about.bucket as usize) < count
            && (about.prev as usize) < count
        {
            blocks[about.bucket as usize] = block as u32;
        }
    }
    blocks
}

/// `_hash_hashkey2bucket` when this was the last bucket. A bucket keeps its items until it is split again, and notes the last bucket then.
fn bucket_of(hash: u32, maxbucket: u32) -> u32 {
    let high = (u64::from(maxbucket) + 1).next_power_of_two() as u32;
    let high = high.wrapping_sub(1);
    let bucket = hash & high;
    if bucket > maxbucket {
        bucket & (high >> 1)
    } else {
        bucket
    }
}

/// Whether a bucket can be split into the one of this hash code: its lowest bits are those of the bucket.
fn comes_from(hash: u32, bucket: u32) -> bool {
    let bits = 32 - bucket.leading_zeros();
    let mask = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
    hash & mask == bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_codes_belong_to_the_bucket_of_their_lowest_bits() {
        assert_eq!([0, 1, 2, 3].map(|hash| bucket_of(hash, 1)), [0, 1, 0, 1]);
        assert_eq!([0, 1, 2, 3].map(|hash| bucket_of(hash, 2)), [0, 1, 2, 1]);
        assert_eq!(bucket_of(u32::MAX, u32::MAX), u32::MAX);
        assert!(comes_from(0b110, 0b10) && !comes_from(0b101, 0b10) && comes_from(7, 7) && comes_from(9, 0));
    }
}
