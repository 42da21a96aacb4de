//! Pinned outcomes: `papers/matrix.toml` says what each combination of the quick matrix comes to,
//! so that a change of one is a reviewed diff.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use wp_base::plain::Shown as _;

use super::Cell;

/// What the file says about itself; kept when it is rewritten.
const HEAD: &str = "\
# The result of each combination of `writepath matrix --quick`: `clean`, the rules that power
# failures break with the known bugs that explain them, or why it is refused. Compared by the tests;
# rewritten by a run with WRITEPATH_BLESS=1 and WRITEPATH_WHOLE=1.

[quick]
";

/// The file.
#[derive(serde::Deserialize)]
struct Pins {
    quick: BTreeMap<String, String>,
}

/// Reads the pins. Errors: the host's, or text that is none, with the place.
pub fn read(file: &Path) -> Result<BTreeMap<String, String>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", file.shown());
    let text = std::fs::read_to_string(file).map_err(|e| at(&e))?;
    toml::from_str(&text).map(|p: Pins| p.quick).map_err(|e| at(&e))
}

/// Cells whose outcome is not the pinned one: name, pinned (`nothing` of a new one), now.
pub fn compare(pins: &BTreeMap<String, String>, cells: &[Cell]) -> Vec<(String, String, String)> {
    let pinned = |c: &Cell| pins.get(&c.name).cloned().unwrap_or_else(|| "nothing".to_owned());
    let both = cells.iter().map(|c| (c.name.clone(), pinned(c), c.outcome()));
    both.filter(|(_, pinned, now)| pinned != now).collect()
}

/// The file for these cells.
pub fn to_toml(cells: &[Cell]) -> String {
    let mut text = HEAD.to_owned();
    for c in cells {
        writeln!(text, "{:?} = {:?}", c.name, c.outcome()).expect("a string takes it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_changed_or_is_new_is_told_with_both_outcomes() {
        let cell = |name: &str, refused: &str| Cell {
            name: name.to_owned(),
            refused: Some(refused.to_owned()),
            speeds: Vec::new(),
            verdict: None,
        };
        let old = [cell("a", "x"), cell("b", "\"y\"")];
        let pins: Pins = toml::from_str(&to_toml(&old)).expect("our own file");
        assert!(compare(&pins.quick, &old).is_empty());
        let now = [cell("a", "x"), cell("b", "z"), cell("c", "w")];
        let told = compare(&pins.quick, &now);
        let of = |name: &str, was: &str, is: &str| (name.to_owned(), was.to_owned(), is.to_owned());
        let expected = [of("b", "refused: \"y\"", "refused: z"), of("c", "nothing", "refused: w")];
        assert_eq!(told, expected);
    }
}
