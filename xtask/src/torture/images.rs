//! Damaged images of every file system, through every verb that reads them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use super::World;
use super::judge::{Case, Problem, run as judge};
use super::rng::Rng;

const PAGE: usize = 4096;

/// An image whose pages of zeroes are left out.
pub struct Base {
    /// Its file system, and whether it was unmounted.
    name: String,
    bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Base {
    fn read(name: &str, path: &Path) -> Result<Base, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let pages = bytes.chunks(PAGE).zip(0..).filter(|(page, _)| page.iter().any(|b| *b != 0));
        let pages = pages.map(|(page, n)| (n, page.to_vec())).collect();
        Ok(Base { name: name.to_owned(), bytes: bytes.len() as u64, pages })
    }

    /// Writes it as it is.
    pub fn write_to(&self, path: &Path) -> Result<(), String> {
        self.write(path, &BTreeMap::new(), self.bytes)
    }

    /// Writes it with other pages in place of some, and this length.
    fn write(&self, path: &Path, other: &BTreeMap<u64, Vec<u8>>, bytes: u64) -> Result<(), String> {
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = File::create(path).map_err(io)?;
        for (n, page) in self.pages.iter().filter(|(n, _)| !other.contains_key(n)).chain(other) {
            file.write_all_at(page, n * PAGE as u64).map_err(io)?;
        }
        file.set_len(bytes).map_err(io)
    }
}

/// File system with the options of its images, and their size.
const SYSTEMS: [(&str, &str); 6] = [
    ("ext4", "64M"),
    ("ext4,features=today+^metadata_csum", "64M"),
    ("ext4,block_size=1024", "64M"),
    ("f2fs", "64M"),
    ("btrfs,era=6.12", "128M"),
    ("nilfs2", "136M"),
];

const PROGRAM: &str = "open 0 f rw,creat\npwrite 0 4096 0 1\nfsync 0\nopen 1 g rw,creat\n\
pwrite 1 9000 0 2\nfsync 1\nrename f h\nfsync 1\n";

/// Makes the bases: an image that was unmounted and one of a power failure, of each file system.
pub fn bases(world: &World) -> Result<Vec<Base>, String> {
    let mut out = Vec::new();
    std::fs::write(world.file("program"), PROGRAM).map_err(|e| e.to_string())?;
    for (fs, size) in SYSTEMS {
        let call = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            let mut command = world.command(&words);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        let (unmounted, cut) = (world.file("unmounted"), world.file("cut"));
        let files = "create-delete,n=40,delete=half";
        let run = ["run", "--fs", fs, "--device", "fixed", "--partition-size", size, "--workload"];
        let more = [files, "--save-image", "unmounted", "--no-events", "--out", "results"];
        if call(&[&run[..], &more].concat()) {
            out.push(Base::read(fs, &unmounted)?);
        }
        let crash = ["crash", "show", "program", "4", "--fs", fs, "--size", size];
        if call(&[&crash[..], &["--image", "cut"]].concat()) && cut.exists() {
            out.push(Base::read(&format!("{fs}, cut"), &cut)?);
        }
        for path in [unmounted, cut] {
            // What was not made is not there.
            let _ = std::fs::remove_file(path);
        }
    }
    let made: Vec<&str> = out.iter().map(|base| base.name.as_str()).collect();
    if made.len() < 2 * SYSTEMS.len() {
        return Err(format!("not all images to damage could be made, only: {}", made.join("; ")));
    }
    Ok(out)
}

/// Damages a page.
fn damage(rng: &mut Rng, page: &mut [u8], other: &[u8]) {
    let at = rng.below(page.len());
    match rng.below(7) {
        0 => page[at] ^= 1 << rng.below(8),
        1 => page[at] = rng.next() as u8,
        2 => page.fill(0),
        3 => page.copy_from_slice(other),
        4 => page.iter_mut().for_each(|b| *b = rng.next() as u8),
        n => {
            // A word of 2, 4 or 8 bytes, in its place.
            let bytes = 2 << rng.below(3);
            let values = [0, u64::MAX, 1, u64::MAX >> 1, 1 << 31, rng.next()];
            let at = at / bytes * bytes;
            let value = if n == 5 { *rng.pick(&values) } else { rng.next() % 4096 };
            page[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }
}

/// A damaged image through one verb.
pub fn run(world: &World, rng: &mut Rng) -> Result<Vec<Problem>, String> {
    let base = rng.pick(&world.bases);
    let numbers: Vec<u64> = base.pages.keys().copied().collect();
    let mut other = BTreeMap::new();
    for _ in 0..=rng.below(6) {
        let n = *rng.pick(&numbers);
        let mut page = other.get(&n).unwrap_or(&base.pages[&n]).clone();
        let second = &base.pages[rng.pick(&numbers)];
        if second.len() == page.len() {
            damage(rng, &mut page, second);
        }
        other.insert(n, page);
    }
    let is_cut = rng.once_in(10);
    let bytes = if is_cut { rng.next() % base.bytes } else { base.bytes };
    base.write(&world.file("image"), &other, bytes)?;
    let era: &[&str] = if base.name.starts_with("btrfs") { &["--era", "6.12"] } else { &[] };
    let verbs: [&[&str]; 7] = [
        &["fsck", "image"],
        &["fsck", "--recover", "image", "--json"],
        &["inspect", "image"],
        &["inspect", "--hash", "image", "--json"],
        &["recover", "image", "--to", "copy"],
        &["recover", "image", "--to", "copy", "--json"],
        &["recover", "image"],
    ];
    let verb = *rng.pick(&verbs);
    let mut case = Case::reading(&[verb, era].concat());
    case.twice = rng.once_in(4);
    if verb.contains(&"--to") {
        case.outputs.push("copy");
    } else if verb[0] == "recover" {
        (case.writes, case.twice) = (true, false);
    }
    judge(world, &case)
}
