//! `report`: results as one HTML file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde_json::json;
use wp_base::csv;
use wp_base::plain::Shown as _;
use wp_machine::host::{Existing, Shape, output, text};
use wp_machine::results::{ENGINE, NoResult, find, sha256};
use wp_papers::claims::{Claims, Reasons};
use wp_report::document::{self, DocumentError};
use wp_report::page::{Input, Lang, Paper, Rated, Rule, Run, RunClaim, page};

use crate::output::{Exit, Out, path};
use crate::outputs;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath report results/latest\n\
    \x20 writepath report results/reproduce-ext4-fsync/0123456789ab --out ext4.html --lang ko")]
pub struct Args {
    /// Result folders of `run`, `reproduce` or experiments
    ///
    /// Each of these commands prints the name of its result folder.
    #[arg(required = true, value_name = "RESULT_DIR")]
    results: Vec<PathBuf>,
    /// HTML file; replaces only an earlier report
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Language of the page: en or ko
    #[arg(long, value_name = "LANG", default_value = "en")]
    lang: String,
}

/// Why results make no page.
pub enum Refusal {
    /// A file of the host.
    Host(PathBuf, std::io::Error),
    /// A folder or file that is none of ours, or was changed.
    Result(PathBuf, String, &'static str),
    /// No result, in words.
    None(String),
}

impl Refusal {
    /// Tells it.
    pub fn tell(&self, out: &Out) -> ExitCode {
        match self {
            Refusal::Host(path, e) => out.host_error(path, e),
            Refusal::Result(path, what, help) => {
                let message = format!("{}: {what}", path.shown());
                out.fail(Exit::Usage, "results", &message, help)
            }
            Refusal::None(why) => out.fail(Exit::Usage, "results", why, NAMES),
        }
    }
}

const NAMES: &str = "name a result folder, such as results/reproduce-ext4-fsync/0123456789ab";
const AGAIN: &str = "run the command again; do not edit results";

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let Some(lang) = Lang::of(&a.lang) else {
        let known: Vec<&str> = Lang::ALL.iter().map(|l| l.code()).collect();
        let message = format!("--lang {}: no such language", a.lang);
        return out.fail(Exit::Usage, "lang", &message, &format!("one of {}", known.join(", ")));
    };
    let how = (Shape::Text, is_page(&a.out));
    let file = match outputs::forced(&a.out, how, "--out FILE names a new file", out) {
        Ok(file) => file,
        Err(code) => return code,
    };
    let input = match input(&a.results) {
        Ok(input) => input,
        Err(refusal) => return refusal.tell(out),
    };
    let page = page(&input, lang);
    if let Err(code) = outputs::finish(file, page.as_bytes(), out) {
        return code;
    }
    let document = json!({
        "schema": "writepath.report/1", "file": path(&a.out), "lang": lang.code(),
        "bytes": page.len(), "sha256": sha256(page.as_bytes()),
        "results": input.papers.len() + input.runs.len(),
        "papers": input.papers.iter().map(|p| &p.slug).collect::<Vec<_>>(),
        "runs": input.runs.iter().map(|r| &r.name).collect::<Vec<_>>(),
    });
    let line = format!(
        "{}: {} papers, {} runs, {} KiB\n",
        a.out.shown(),
        input.papers.len(),
        input.runs.len(),
        page.len().div_ceil(1024)
    );
    out.result(&document, &line)
}

/// Everything that folders of results hold, for a page.
pub fn input(dirs: &[PathBuf]) -> Result<Input, Refusal> {
    let claims = Claims::fixed();
    let needs = wp_papers::perturb::needs::Pins::committed();
    let rules = claims.iter().map(|c| Rule {
        paper: c.paper.clone(),
        id: c.id.clone(),
        rule: c.rule.clone().unwrap_or_default(),
        null: c.null.clone().unwrap_or_default(),
        needs: needs.of(&c.paper, &c.id),
    });
    let mut input = Input {
        rules: rules.collect(),
        reasons: Reasons::committed().pairs().to_vec(),
        version: ENGINE.to_owned(),
        ..Input::default()
    };
    for dir in dirs {
        let dir = find(dir).map_err(|e| match e {
            NoResult::Host(path, e) if e.kind() != std::io::ErrorKind::NotFound => {
                Refusal::Host(path, e)
            }
            e => Refusal::None(e.to_string()),
        })?;
        match Results::open(&dir)?.read()? {
            Found::Paper(paper) => input.papers.push(paper),
            Found::Run(run) => input.runs.push(run),
        }
    }
    Ok(input)
}

/// Is a file a page that this program has made?
fn is_page(path: &Path) -> bool {
    const HEAD: u64 = 1024;
    let mut head = Vec::new();
    let is_file = std::fs::metadata(path).is_ok_and(|m| m.is_file());
    let read = is_file.then(|| File::open(path).and_then(|f| f.take(HEAD).read_to_end(&mut head)));
    matches!(read, Some(Ok(_))) && String::from_utf8_lossy(&head).contains("<title>Writepath: ")
}

/// Writes a page into a folder of results, whole or not at all.
pub fn write(path: &Path, page: &str) -> Result<(), Refusal> {
    let host = |e| Refusal::Host(path.to_owned(), e);
    output::write(path, page.as_bytes(), Existing::Replace).map_err(host)
}

enum Found {
    Paper(Paper),
    Run(Run),
}

/// A folder of results whose files are as they were written.
struct Results {
    dir: PathBuf,
    hashes: BTreeMap<String, String>,
}

impl Results {
    fn open(dir: &Path) -> Result<Results, Refusal> {
        let path = dir.join("MANIFEST.json");
        let text = text::bytes(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                Refusal::Result(dir.to_owned(), "not a result folder".to_owned(), NAMES)
            }
            _ => Refusal::Host(path.clone(), e),
        })?;
        let hashes = serde_json::from_slice(&text)
            .map_err(|e| Refusal::Result(path, format!("not a list of hashes: {e}"), AGAIN))?;
        Ok(Results { dir: dir.to_owned(), hashes })
    }

    /// A file that the results name. `None`: they name no such file.
    fn file(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(hash) = self.hashes.get(name) else { return Ok(None) };
        let path = self.dir.join(name);
        let bytes = text::at_most(&path, text::LIST_BYTES_MAX)
            .map_err(|e| Refusal::Host(path.clone(), e))?;
        if sha256(&bytes) != *hash {
            let what = "changed after the run (MANIFEST.json has another hash)";
            return Err(Refusal::Result(path, what.to_owned(), AGAIN));
        }
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|e| Refusal::Result(path, format!("not UTF-8 text: {e}"), AGAIN))
    }

    /// What is wrong in a document that the results name.
    fn wrong(&self, name: &str, e: &DocumentError) -> Refusal {
        Refusal::Result(self.dir.join(name), e.to_string(), AGAIN)
    }

    /// A document that the results name. `None`: they name no such file.
    fn document<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let text = self.file(name)?;
        let read = text.map(|text| document::read(&text)).transpose();
        read.map_err(|e| self.wrong(name, &e))
    }

    /// Name of the folder, and of the one that it is in.
    fn names(&self) -> (String, String) {
        let dir = std::fs::canonicalize(&self.dir).unwrap_or_else(|_| self.dir.clone());
        let name = |p: Option<&std::ffi::OsStr>| {
            p.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
        };
        (name(dir.file_name()), name(dir.parent().and_then(Path::file_name)))
    }

    fn read(&self) -> Result<Found, Refusal> {
        let resolved = self.file("resolved.toml")?.unwrap_or_default();
        let (hash, name) = self.names();
        // An experiment has claims, too; what the command printed only a paper's results have.
        let (claims, wrong) = (self.file("claims.json")?, |e| self.wrong("claims.json", &e));
        if let (Some(claims), Some(text)) = (&claims, self.file("tables.txt")?) {
            let digest = self.hashes.get("claims.json").cloned().unwrap_or_default();
            let asked = Asked::read(&resolved)
                .map_err(|e| Refusal::Result(self.dir.join("resolved.toml"), e, AGAIN))?;
            let found = wp_papers::results::Results::read(&asked.paper, claims).map_err(wrong)?;
            return Ok(Found::Paper(Paper {
                command: asked.command(),
                results: Rc::new(found),
                is_quick: asked.quick,
                slug: asked.paper,
                text,
                resolved,
                hash,
                digest,
            }));
        }
        let Some(summary) = self.document("summary.json")? else {
            let what = "summary.json is missing, and so is tables.txt or claims.json".to_owned();
            return Err(Refusal::Result(self.dir.clone(), what, NAMES));
        };
        let points = match self.file("points.csv")? {
            Some(text) => Some(points(&text).map_err(|(line, what)| {
                let path =
                    PathBuf::from(format!("{}:{line}", self.dir.join("points.csv").display()));
                Refusal::Result(path, what, AGAIN)
            })?),
            None => None,
        };
        let claims = claims.map(|text| RunClaim::read(&text)).transpose().map_err(wrong)?;
        let claims = claims.unwrap_or_default();
        let fio = self.document(wp_machine::workload::fio::REPORT)?;
        let rated = rated(&resolved);
        Ok(Found::Run(Run { name, hash, resolved, summary, points, claims, fio, rated }))
    }
}

/// What the drive of a run is rated at, by its `resolved.toml`; with replaced numbers it is
/// another.
fn rated(resolved: &str) -> Vec<Rated> {
    let table: toml::Table = resolved.parse().unwrap_or_default();
    let device = table.get("device").and_then(toml::Value::as_table);
    let name = device.filter(|d| d.len() == 1).and_then(|d| d.get("name"));
    let entry = name.and_then(toml::Value::as_str).and_then(wp_device::find);
    let of = |r: &wp_device::Rated| Rated {
        job: r.test.to_owned(),
        value: r.value,
        unit: r.unit.to_owned(),
    };
    entry.map_or(Vec::new(), |e| e.rated.iter().map(of).collect())
}

/// What `reproduce` was asked for.
#[derive(serde::Deserialize)]
struct Asked {
    paper: String,
    seed: u64,
    quick: bool,
    #[serde(default)]
    crash: u64,
}

impl Asked {
    fn read(text: &str) -> Result<Asked, String> {
        toml::from_str(text).map_err(|e| format!("the settings of the run cannot be read: {e}"))
    }

    /// The command that asks for it.
    fn command(&self) -> String {
        let mut out = format!("writepath reproduce {} --seed {}", self.paper, self.seed);
        if self.quick {
            out.push_str(" --quick");
        }
        if self.crash > 0 {
            out.push_str(&format!(" --crash {}", self.crash));
        }
        out
    }
}

/// Heads and rows of a CSV file.
type Rows = (Vec<String>, Vec<Vec<String>>);

/// Reads CSV with quoted fields, each row as long as the head. Errors: line and what is wrong.
fn points(text: &str) -> Result<Rows, (usize, String)> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let (mut row, mut field) = (Vec::new(), String::new());
    let (mut line, mut quoted) = (1, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(csv::text(&std::mem::take(&mut field)).to_owned()),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(csv::text(&std::mem::take(&mut field)).to_owned());
                end_row(&mut rows, std::mem::take(&mut row), line)?;
                line += 1;
            }
            c => {
                line += usize::from(c == '\n');
                field.push(c);
            }
        }
    }
    if quoted {
        return Err((line, "a quote is not closed".to_owned()));
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(csv::text(&field).to_owned());
        end_row(&mut rows, row, line)?;
    }
    if rows.is_empty() {
        return Err((1, "it is empty".to_owned()));
    }
    let heads = rows.remove(0);
    Ok((heads, rows))
}

fn end_row(
    rows: &mut Vec<Vec<String>>,
    row: Vec<String>,
    line: usize,
) -> Result<(), (usize, String)> {
    if row.len() == 1 && row[0].is_empty() {
        return Ok(());
    }
    if let Some(heads) = rows.first()
        && heads.len() != row.len()
    {
        return Err((line, format!("{} fields, but the header has {}", row.len(), heads.len())));
    }
    rows.push(row);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_quoted_and_rows_are_as_long_as_the_head() {
        let (heads, rows) = points("a,\"b, c\"\r\n1,\"x \"\"y\"\"\n\"\n\n2,3").expect("it is CSV");
        assert_eq!(heads, ["a", "b, c"]);
        assert_eq!(rows, [["1", "x \"y\"\n"], ["2", "3"]]);
        assert_eq!(points("a,b\n1\n").expect_err("too short").0, 2);
        assert_eq!(points("a\n\"1\n").expect_err("open").0, 3);
        assert_eq!(points("").expect_err("nothing").0, 1);
    }

    #[test]
    fn a_command_asks_for_what_its_results_say() {
        let of = |text: &str| Asked::read(text).map(|a| a.command());
        let text =
            "schema = \"writepath/1\"\npaper = \"f2fs-oprw\"\nseed = 7\nquick = true\ncrash = 9\n";
        assert_eq!(
            of(text).as_deref(),
            Ok("writepath reproduce f2fs-oprw --seed 7 --quick --crash 9")
        );
        assert!(of("seed = 1").is_err());
    }
}
