//! The documentation works as written: commands print what stands there, tables are what the
//! program prints, links lead somewhere, and both READMEs have the same commands.
//!
//! A page's conventions stand at the head of `pages.rs`; docs/README.md tells them to writers.

mod generated;
mod links;
mod pages;
mod play;
mod recording;

use std::collections::BTreeSet;
use std::sync::Mutex;

use pages::{blocks, commands, pages};

/// Pages that are played at the same time.
const PLAYERS: usize = 2;

#[test]
fn what_the_pages_have_you_type_prints_what_stands_there() {
    let all = pages();
    let next = Mutex::new(all.iter());
    let wrong = Mutex::new(Vec::new());
    let played = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                loop {
                    let Some(page) = next.lock().expect("no panic").next() else { break };
                    let outcome = play::page(page);
                    *played.lock().expect("no panic") += outcome.steps;
                    wrong.lock().expect("no panic").extend(outcome.wrong);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let played = played.into_inner().expect("no panic");
    assert!(played > 40, "only {played} steps were run");
}

#[test]
fn tables_of_the_pages_are_what_the_program_prints() {
    let wrong: Vec<String> = pages().iter().flat_map(generated::check).collect();
    assert!(wrong.is_empty(), "{}\nWRITEPATH_BLESS=1 rewrites them", wrong.join("\n\n"));
}

#[test]
fn code_that_a_page_quotes_stands_in_its_file() {
    let wrong: Vec<String> = pages().iter().flat_map(generated::check_quotes).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let all = pages();
    let wrong: Vec<String> = all.iter().flat_map(|page| links::check(page, &all)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_list_of_pages() {
    let all = pages();
    let index = all.iter().find(|p| p.path == "docs/README.md").expect("the list");
    let listed: BTreeSet<String> = links::targets(index).into_iter().map(|t| t.path).collect();
    for page in all.iter().filter(|p| p.path.starts_with("docs/") && p.path != index.path) {
        assert!(listed.contains(&page.path), "docs/README.md has no link to {}", page.path);
    }
}

/// What a README has its reader type, without the remarks behind it.
fn typed(path: &str) -> BTreeSet<String> {
    let page = pages().into_iter().find(|p| p.path == path).expect("a README");
    blocks(&page)
        .iter()
        .flat_map(commands)
        .map(|(_, line)| line.split(" #").next().expect("a first part").trim().to_owned())
        .collect()
}

#[test]
fn the_korean_readme_has_the_commands_of_the_english_one() {
    let (english, korean) = (typed("README.md"), typed("README.ko.md"));
    assert!(english.len() > 4, "{english:?}");
    let missing: Vec<_> = english.difference(&korean).collect();
    let alone: Vec<_> = korean.difference(&english).collect();
    assert!(missing.is_empty() && alone.is_empty(), "missing {missing:#?}, alone {alone:#?}");
}
