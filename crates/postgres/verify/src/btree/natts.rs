//! How many columns a tuple has, by its place (src/backend/access/nbtree/nbtutils.c, `_bt_check_natts`).

use super::about::About;
use super::tuple::{Form, Tuple};

/// What the first downlink of an inner page that a server before 11 wrote has in place of the number of its columns.
const P_HIKEY: u16 = 1;

/// What was expected and what is there, if they differ.
pub(crate) fn wrong_columns(
    tuple: &Tuple<'_>,
    about: &About,
    is_leaf: bool,
    is_high: bool,
    is_first: bool,
) -> Option<(String, String)> {
    let (natts, nkeys) = (about.keys.natts(), about.keys.columns.len());
    let version = about.version?;
    let wrong = |wanted: String, found: &str| Some((wanted, found.to_owned()));
    if let Form::Posting(_) = tuple.form {
        if version < 4 || natts != nkeys {
            return wrong("none in an index of this version or with INCLUDE".into(), "posting list");
        }
        if !is_leaf || is_high {
            return wrong("a pivot tuple".into(), "posting list");
        }
        return None;
    }
    if is_leaf && !is_high {
        return match tuple.form {
            Form::Pivot(..) => wrong("one with all columns, because it is an item of a leaf".into(), "pivot tuple"),
            _ => None,
        };
    }
    let is_minus_infinity = !is_leaf && is_first && !is_high;
    match (tuple.form, version) {
        (Form::Pivot(0, _), _) if is_minus_infinity => None,
        // Of an index of before 11: its columns are not used.
        (_, ..4) if is_minus_infinity && tuple.t_tid.posid == P_HIKEY => None,
        (Form::Pivot(there, _), _) if is_minus_infinity => {
            wrong("none, because it is the first downlink".into(), &columns(there))
        }
        (_, 4..) if is_minus_infinity => {
            wrong("none, because it is the first downlink".into(), "tuple with all columns")
        }
        (Form::Pivot(there, false), ..4) if there != nkeys => wrong(columns(nkeys), &columns(there)),
        (Form::Pivot(there, has_tid), 4..) => {
            if has_tid && there != nkeys {
                return wrong(
                    format!("all {} before it", columns(nkeys)),
                    &format!("row number behind {}", columns(there)),
                );
            }
            if there == 0 || there > nkeys {
                return wrong(format!("1 to {}", columns(nkeys)), &columns(there));
            }
            None
        }
        (_, 4..) => wrong("a pivot tuple".into(), "tuple with all columns"),
        _ => None,
    }
}

fn columns(count: usize) -> String {
    if count == 1 {
        "1 column".into()
    } else {
        format!("{count} columns")
    }
}
