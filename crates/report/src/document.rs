//! Documents of results: JSON, read once into the type that wrote it.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A key that a document lacks, or that holds something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Where it is, as in `claims[0].band`; `.` is the whole document.
    pub key: String,
    /// What is wrong there, with line and column.
    pub what: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "." => f.write_str(&self.what),
            key => write!(f, "{key}: {}", self.what),
        }
    }
}

impl std::error::Error for DocumentError {}

/// Reads a document.
///
/// Errors: text that is no JSON; the first key that is missing or of another type.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, DocumentError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let whole = |e: serde_json::Error| DocumentError { key: ".".to_owned(), what: e.to_string() };
    let found = serde_path_to_error::deserialize(&mut json).map_err(|e| DocumentError {
        key: e.path().to_string(),
        what: e.into_inner().to_string(),
    })?;
    json.end().map_err(whole)?;
    Ok(found)
}

/// For a value that may be null: its key must be there all the same
/// (`#[serde(deserialize_with = "...")]`; serde alone takes a missing key for null).
pub fn nullable<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        name: String,
        #[serde(deserialize_with = "nullable")]
        share: Option<f64>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Rows {
        rows: Vec<Row>,
    }

    fn wrong(text: &str) -> String {
        read::<Rows>(text).expect_err("something is wrong").to_string()
    }

    #[test]
    fn a_missing_key_and_another_type_are_told_with_their_place() {
        let row = Row { name: "a".to_owned(), share: None };
        assert_eq!(read(r#"{"rows":[{"name":"a","share":null}]}"#), Ok(Rows { rows: vec![row] }));
        let missing = wrong(r#"{"rows":[{"name":"a","share":1},{"name":"b"}]}"#);
        assert!(missing.starts_with("rows[1]: missing field `share` at line 1"), "{missing}");
        let other = wrong(r#"{"rows":[{"name":"a","share":"much"}]}"#);
        assert!(other.starts_with("rows[0].share: invalid type: string \"much\""), "{other}");
        assert!(wrong("{} x").starts_with("missing field `rows`"));
        assert!(wrong("nothing").starts_with("expected ident"));
    }
}
