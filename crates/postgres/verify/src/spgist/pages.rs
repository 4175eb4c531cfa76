//! Single pages of an SP-GiST index, which are more than their items: chains of leaf tuples, and counts of those that are none any more.

use leadline_page::postgres::spgist::SpgistTuple;
use leadline_page::postgres::Kind;

use crate::blocks::Page;
use crate::index_pages::{items, u16_at};

/// `tupstate`.
const LIVE: u32 = 0;
const REDIRECT: u32 = 1;
const DEAD: u32 = 2;
const PLACEHOLDER: u32 = 3;
const STATES: [&str; 4] = ["live", "a redirect", "dead", "a placeholder"];
/// From 14 on the upper two bits of `t_info` are flags.
const NEXT_OFFSET: u16 = 0x3fff;

fn state(item: &[u8]) -> u32 {
    item.first().map_or(PLACEHOLDER, |byte| u32::from(byte & 3))
}

/// Redirects and placeholders other than the special area says, in words.
pub(super) fn bad_counts(page: &Page<'_>) -> Option<String> {
    let (mut redirects, mut placeholders) = (0u16, 0u16);
    for (_, item) in items(page) {
        match state(item) {
            REDIRECT => redirects += 1,
            PLACEHOLDER => placeholders += 1,
            _ => {}
        }
    }
    let special = page.special();
    let wrong = |what, found: u16, is: u16| {
        (found != is).then(|| format!("block {} has {is} {what}, but says {found}", page.block))
    };
    wrong("redirects", u16_at(special, 2), redirects)
        .or_else(|| wrong("placeholders", u16_at(special, 4), placeholders))
}

/// The chains of a leaf; of an inner page each tuple is one.
#[derive(Default)]
pub(super) struct Chains {
    /// Live tuples that no other leads to.
    pub(super) heads: Vec<u16>,
    states: Vec<Option<u32>>,
    /// An item, and what is wrong with it.
    pub(super) wrong: Option<(u16, String)>,
}

impl Chains {
    pub(super) fn of(page: &Page<'_>) -> Chains {
        let is_leaf = page.kind == Kind::SpgistLeaf;
        let mut chains = Chains::default();
        if !is_leaf && page.kind != Kind::SpgistInner {
            return chains;
        }
        let count = page.header.line_pointers(page.bytes.len());
        chains.states = vec![None; count + 1];
        let mut next = vec![0u16; count + 1];
        for (number, item) in items(page) {
            let at = usize::from(number);
            let Some(place) = chains.states.get_mut(at) else { continue };
            *place = Some(state(item));
            if is_leaf && state(item) == LIVE {
                next[at] = SpgistTuple::parse(item, true).map_or(0, |tuple| tuple.item.t_info & NEXT_OFFSET);
            }
        }
        let mut before = vec![0u16; count + 1];
        for (at, to) in next.iter().map(|to| usize::from(*to)).enumerate().skip(1) {
            let why = match chains.states.get(to) {
                _ if to == 0 => continue,
                None => format!("which block {} does not have", page.block),
                Some(Some(LIVE)) if before[to] != 0 => format!("to which item {} leads too", before[to]),
                Some(Some(LIVE)) => {
                    before[to] = at as u16;
                    continue;
                }
                Some(_) => "which is not live".into(),
            };
            let message = format!("item {at} of block {} leads to item {to}, {why}", page.block);
            chains.wrong.get_or_insert((at as u16, message));
        }
        let is_head = |at: &usize| chains.states[*at] == Some(LIVE) && before[*at] == 0;
        chains.heads = (1..=count).filter(is_head).map(|at| at as u16).collect();
        if chains.wrong.is_none() {
            chains.wrong = circle(&chains, &next, page.block);
        }
        chains
    }

    /// Why a downlink must not lead to an item.
    pub(super) fn bad_target(&self, page: &Page<'_>, item: u16) -> Option<String> {
        match self.states.get(usize::from(item)).copied().flatten() {
            _ if self.states.is_empty() => Some(format!("which is a {} page", page.kind.as_str())),
            None => Some("which is not there".into()),
            Some(LIVE) if self.heads.contains(&item) => None,
            Some(LIVE) if self.wrong.is_some() => None,
            Some(LIVE) => Some("which is not the head of its chain".into()),
            Some(DEAD) if page.kind == Kind::SpgistLeaf => None,
            Some(state) => Some(format!("which is {}", STATES[(state & 3) as usize])),
        }
    }
}

/// A live tuple that no head leads to: its chain has none.
fn circle(chains: &Chains, next: &[u16], block: u32) -> Option<(u16, String)> {
    let mut is_met = vec![false; next.len()];
    for head in &chains.heads {
        let mut at = usize::from(*head);
        // None leads to one that was met: each has one before it.
        while at != 0 && !is_met[at] {
            is_met[at] = true;
            at = usize::from(next[at]);
        }
    }
    let lost = (1..next.len()).find(|at| chains.states[*at] == Some(LIVE) && !is_met[*at])?;
    Some((lost as u16, format!("item {lost} of block {block} is in a chain that begins nowhere")))
}
