//! A page's commands, run one after the other in one shell and one fresh folder.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use wp_machine::testing::skipped;

use super::pages::{Block, Page, blocks};

/// What came of a page.
pub struct Outcome {
    /// Commands that were run.
    pub steps: usize,
    /// What was not as written, each with its place.
    pub wrong: Vec<String>,
}

/// One command and what is written below it.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
    exit: i32,
}

/// Runs a page.
pub fn page(page: &Page) -> Outcome {
    let with_slow = std::env::var_os("WRITEPATH_SLOW_DOCS").is_some_and(|v| v == "1");
    let found = blocks(page);
    let is = |block: &Block, word: &str| block.info.split(' ').nth(1) == Some(word);
    if !with_slow && found.iter().any(|b| is(b, "slow")) {
        let what = format!("docs: slow steps of {}", page.path);
        skipped(&what, "they take minutes; WRITEPATH_SLOW_DOCS=1 runs them");
    }
    let steps: Vec<Step> = found
        .iter()
        .filter(|b| is(b, "run") || (with_slow && is(b, "slow")))
        .flat_map(steps)
        .collect();
    let files = found.iter().filter_map(|b| {
        let name = b.info.split(' ').find_map(|word| word.strip_prefix("file="))?;
        Some((name, b.lines.join("\n") + "\n"))
    });
    let scratch = tempfile::tempdir().expect("a folder");
    let (folder, told) = (scratch.path().join("page"), scratch.path().join("told"));
    for dir in [&folder, &told] {
        std::fs::create_dir(dir).expect("made");
    }
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("written");
    }
    if !steps.is_empty() {
        shell(&script(&steps), &folder, &told);
    }
    let wrong = steps.iter().enumerate().filter_map(|(n, step)| judge(page, step, n, &told));
    Outcome { steps: steps.len(), wrong: wrong.collect() }
}

fn steps(block: &Block) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for (n, line) in block.lines.iter().enumerate() {
        if goes_on {
            let step = found.last_mut().expect("one goes on");
            step.command.push('\n');
            step.command.push_str(line);
        } else if let Some(command) = line.strip_prefix("$ ") {
            let (line, command) = (block.line + n + 1, command.to_owned());
            found.push(Step { line, command, expected: Vec::new(), exit: 0 });
        } else {
            let step = found.last_mut().expect("a `console` block begins with `$ `");
            match line.strip_prefix("# exit ") {
                Some(code) => step.exit = code.parse().expect("`# exit` and a number"),
                None => step.expected.push(line.clone()),
            }
            continue;
        }
        goes_on = line.ends_with('\\');
    }
    found
}

/// One shell runs all of it, so that a variable of one step serves the next.
fn script(steps: &[Step]) -> String {
    let mut text = String::new();
    for (n, step) in steps.iter().enumerate() {
        let command = &step.command;
        writeln!(text, "{{ {command}\n}} >\"$TOLD/{n}.out\" 2>\"$TOLD/{n}.err\"").expect("text");
        writeln!(text, "echo $? >\"$TOLD/{n}.exit\"").expect("text");
    }
    text
}

/// Runs a script with the program of this build first in the path.
pub fn shell(script: &str, folder: &Path, told: &Path) {
    let binary = Path::new(env!("CARGO_BIN_EXE_writepath"));
    let mut path = binary.parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("TOLD", told)
        .env("LC_ALL", "C")
        .env_remove("WRITEPATH_BLESS")
        .stdin(Stdio::null())
        .status()
        .expect("a shell");
    assert!(status.code().is_some(), "the shell was killed");
}

fn judge(page: &Page, step: &Step, n: usize, told: &Path) -> Option<String> {
    let read = |what: &str| {
        let bytes = std::fs::read(told.join(format!("{n}.{what}"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (read("out"), read("err"));
    let code: i32 = read("exit").trim().parse().unwrap_or(-1);
    // Of what fails, the error is what the reader sees, too.
    let shown = if step.exit == 0 { stdout.clone() } else { format!("{stdout}{stderr}") };
    let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let expected: Vec<&str> = step.expected.iter().map(|l| l.trim_end()).collect();
    if code == step.exit && (expected.is_empty() || lines_fit(&expected, &shown)) {
        return None;
    }
    let (place, command) = (format!("{}:{}", page.path, step.line), &step.command);
    let exit = step.exit;
    Some(format!(
        "{place}: `{command}` ended with {code}, written is {exit}; it printed\n{stdout}{stderr}\
         and written is\n{}",
        expected.join("\n")
    ))
}

/// Do lines fit a pattern? `...` alone stands for any lines, within a line for any characters.
fn lines_fit(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|n| lines_fit(rest, &lines[n..])),
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(l, more)| line_fits(first, l) && lines_fit(rest, more)),
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    let Some((head, tail)) = pattern.split_once("...") else { return pattern == line };
    line.strip_prefix(head).is_some_and(|rest| {
        rest.char_indices().map(|(n, _)| n).chain([rest.len()]).any(|n| line_fits(tail, &rest[n..]))
    })
}

#[test]
fn dots_stand_for_lines_and_for_characters_and_for_nothing_else() {
    assert!(lines_fit(&["a", "...", "d"], &["a", "b", "c", "d"]));
    assert!(lines_fit(&["a", "...", "d"], &["a", "d"]));
    assert!(!lines_fit(&["a", "...", "d"], &["a", "b"]));
    assert!(!lines_fit(&["a"], &["a", "b"]));
    assert!(!lines_fit(&["a", "b"], &["a"]));
    assert!(line_fits("took ... us (...)", "took 12.5 us (all)"));
    assert!(!line_fits("took ... us", "took 12.5 ms"));
    assert!(line_fits("...", ""));
}
