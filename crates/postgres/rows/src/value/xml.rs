//! xml: stored as it was given, and printed without the encoding that it says, which need not be that of who reads it.
//!
//! Source: src/backend/utils/adt/xml.c (`parse_xml_decl`, `xml_out_internal`).

use super::Text;

/// What an XML declaration says beside the encoding.
struct Declaration<'a> {
    version: &'a [u8],
    standalone: Option<bool>,
}

pub(super) fn xml(b: &[u8], out: &mut Text) -> Option<()> {
    let (said, mut rest) = declaration(b).map_or((None, b), |(said, rest)| (Some(said), rest));
    match said {
        Some(Declaration { version, standalone }) if version != b"1.0" || standalone.is_some() => {
            out.push_str("<?xml version=\"");
            out.push_bytes(version);
            out.push_str(match standalone {
                Some(true) => "\" standalone=\"yes\"?>",
                Some(false) => "\" standalone=\"no\"?>",
                None => "\"?>",
            });
        }
        // Nothing is left of a declaration that says nothing more, nor the line that it would leave empty.
        _ => rest = rest.strip_prefix(b"\n").unwrap_or(rest),
    }
    out.push_bytes(rest);
    Some(())
}

/// The declaration at the beginning, and what is behind it; None where there is none, or one that a server leaves as it is.
fn declaration(b: &[u8]) -> Option<(Declaration<'_>, &[u8])> {
    let (version, rest) = quoted(attribute(b.strip_prefix(b"<?xml")?, b"version")?)?;
    let rest = match attribute(rest, b"encoding") {
        Some(value) => quoted(value)?.1,
        None => rest,
    };
    let (standalone, rest) = match attribute(rest, b"standalone").map(quoted) {
        Some(Some((b"yes", rest))) => (Some(true), rest),
        Some(Some((b"no", rest))) => (Some(false), rest),
        Some(_) => return None,
        None => (None, rest),
    };
    let rest = blanks(rest).strip_prefix(b"?>")?;
    b[..b.len() - rest.len()].is_ascii().then_some((Declaration { version, standalone }, rest))
}

/// Where the value of an attribute begins, which has blanks before it.
fn attribute<'a>(b: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let start = blanks(b);
    let behind = blanks(start.strip_prefix(name)?).strip_prefix(b"=")?;
    (start.len() < b.len()).then_some(blanks(behind))
}

/// What is between quotes, and what is behind them.
fn quoted(b: &[u8]) -> Option<(&[u8], &[u8])> {
    let (quote, rest) = b.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\''))?;
    let end = rest.iter().position(|c| c == quote)?;
    Some((&rest[..end], &rest[end + 1..]))
}

fn blanks(b: &[u8]) -> &[u8] {
    let blank = |c: &u8| matches!(c, b' ' | b'\t' | b'\n' | b'\r');
    &b[b.iter().position(|c| !blank(c)).unwrap_or(b.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_loses_its_encoding_or_stays_as_it_is() {
        for (stored, printed) in [
            ("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n\n<a/>", "\n<a/>"),
            ("<?xml\n  version = '1.1'\t?>x", "<?xml version=\"1.1\"?>x"),
            (
                "<?xml version='1.0' encoding='x' standalone='no' ?><a/>",
                "<?xml version=\"1.0\" standalone=\"no\"?><a/>",
            ),
            ("<?xml version='1.0' standalone=\"yes\"?>\n<a/>", "<?xml version=\"1.0\" standalone=\"yes\"?>\n<a/>"),
            ("\n<a/>", "<a/>"),
            ("", ""),
        ] {
            let mut out = Text::new();
            xml(stored.as_bytes(), &mut out).unwrap();
            assert_eq!(out.into_string(), printed, "{stored}");
        }
        for as_it_is in [
            "<a/>",
            "<?xml-stylesheet a=\"b\"?><a/>",
            "<?xmlversion='1.0'?>",
            "<?xml version='1.0'encoding='x'?>",
            "<?xml version='1.0' encoding=?>",
            "<?xml version='1.0' standalone='maybe'?>",
            "<?xml version='1.0",
            "<?xml version='1.0' encoding='ü'?>",
            "<?xml",
        ] {
            let mut out = Text::new();
            xml(as_it_is.as_bytes(), &mut out).unwrap();
            assert_eq!(out.into_string(), as_it_is);
        }
    }
}
