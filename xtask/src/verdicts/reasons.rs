//! Reasons of known differences: one line an image, its name, white space and the reason.

use std::collections::BTreeMap;
use std::path::Path;

/// Reads the list. Errors: an unreadable file, a line without a reason, an image twice.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text).map_err(|e| format!("{}:{e}", path.display()))
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut out = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, reason) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| format!("{number}: an image without a reason"))?;
        if out.insert(name.to_owned(), reason.trim().to_owned()).is_some() {
            return Err(format!("{number}: {name} is in the list already"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_reason_for_each() {
        let all = parse("# comment\n\na/image.gz   because of it\n").expect("a list");
        assert_eq!(all.get("a/image.gz").map(String::as_str), Some("because of it"));
        assert_eq!(parse("a\n"), Err("1: an image without a reason".to_owned()));
        assert_eq!(parse("a x\na y\n"), Err("2: a is in the list already".to_owned()));
    }
}
