//! What a recovery leaves, file by file: what the guest's kernel lists, and what our own recovery
//! of the same state makes of it.

use std::collections::BTreeMap;

use wp_base::Sector;
use wp_medium::{Medium, MediumView, Overlay, View};
use wp_vfs::{FileType, FsEntry, Options, SurveyedFile, TimeSpec};

/// Files by path; of each what is compared, in words: kind, mode, user, group, links, length,
/// modification time (but of directories), digest of the contents, target of a symbolic link.
pub type Tree = BTreeMap<String, String>;

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 16;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// What our recovery makes of a state on a device of `bytes` bytes. Errors: what the mount would
/// answer; a file that cannot be read.
pub fn tree_of(
    (entry, options): (&FsEntry, &Options),
    medium: &Medium,
    bytes: u64,
) -> Result<Tree, String> {
    let view = MediumView { medium: medium.clone(), start: Sector(0), bytes };
    let overlay = Overlay::new(&view);
    let survey = (entry.survey)(&overlay, options).map_err(|e| e.to_string())?;
    let line = |file: &SurveyedFile| {
        let words = words(file, &overlay).map_err(|e| format!("{}: {e}", file.path))?;
        Ok((escaped(&file.path), words))
    };
    survey.files.iter().map(line).collect()
}

/// As `states.c` lists a file.
fn words(file: &SurveyedFile, view: &dyn View) -> wp_base::FsResult<String> {
    let (kind, has_size) = match file.kind {
        FileType::File => ('f', true),
        FileType::Symlink => ('l', true),
        FileType::Dir => ('d', false),
        FileType::Char => ('c', false),
        FileType::Block => ('b', false),
        FileType::Fifo => ('p', false),
        FileType::Socket => ('s', false),
    };
    let digest = match file.kind {
        FileType::File => digest(file, view)?,
        _ => FNV_OFFSET,
    };
    let (stat, size) = (&file.stat, if has_size { file.size } else { 0 });
    // A directory's is that of the mount where recovery has added or removed a name.
    let mtime = if kind == 'd' { TimeSpec { secs: 0, nanos: 0 } } else { stat.mtime };
    let (user, group) = stat.owner;
    Ok(format!(
        "{kind}\t{:o}\t{user}\t{group}\t{}\t{size}\t{}.{:09}\t{digest:016x}\t{}",
        stat.mode,
        file.nlink,
        mtime.secs,
        mtime.nanos,
        escaped(file.target.as_deref().unwrap_or_default()),
    ))
}

/// FNV-1a over the 64-bit words of the contents, the last one filled with zeroes.
fn digest(file: &SurveyedFile, view: &dyn View) -> wp_base::FsResult<u64> {
    let mut digest = FNV_OFFSET;
    let mut at = 0;
    while at < file.size {
        let mut bytes = vec![0; (file.size - at).min(CHUNK) as usize];
        for run in &file.map {
            let from = run.at.max(at);
            let to = (run.at + run.bytes).min(at + bytes.len() as u64);
            if let Some(part) =
                bytes.get_mut((from - at) as usize..to.max(from) as usize - at as usize)
                && from < to
            {
                view.read_at(run.place + (from - run.at), part)?;
            }
        }
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            digest = (digest ^ u64::from_le_bytes(whole)).wrapping_mul(FNV_PRIME);
        }
        at += CHUNK;
    }
    Ok(digest)
}

/// A name in a line of fields.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\134").replace('\t', "\\011").replace('\n', "\\012")
}

/// Fields of a `file` line of the guest's: the path and the rest. `None`: it is none.
pub(super) fn listed(fields: &[&str]) -> Option<(String, String)> {
    match fields {
        [words @ .., path, target] if words.len() == 8 => {
            Some(((*path).to_owned(), format!("{}\t{target}", words.join("\t"))))
        }
        _ => None,
    }
}
