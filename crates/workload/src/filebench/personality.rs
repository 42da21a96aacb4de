//! The workload models that come with it: our own `.f` files with published parameters.

use std::collections::BTreeMap;

use super::model::Personality;
use super::wml::{WmlFile, parse};

/// A personality that comes with it.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(BuiltIn {
            name: $name,
            text: include_str!(concat!("personalities/", $name, ".f")),
        }),*]
    };
}

/// All of them.
pub static PERSONALITIES: &[BuiltIn] = built_in![
    "varmail",
    "varmail-nodel",
    "fileserver",
    "webserver",
    "oltp",
    "createfiles",
    "randomwrite",
    "filemicro_create",
    "filemicro_createfiles",
    "filemicro_delete",
    "filemicro_writefsync",
    "filemicro_rwritefsync",
    "filemicro_rwritedsync",
];

/// Reads one that comes with it, with other values of its variables. `None`: there is none of that
/// name.
pub fn built_in(name: &str, given: &BTreeMap<String, String>) -> Option<WmlFile> {
    let found = PERSONALITIES.iter().find(|p| p.name == name)?;
    Some(parse(&format!("{name}.f"), found.text.as_bytes(), given))
}

fn ours(name: &str, given: &[(&str, u64)]) -> Personality {
    let given = given.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect();
    let file = built_in(name, &given).expect("it comes with it");
    assert!(!file.has_errors(), "{}", file.rendered());
    file.personality
}

/// The published mail server, with `threads` threads (it has 16).
pub fn varmail(threads: u32) -> Personality {
    ours("varmail", &[("nthreads", threads.into())])
}

/// The mail server without deletions and creations, with `threads` threads.
pub fn varmail_nodel(threads: u32) -> Personality {
    ours("varmail-nodel", &[("nthreads", threads.into())])
}

/// The published file server, with `threads` threads and `files` files (it has 50 and 10,000).
pub fn fileserver(threads: u32, files: u32) -> Personality {
    ours("fileserver", &[("nthreads", threads.into()), ("nfiles", files.into())])
}
