//! The results of every paper: one type each, which text, JSON and page are made from, and which
//! reads `claims.json` again.

use serde::Serialize;
use wp_report::claim::Judged;
use wp_report::document::{self, DocumentError};
use wp_report::page::{About, Block, Reproduced, Source, Varied, words};

use crate::page::{conflict, direct, ext4, f2fs, trim};
use crate::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};

/// Results of one of the papers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Results {
    /// Of ext4-fsync.
    Ext4Fsync(Box<ext4_fsync::Results>),
    /// Of f2fs-oprw.
    F2fsOprw(Box<f2fs_oprw::Results>),
    /// Of direct-io.
    DirectIo(Box<direct_io::Results>),
    /// Of inode-trim.
    InodeTrim(Box<inode_trim::Results>),
    /// Of journal-conflict.
    JournalConflict(Box<journal_conflict::Results>),
}

impl Results {
    /// Reads the `claims.json` of a paper, by the paper's slug.
    ///
    /// Errors: no such paper; the first key that is missing or of another type.
    pub fn read(slug: &str, text: &str) -> Result<Results, DocumentError> {
        Ok(match slug {
            ext4_fsync::SLUG => Results::Ext4Fsync(document::read(text)?),
            f2fs_oprw::SLUG => Results::F2fsOprw(document::read(text)?),
            direct_io::SLUG => Results::DirectIo(document::read(text)?),
            inode_trim::SLUG => Results::InodeTrim(document::read(text)?),
            journal_conflict::SLUG => Results::JournalConflict(document::read(text)?),
            _ => {
                let (key, what) = ("papers".to_owned(), format!("no paper called `{slug}`"));
                return Err(DocumentError { key, what });
            }
        })
    }
}

impl Reproduced for Results {
    fn about(&self) -> About {
        let (title, says, setup) = match self {
            Results::Ext4Fsync(_) => (words::EXT4_TITLE, words::EXT4_SAYS, words::EXT4_SETUP),
            Results::F2fsOprw(_) => (words::F2FS_TITLE, words::F2FS_SAYS, words::F2FS_SETUP),
            Results::DirectIo(_) => (words::DIRECT_TITLE, words::DIRECT_SAYS, words::DIRECT_SETUP),
            Results::InodeTrim(_) => (words::TRIM_TITLE, words::TRIM_SAYS, words::TRIM_SETUP),
            Results::JournalConflict(_) => {
                (words::CONFLICT_TITLE, words::CONFLICT_SAYS, words::CONFLICT_SETUP)
            }
        };
        About { title, says, setup }
    }

    fn claims(&self) -> &[Judged] {
        match self {
            Results::Ext4Fsync(r) => &r.claims,
            Results::F2fsOprw(r) => &r.claims,
            Results::DirectIo(r) => &r.claims,
            Results::InodeTrim(r) => &r.claims,
            Results::JournalConflict(r) => &r.claims,
        }
    }

    fn varied(&self) -> Varied {
        let (all, impossible) = match self {
            Results::Ext4Fsync(r) => (r.variations, r.impossible_variations.len()),
            Results::F2fsOprw(r) => (r.variations, r.impossible_variations.len()),
            Results::DirectIo(r) => (r.varied.len(), r.impossible.len()),
            Results::InodeTrim(r) => (r.varied.len(), 0),
            Results::JournalConflict(r) => (r.varied.len(), r.impossible.len()),
        };
        Varied { all, impossible }
    }

    fn blocks(&self, source: &Source<'_>) -> Vec<Block> {
        match self {
            Results::Ext4Fsync(r) => ext4::blocks(source, r),
            Results::F2fsOprw(r) => f2fs::blocks(source, r),
            Results::DirectIo(r) => direct::blocks(source, r),
            Results::InodeTrim(r) => trim::blocks(source, r),
            Results::JournalConflict(r) => conflict::blocks(source, r),
        }
    }
}
