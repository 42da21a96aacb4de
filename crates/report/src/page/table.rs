//! A table of numbers or words.

use super::claim::Remark;
use super::figure::field;
use super::html::{Attrs, Html, data_address};
use super::words::{self, Lang};

/// Characters of a row of a table that has room beside another one.
const NARROW: usize = 66;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its name in addresses, unique on the page; and of the file that it is saved as.
    pub id: String,
    /// What the paper calls it, with the place; may be empty.
    pub number: String,
    /// What it shows.
    pub title: String,
    /// What one should know to read it.
    pub caption: String,
    /// Heads of the columns.
    pub heads: Vec<String>,
    /// Rows, each as long as the heads.
    pub rows: Vec<Vec<Cell>>,
    /// Beginnings of ids of claims that are about it.
    pub claims: Vec<String>,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Is it a number? Numbers stand at the right.
    pub is_number: bool,
    /// Class of the style sheet; may be empty.
    pub class: &'static str,
    /// How dark it is, from 0 to 1, where the table is a map of numbers.
    pub heat: Option<f64>,
    /// What is told when pointed at.
    pub tip: String,
    /// Its attributes of language, if that is not the page's.
    pub tongue: Attrs<'static>,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A remark, on a page in a language.
    pub fn remark(said: &Remark, page: Lang) -> Cell {
        Cell { tongue: said.attrs(page), ..Cell::text(&said.text) }
    }

    /// A number, as it shall stand there.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), is_number: true, ..Cell::default() }
    }

    /// The same with a class.
    pub fn class(self, class: &'static str) -> Cell {
        Cell { class, ..self }
    }
}

impl Table {
    /// A table without rows.
    pub fn new(id: &str, number: String, title: String, heads: &[&str]) -> Table {
        let heads = heads.iter().map(|h| (*h).to_owned()).collect();
        Table { id: id.to_owned(), number, title, heads, ..Table::default() }
    }

    /// As CSV.
    pub fn csv(&self) -> String {
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let mut out = line(self.heads.iter().map(|h| field(h)).collect());
        for row in &self.rows {
            // As programs read numbers: no spaces between digits.
            let plain = |c: &Cell| field(&c.text.replace('\u{202f}', "").replace('−', "-"));
            out.push_str(&line(row.iter().map(plain).collect()));
        }
        out
    }

    /// Has it room beside another one?
    pub fn is_narrow(&self) -> bool {
        let width = |row: &Vec<Cell>| row.iter().map(|c| c.text.chars().count() + 2).sum::<usize>();
        let heads: usize = self.heads.iter().map(|h| h.chars().count().min(24) + 2).sum();
        self.rows.iter().map(width).max().unwrap_or(0).max(heads) <= NARROW
    }

    /// Is the column one of numbers?
    fn is_number(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|r| r.get(column)).peekable();
        cells.peek().is_some() && cells.all(|c| c.is_number || c.text.is_empty())
    }

    /// The table itself.
    pub fn draw(&self, h: &mut Html) {
        h.el("div", &[("class", "scroll"), ("tabindex", "0")], |h| {
            h.el("table", &[("class", "data")], |h| {
                h.el("thead", &[], |h| {
                    h.el("tr", &[], |h| {
                        for (n, head) in self.heads.iter().enumerate() {
                            let class = if self.is_number(n) { "num" } else { "" };
                            h.leaf("th", &[("class", class), ("scope", "col")], head);
                        }
                    });
                });
                h.el("tbody", &[], |h| {
                    for row in &self.rows {
                        h.el("tr", &[], |h| row.iter().for_each(|c| c.draw(h)));
                        h.line();
                    }
                });
            });
        });
    }

    /// The link that saves it.
    pub fn link(&self, lang: Lang, h: &mut Html) {
        let address = data_address("text/csv", &self.csv());
        let name = format!("{}.csv", self.id);
        let attrs = [("class", "save"), ("href", address.as_str()), ("download", &name)];
        h.leaf("a", &attrs, words::CSV.of(lang));
    }
}

impl Cell {
    fn draw(&self, h: &mut Html) {
        let class = match (self.is_number, self.class) {
            (true, "") => "num".to_owned(),
            (true, class) => format!("num {class}"),
            (false, class) => class.to_owned(),
        };
        let style = self.heat.map(|v| format!("--h:{:.2}", v.clamp(0.0, 1.0)));
        let mut attrs = self.tongue.to_vec();
        let class = if self.heat.is_some() { format!("{class} heat") } else { class };
        if !class.is_empty() {
            attrs.push(("class", class.as_str()));
        }
        if let Some(style) = &style {
            attrs.push(("style", style));
        }
        if !self.tip.is_empty() {
            attrs.push(("title", &self.tip));
        }
        h.leaf("td", &attrs, &self.text);
    }
}
