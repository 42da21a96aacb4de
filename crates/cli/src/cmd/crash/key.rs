//! What the findings of a campaign depend on: the key of its `--state-file`.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wp_campaign::{Source, line};
use wp_machine::host::program;

use super::setup::Exploration;

/// Bytes of a digest that a key shows: 64 bits tell two files of one user apart.
const SHOWN: usize = 8;

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(SHOWN).map(|b| format!("{b:02x}")).collect()
}

/// The same of a file, of any size. Errors: the host's.
fn digest_of(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    Ok(hash.finalize().iter().take(SHOWN).map(|b| format!("{b:02x}")).collect())
}

/// All that the findings depend on, and nothing else.
///
/// `is_resumed`: a later run has to know whether the user's command has changed.
pub(super) fn key(x: &Exploration, is_resumed: bool) -> String {
    let c = &x.campaign;
    let mut t = format!("{}{} {}", x.programs.quoted(), x.generator(), line::arguments(c));
    t += &format!(
        " --first {} --end {} --complete {} --samples {} --mounts {}",
        c.programs.0, c.programs.1, c.plan.complete, c.plan.samples, c.mounts
    );
    if c.plan.most < u64::MAX {
        t += &format!(" --max-states {}", c.plan.most);
    }
    if c.after_acks > 0 {
        t += &format!(" --after-acks {}", c.after_acks);
    }
    for (on, flag) in [(!c.check, " --no-check"), (!c.prune, " --no-prune")] {
        t += if on { flag } else { "" };
    }
    if let Source::Text(program) = &c.source {
        t += &format!(" program {}", digest(program.to_string().as_bytes()));
    }
    if let Source::Lives(lives) = &c.source {
        let whole: String = (0..lives.count()).map(|n| lives.whole(n).0.to_string()).collect();
        t += &format!(" program {}", digest(whole.as_bytes()));
    }
    if let Source::Threads(all) = &c.source {
        let whole: String = all.programs().iter().map(ToString::to_string).collect();
        t += &format!(" interleavings {}", digest(whole.as_bytes()));
    }
    if let Source::Log(run) = &c.source {
        for path in std::iter::once(&run.file().path).chain(&run.file().base) {
            t += &format!(" file {}", digest_of(path).unwrap_or_else(|e| e.to_string()));
        }
        t += if run.file().acks { " --marks" } else { "" };
    }
    for (entry, here) in c.known.entries() {
        t += &format!(" known {} {here}", digest(format!("{entry:?}").as_bytes()));
    }
    if let Some(check) = &x.setup.check {
        t += &check.key();
        // What it names is read only where that says something.
        let files = if is_resumed { files_of(&check.line) } else { Vec::new() };
        for (word, path) in files {
            let held = digest_of(&path).unwrap_or_else(|e| e.to_string());
            t += &format!(" {word}={held}");
        }
    }
    t
}

/// The files that a command of the shell names: words of it that are files here, or commands that
/// `PATH` finds.
fn files_of(command: &str) -> Vec<(String, PathBuf)> {
    let is_separator = |c: char| c.is_whitespace() || "'\"`;|&()<>=$".contains(c);
    let mut words: Vec<&str> = command.split(is_separator).filter(|w| !w.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |word: &str| {
        let here = Path::new(word).to_owned();
        let in_path = || std::env::split_paths(&path).map(|dir| dir.join(word));
        let named = word.contains('/');
        let mut all = std::iter::once(here).chain(in_path().filter(|_| !named));
        all.find(|p| p.is_file())
    };
    words.into_iter().filter_map(|w| Some((w.to_owned(), found(w)?))).collect()
}

/// Which build of this program it is: results of two need not be the same.
pub(super) fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match program::hash() {
        Ok(hash) => format!("{version} {hash}"),
        // Of a build that cannot be read nobody knows whether it is another.
        Err(e) => format!("{version} {e} {}", std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_command_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("check.sh");
        std::fs::write(&script, "exit 0").expect("written");
        let line = format!("sh '{}' | cat; nothing-of-the-kind", script.display());
        let found: Vec<String> = files_of(&line).into_iter().map(|(w, _)| w).collect();
        let script = script.display().to_string();
        assert!(found.contains(&script), "{found:?}");
        assert!(found.contains(&"sh".to_owned()) && found.contains(&"cat".to_owned()));
        assert!(!found.iter().any(|w| w.starts_with("nothing")), "{found:?}");
    }
}
