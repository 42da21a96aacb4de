//! Fields of CSV (RFC 4180), which no spreadsheet takes for a formula.

use std::borrow::Cow;

/// What a spreadsheet takes for the beginning of a formula. A sign alone is none.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// A field: quoted where it has to be. Text that begins as a formula (`=`, `+`, `-`, `@`, a tab or
/// a carriage return) gets an apostrophe before it, the mark of text in spreadsheets; a number
/// stays a number.
pub fn field(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(FORMULA) && text.len() > 1 && !is_number(text);
    if !is_formula && !text.contains([',', '"', '\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let mark = if is_formula { "'" } else { "" };
    Cow::Owned(format!("\"{mark}{}\"", text.replace('"', "\"\"")))
}

/// The text of a field that [`field`] wrote, without quotes: the mark of text goes.
pub fn text(field: &str) -> &str {
    field.strip_prefix('\'').filter(|rest| rest.starts_with(FORMULA)).unwrap_or(field)
}

/// Fields as a row, without its end.
pub fn row<T: AsRef<str>>(fields: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for (n, text) in fields.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(&field(text.as_ref()));
    }
    out
}

/// Digits with a sign, a point, an exponent and a per cent sign; neither `-inf` nor `-1+2`.
fn is_number(text: &str) -> bool {
    let text = text.strip_suffix('%').map_or(text, str::trim_end);
    text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_formula_and_numbers_stay_numbers() {
        for same in ["", "a", "1", "-1", "+1.5", "-1e-9", "-3.1 %", "-", "a=b", "쓰", "'x"] {
            assert_eq!(field(same), same);
        }
        for (text, shown) in [
            ("=1+1", "\"'=1+1\""),
            ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""),
            ("-1+2", "\"'-1+2\""),
            ("-inf", "\"'-inf\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\tx", "\"'\tx\""),
            ("\r=1", "\"'\r=1\""),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(field(text), shown, "{text:?}");
            let inner = shown.trim_matches('"').replace("\"\"", "\"");
            assert_eq!(super::text(&inner).trim_end_matches('"'), text.trim_end_matches('"'));
        }
        assert_eq!(row(["a", "=b", "-3"]), "a,\"'=b\",-3");
    }
}
