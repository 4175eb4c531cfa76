//! The files in which pgBackRest keeps what it knows: sections of keys, and values that are JSON.

use serde_json::Value;

/// Gives each key of each section, in the order of the file: section, key, value.
///
/// A key may have '=' in it, as the name of a file may: the value begins behind the first '=' from which on the line is JSON.
///
/// # Errors
/// The number of the first line that is none of these.
pub(crate) fn each(text: &str, mut take: impl FnMut(&str, &str, Value)) -> Result<(), usize> {
    let mut section = "";
    for (number, line) in (1_usize..).zip(text.lines()) {
        if line.is_empty() {
            continue;
        }
        if let Some(name) =
            line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|_| !line.contains('='))
        {
            section = name;
            continue;
        }
        let (key, value) = key_and_value(line).ok_or(number)?;
        take(section, key, value);
    }
    Ok(())
}

fn key_and_value(line: &str) -> Option<(&str, Value)> {
    let places = line.match_indices('=').map(|(at, _)| at);
    places.into_iter().find_map(|at| Some((line.get(..at)?, serde_json::from_str(line.get(at + 1..)?).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Result<Vec<String>, usize> {
        let mut found = Vec::new();
        each(text, |section, key, value| found.push(format!("{section}|{key}|{value}"))).map(|()| found)
    }

    #[test]
    fn keys_may_have_equal_signs() {
        let found = listed("[backup]\na=1\n\n[target:file]\npg_data/x=1={\"size\":3}\n[s]=true\n");
        let wanted = ["backup|a|1", "target:file|pg_data/x=1|{\"size\":3}", "target:file|[s]|true"];
        assert_eq!(found, Ok(wanted.map(String::from).to_vec()));
    }

    #[test]
    fn what_is_none_of_these_is_named_by_its_line() {
        assert_eq!((listed("[a]\nb=1\nc"), listed("[a]\nb={")), (Err(3), Err(2)));
    }
}
