//! What a package has beside the program: manual pages that render, completions that the shell
//! takes.

use std::io::{Seek, Write};
use std::process::{Command, Output, Stdio};

use wp_machine::testing::skipped;

fn writepath(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_writepath")).args(args).output().expect("it was built")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// What a program says of `input`: its exit and both of its streams; `None` if it is not there.
fn ask(program: &str, args: &[&str], input: &str) -> Option<(bool, String, String)> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(input.as_bytes()).expect("written");
    file.rewind().expect("at its beginning");
    let Ok(done) = Command::new(program).args(args).stdin(Stdio::from(file)).output() else {
        skipped(&format!("packaging: {program}"), "not installed");
        return None;
    };
    let lossy = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Some((done.status.success(), lossy(&done.stdout), lossy(&done.stderr)))
}

#[test]
fn completions_are_scripts_of_their_shells_and_know_every_verb() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = text(&writepath(&["completions", shell]));
        for word in ["reproduce", "inspect", "completions", "elevator"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        if let Some((ok, _, said)) = ask(shell, &[check], &script) {
            assert!(ok && said.is_empty(), "{shell}: {said}");
        }
    }
    for shell in ["elvish", "powershell"] {
        assert!(text(&writepath(&["completions", shell])).contains("reproduce"));
    }
    let unknown = writepath(&["completions", "cmd.exe"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn bash_completes_verbs_and_options() {
    let script = text(&writepath(&["completions", "bash"]));
    let asked = |words: &str| {
        let count = words.split(' ').count() - 1;
        format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={count}\nword=${{COMP_WORDS[COMP_CWORD]}}\n\
             _writepath writepath \"$word\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\"\n"
        )
    };
    let Some((ok, verbs, said)) = ask("bash", &[], &asked("writepath exp")) else { return };
    assert!(ok, "{said}");
    assert_eq!(verbs.trim(), "explain");
    let (_, options, _) = ask("bash", &[], &asked("writepath run --elev")).expect("it is there");
    assert_eq!(options.trim(), "--elevator");
}

#[test]
fn every_manual_page_renders_without_a_warning() {
    let scratch = tempfile::tempdir().expect("a folder");
    let out = scratch.path().join("man");
    let said = text(&writepath(&["man", "--out", out.to_str().expect("text")]));
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .expect("a folder")
        .map(|e| e.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert!(said.contains(&format!("{} pages", names.len())), "{said}");
    for name in ["writepath.1", "writepath-run.1", "writepath-kernels-waits.1"] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
    }
    for name in &names {
        let roff = std::fs::read_to_string(out.join(name)).expect("text");
        assert!(roff.contains(".SH NAME") && roff.contains(".SH SYNOPSIS"), "{name}");
        let Some((ok, page, said)) =
            ask("groff", &["-man", "-ww", "-Tutf8", "-k", "-P-cbou"], &roff)
        else {
            return;
        };
        assert!(ok && said.is_empty(), "{name}: {said}");
        assert!(page.contains("SYNOPSIS") && page.lines().count() > 10, "{name}: {page}");
    }
}

#[test]
fn one_page_goes_to_the_terminal() {
    let page = text(&writepath(&["man", "crash"]));
    assert!(page.contains("writepath\\-crash") && page.contains("faulty\\-plp"), "{page}");
    assert_eq!(text(&writepath(&["man", "kernels", "waits"])).matches(".TH").count(), 1);
    let unknown = writepath(&["man", "crush"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no verb `crush`"));
}
