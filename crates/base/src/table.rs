//! Tables of text: one layout for heads and rows.

use std::fmt::{Display, Write};

/// The columns of a table, as text: `<9`, `>9` and `^9` are columns with their cells at the left,
/// at the right and in the middle, at least nine characters wide; all else stands in each line.
///
/// ```
/// use wp_base::table::Layout;
///
/// let layout = Layout("<6 >5 | >5");
/// assert_eq!(layout.line(&[&"mode", &"files", &"us"]), "mode   files |    us\n");
/// assert_eq!(layout.line(&[&"posix", &12, &format!("{:.1}", 3.14)]), "posix     12 |   3.1\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout(pub &'static str);

impl Layout {
    /// A line of these cells, with its end. Panics if they are not as many as the columns.
    pub fn line(self, cells: &[&dyn Display]) -> String {
        let mut cells = cells.iter();
        let mut out = String::new();
        let mut rest = self.0.chars().peekable();
        while let Some(c) = rest.next() {
            let mut width = None;
            while let Some(digit) = rest.peek().and_then(|d| d.to_digit(10)) {
                if !matches!(c, '<' | '>' | '^') {
                    break;
                }
                width = Some(width.unwrap_or(0) * 10 + digit as usize);
                rest.next();
            }
            let Some(width) = width else {
                out.push(c);
                continue;
            };
            let cell = cells.next().expect("a cell for each column").to_string();
            match c {
                '<' => write!(out, "{cell:<width$}"),
                '>' => write!(out, "{cell:>width$}"),
                _ => write!(out, "{cell:^width$}"),
            }
            .expect("a string takes it");
        }
        assert!(cells.next().is_none(), "more cells than columns: {}", self.0);
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_their_columns_and_cells_are_never_cut() {
        assert_eq!(Layout("<3>3 ^5|").line(&[&"a", &7, &"b"]), "a    7   b  |\n");
        assert_eq!(Layout("<2 <0").line(&[&"long", &""]), "long \n");
        assert_eq!(Layout("a < b: >4").line(&[&"ä"]), "a < b:    ä\n");
    }

    #[test]
    #[should_panic(expected = "more cells than columns")]
    fn a_line_has_a_cell_for_each_column() {
        Layout("<3").line(&[&1, &2]);
    }
}
