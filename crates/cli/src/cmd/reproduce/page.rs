//! The pages that `reproduce` leaves: what there is of this kind of run, in each language.

use std::path::PathBuf;

use wp_base::plain::Shown as _;
use wp_report::page::{Lang, page};

use super::{Args, PAPERS, kept};
use crate::cmd::report::{self, Refusal};
use crate::output::Out;

/// Name of the page in a language.
fn file(lang: Lang) -> &'static str {
    match lang {
        Lang::En => "report.html",
        Lang::Ko => "report.ko.html",
    }
}

/// Writes them into the folder of results, from what this program has found and kept there for the
/// same question, whichever papers were named now. A line that says where; nothing kept: no page
/// and no line.
pub fn write(a: &Args) -> Result<String, Refusal> {
    let program = kept::program().map_err(|e| Refusal::Host("this program".into(), e))?;
    let dirs: Vec<PathBuf> = PAPERS
        .iter()
        .filter_map(|p| kept::find(&a.out, p.slug, &p.resolved(a), &program))
        .map(|kept| kept.folder)
        .collect();
    if dirs.is_empty() {
        return Ok(String::new());
    }
    let mut input = report::input(&dirs)?;
    let mut names = Vec::new();
    for lang in Lang::ALL {
        let other = Lang::ALL.into_iter().find(|l| *l != lang).map(file);
        input.other = other.map(str::to_owned);
        let path = a.out.join(file(lang));
        report::write(&path, &page(&input, lang))?;
        names.push(path.shown());
    }
    Ok(format!("report: {}", names.join(", ")))
}

/// Writes them, and says where. Errors: the exit code; the error is already reported.
pub fn write_and_say(a: &Args, out: &Out) -> Result<(), std::process::ExitCode> {
    let line = write(a).map_err(|refusal| refusal.tell(out))?;
    out.note(&line);
    Ok(())
}
