//! What an experiment leaves: `NAME/HASH/` with `resolved.toml`, `inputs/`, `points.csv`,
//! `varied.csv` where claims have intervals, `summary.json`, `claims.json` and `MANIFEST.json`; of
//! a shard `NAME/HASH.shard-I-of-N/` with `rows.json`, from which [`merge`] makes the same bytes as
//! one run of all.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use wp_base::plain::{self, Shown as _};
use wp_machine::host::{folder, text};
use wp_machine::results::{ENGINE, sha256};
use wp_report::claim::Verdict;

use super::claims::{Answered, judge};
use super::table::{self, Row};
use super::{Experiment, Shard, load};

/// Where rows of a shard are.
const ROWS: &str = "rows.json";
/// What points come to; a shard has none.
const SUMMARY: &str = "summary.json";
/// Where the experiment is.
const RESOLVED: &str = "resolved.toml";

/// One hash of inputs, with their names.
pub(super) fn inputs_hash<'a>(inputs: impl Iterator<Item = (&'a String, &'a Vec<u8>)>) -> String {
    let lines: String = inputs.map(|(name, bytes)| format!("{name} {}\n", sha256(bytes))).collect();
    sha256(lines.as_bytes())
}

/// Files of a result, judged and not written yet.
pub struct Ready {
    /// Files by name, with the manifest.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Claims, judged; of a shard none.
    pub claims: Vec<Answered>,
    /// `summary.json`; of a shard how many rows there are.
    pub summary: Value,
    /// Folder below the results' one: `NAME/HASH`.
    pub place: PathBuf,
}

/// A result that was written.
pub struct Written {
    /// Its folder.
    pub dir: PathBuf,
}

impl Ready {
    /// Does a claim differ, or could one not be judged?
    pub fn differs(&self) -> bool {
        let holds =
            |a: &&Answered| matches!(a.judged.verdict, Verdict::Match | Verdict::FollowsFromInputs);
        self.claims.iter().any(|a| !holds(&a))
    }

    /// Writes it below `root`; of a whole experiment lets `latest` lead there. Errors: as
    /// [`folder::write`] and [`folder::link_to`].
    pub fn write(&self, root: &Path) -> io::Result<Written> {
        let dir = root.join(&self.place);
        folder::write(&dir, &self.files)?;
        if self.files.contains_key(SUMMARY) {
            folder::link_to(&dir, "latest")?;
        }
        Ok(Written { dir })
    }

    /// Compares the files with those in a folder: names of the files that differ, with what is
    /// wrong.
    pub fn compare(&self, root: &Path) -> Vec<String> {
        let dir = root.join(&self.place);
        let mut wrong = Vec::new();
        for (name, bytes) in &self.files {
            match std::fs::read(dir.join(name)) {
                Ok(there) if there == *bytes => {}
                Ok(there) => {
                    let at = there.iter().zip(bytes).position(|(a, b)| a != b);
                    let at = at.unwrap_or(there.len().min(bytes.len()));
                    wrong.push(format!("{name}: differs at byte {at}"));
                }
                Err(e) => wrong.push(format!("{name}: {e}")),
            }
        }
        wrong
    }
}

fn pretty(doc: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(doc).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The files of a result, from its rows, in order.
pub fn ready(e: &Experiment, rows: &[Row], shard: Shard) -> Ready {
    let hash =
        sha256(format!("{}\n{}\n{ENGINE}", e.resolved, inputs_hash(e.inputs.iter())).as_bytes());
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    files.insert(RESOLVED.to_owned(), e.resolved.clone().into_bytes());
    let (plain, varied) = rows.split_at(rows.partition_point(|r| r.point < e.points.len()));
    files.insert("points.csv".to_owned(), table::points_csv(&e.sweep, plain).into_bytes());
    if e.varied.is_some() {
        files.insert("varied.csv".to_owned(), table::varied_csv(e, varied).into_bytes());
    }
    files.extend(e.inputs.iter().map(|(name, bytes)| (name.clone(), bytes.clone())));
    let mut claims = Vec::new();
    let mut folder = hash[..12].to_owned();
    let summary;
    if shard == Shard::WHOLE {
        claims.extend(e.claims.iter().map(|said| judge(said, e, rows)));
        summary = table::summary(&e.name, &e.sweep, e.seeds(), plain);
        files.insert(SUMMARY.to_owned(), pretty(&summary));
        let mut doc = json!({ "schema": "writepath.claims/1", "claims": claims });
        if let Some(v) = &e.varied {
            doc["variations"] = json!({ "names": v.names, "impossible": v.impossible });
        }
        files.insert("claims.json".to_owned(), pretty(&doc));
    } else {
        let mut doc = table::rows_json(rows);
        doc["shard"] = json!([shard.index, shard.of]);
        files.insert(ROWS.to_owned(), pretty(&doc));
        folder = format!("{folder}.shard-{}-of-{}", shard.index, shard.of);
        summary = json!({
            "schema": "writepath.shard/1", "name": e.name, "rows": rows.len(),
            "shard": [shard.index, shard.of],
        });
    }
    let manifest: BTreeMap<&String, String> =
        files.iter().map(|(name, bytes)| (name, sha256(bytes))).collect();
    files.insert(folder::MANIFEST.to_owned(), pretty(&json!(manifest)));
    Ready { files, claims, summary, place: PathBuf::from(&e.name).join(folder) }
}

/// Why shards cannot be put together.
#[derive(Debug)]
pub enum MergeError {
    /// The host's, about a file.
    Host(PathBuf, io::Error),
    /// What is wrong.
    Wrong(String),
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::Host(path, e) => write!(f, "{}: {e}", path.shown()),
            MergeError::Wrong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for MergeError {}

/// Hashes of what the shards of an experiment share, by name: the experiment, and its inputs.
type Shared = BTreeMap<String, String>;

/// Longest file of a shard.
const FILE_BYTES: u64 = 1 << 30;

/// Rows of a shard and what it was made of, every file checked against its manifest.
fn rows_of(dir: &Path) -> Result<(Vec<Row>, Shared), MergeError> {
    let read = |name: &str| {
        let path = dir.join(name);
        let is_file = std::fs::symlink_metadata(&path).map(|m| m.is_file());
        let bytes = is_file.and_then(|is_file| match is_file {
            true => text::at_most(&path, FILE_BYTES),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")),
        });
        bytes.map_err(|e| MergeError::Host(path, e))
    };
    let wrong = |what: &str| MergeError::Wrong(format!("{}: {what}", dir.shown()));
    let mut manifest: Shared = serde_json::from_slice(&read("MANIFEST.json")?)
        .map_err(|e| wrong(&format!("MANIFEST.json: {e}")))?;
    for name in [ROWS, RESOLVED] {
        if !manifest.contains_key(name) {
            return Err(wrong(&format!("not a shard: MANIFEST.json has no {name}")));
        }
    }
    for (name, hash) in &manifest {
        // A shard may come from another machine.
        if !Path::new(name).components().all(|c| matches!(c, Component::Normal(_))) {
            let what =
                format!("MANIFEST.json names a file outside the folder: {}", plain::name(name));
            return Err(wrong(&what));
        }
        if *hash != sha256(&read(name)?) {
            return Err(wrong(&format!("{name} was changed")));
        }
    }
    let doc: Value =
        serde_json::from_slice(&read(ROWS)?).map_err(|e| wrong(&format!("{ROWS}: {e}")))?;
    let rows = table::rows_of(&doc);
    let rows = rows.ok_or_else(|| wrong(&format!("{ROWS} holds no rows of a shard")))?;
    manifest.retain(|name, _| name == RESOLVED || name.starts_with("inputs/"));
    Ok((rows, manifest))
}

/// Puts shards of one experiment together.
///
/// Errors: the host's; shards of several experiments, rows that are missing or there twice.
pub fn merge(dirs: &[PathBuf]) -> Result<(Experiment, Vec<Row>, Ready), MergeError> {
    let wrong = |what: String| MergeError::Wrong(what);
    let Some(first) = dirs.first() else { return Err(wrong("no shards".to_owned())) };
    let mut shared: Option<Shared> = None;
    let mut all: Vec<Row> = Vec::new();
    for dir in dirs {
        let (rows, own) = rows_of(dir)?;
        all.extend(rows);
        let known = shared.get_or_insert_with(|| own.clone());
        let mut names = known.keys().chain(own.keys());
        if let Some(name) = names.find(|n| known.get(*n) != own.get(*n)) {
            let (a, b) = (first.shown(), dir.shown());
            let what = "are of different experiments";
            return Err(wrong(format!("{a} and {b} {what}: {name} is not the same")));
        }
    }
    let path = first.join(RESOLVED);
    let checked = load(&path, None).map_err(|e| MergeError::Host(path.clone(), e))?;
    let Some(e) = checked.experiment else {
        let what = checked.diagnostics.first().map_or(String::new(), ToString::to_string);
        return Err(wrong(format!("{}:\n{what}", path.shown())));
    };
    all.sort_by_key(|r| (r.point, r.seed));
    if let Some(twice) = all.windows(2).find(|w| (w[0].point, w[0].seed) == (w[1].point, w[1].seed))
    {
        let place = e.describe_point(twice[0].point);
        return Err(wrong(format!("{place}, seed {} is given twice", twice[0].seed)));
    }
    let is_there = |n: &usize| {
        let wanted = e.run_of(*n);
        all.binary_search_by_key(&wanted, |r| (r.point, r.seed)).is_ok()
    };
    let missing: Vec<usize> = (0..e.runs()).filter(|n| !is_there(n)).collect();
    if let Some(n) = missing.first() {
        let (count, name) = (missing.len(), e.describe(*n));
        return Err(wrong(format!("{count} of {} runs are missing, as {name}", e.runs())));
    }
    if all.len() > e.runs() {
        return Err(wrong(format!("{} rows, and {} runs", all.len(), e.runs())));
    }
    let ready = ready(&e, &all, Shard::WHOLE);
    Ok((e, all, ready))
}
