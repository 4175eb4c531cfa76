//! A layout as it is simulated: its drives, its groups, and where each LUN and object lies.

use std::collections::{BTreeMap, HashMap};

use leadline_errors::{Error, Kind, Result};

use crate::cache::Cache;
use crate::drive::Drive;
use crate::layout::{Layout, GB, KB};
use crate::raid::Raid;

/// Objects begin at whole steps of this size, as partitions and files do: else many a page would lie in two chunks of a stripe.
const STEP: u64 = 64 * KB;

#[derive(Debug)]
pub(crate) struct Group {
    pub raid: Raid,
    pub cache: Option<Cache>,
}

/// A range of addresses of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub group: usize,
    pub at: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Array {
    pub drives: Vec<Drive>,
    /// Group and number in it of each drive.
    pub names: Vec<(String, usize)>,
    pub groups: Vec<Group>,
    pub luns: HashMap<String, Extent>,
    /// Extents of each object, one for each of its LUNs.
    pub objects: BTreeMap<String, Vec<Extent>>,
}

impl Array {
    pub fn new(layout: &Layout) -> Result<Array> {
        let (mut drives, mut names, mut groups, mut luns) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        for (number, spec) in layout.groups.iter().enumerate() {
            let drive = spec.drive.as_ref().or(layout.drive.as_ref()).expect("the layout was checked");
            let raid = Raid::new(spec, drives.len());
            let row = raid.row_bytes();
            let whole_rows = drive.capacity() / (spec.stripe_kb * KB);
            // RAID 1 has no stripes, but may as well end where one would.
            let bytes = whole_rows * row / spec.luns.len() as u64 / row * row;
            if bytes == 0 {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("group {}: its LUNs are smaller than a stripe", spec.name),
                ));
            }
            for (n, lun) in spec.luns.iter().enumerate() {
                luns.insert(lun.clone(), Extent { group: number, at: n as u64 * bytes, bytes });
            }
            for n in 0..spec.drives {
                drives.push(Drive::new(drive)?);
                names.push((spec.name.clone(), n));
            }
            groups.push(Group { cache: spec.cache.as_ref().map(|cache| Cache::new(cache, row)), raid });
        }
        let objects = objects(layout, &luns)?;
        Ok(Array { drives, names, groups, luns, objects })
    }
}

/// Objects lie in their LUNs one behind the other, by name.
fn objects(layout: &Layout, luns: &HashMap<String, Extent>) -> Result<BTreeMap<String, Vec<Extent>>> {
    let mut taken: HashMap<&str, (u64, u64)> = HashMap::new(); // by LUN: bytes with a size, objects without one
    let share = |object: &str, on: &[String]| {
        layout.size_gb.get(object).map(|gb| ((gb * GB) as u64 / on.len() as u64).div_ceil(STEP) * STEP)
    };
    for (object, on) in &layout.place {
        for lun in on {
            let (bytes, others) = taken.entry(lun).or_default();
            match share(object, on) {
                Some(size) => *bytes += size,
                None => *others += 1,
            }
        }
    }
    let mut ends: HashMap<&str, u64> = HashMap::new();
    let mut objects = BTreeMap::new();
    for (object, on) in &layout.place {
        let mut extents = Vec::new();
        for lun in on {
            let (whole, (sized, others)) = (luns[lun], taken[lun.as_str()]);
            let too_small = || {
                Error::new(Kind::Invalid, format!("LUN {lun} is too small for {object}")).detail(format!(
                    "it has {:.3} GB, its objects {:.3} GB or more",
                    whole.bytes as f64 / GB,
                    sized as f64 / GB
                ))
            };
            let left = whole.bytes.checked_sub(sized).ok_or_else(too_small)?;
            let bytes = share(object, on).unwrap_or_else(|| left / others.max(1) / STEP * STEP);
            if bytes == 0 {
                return Err(too_small());
            }
            let end = ends.entry(lun).or_default();
            extents.push(Extent { group: whole.group, at: whole.at + *end, bytes });
            *end += bytes;
        }
        objects.insert(object.clone(), extents);
    }
    Ok(objects)
}
