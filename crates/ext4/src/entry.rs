//! ext4's line in the registry.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Sector};
use wp_cache::Fut;
use wp_jbd2::RecoverPolicy;
use wp_medium::{Medium, Overlay, Slice, View};
use wp_vfs::{
    BlockMap, Checked, Env, EraRule, Fault, FileSystem, FsEntry, Inspection, ListedFile,
    OptionSpec, Options, When,
};

use crate::check::{self, CheckOptions};
use crate::disk::SuperBlock;
use crate::fs::era::{Era, POLICIES, Version};
use crate::fs::{Ext4, MountOptions, Mounted};
use crate::image;
use crate::mkfs::{Features, InodeTables, MkfsOptions, mkfs};

/// Time stamp of what is made or recovered without a clock: 2014-01-01, the year of the papers'
/// kernels.
const NOW: u32 = 1_388_534_400;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "era",
        when: When::Always,
        default: "4.6",
        help: "kernel version whose rules apply; 4.6 means 4.6.2, the paper's repaired era",
    },
    OptionSpec { key: "block_size", when: When::Mkfs, default: "4096", help: "1024, 2048 or 4096" },
    OptionSpec {
        key: "inode_size",
        when: When::Mkfs,
        default: "256",
        help: "128 to the block size",
    },
    OptionSpec {
        key: "uuid",
        when: When::Mkfs,
        default: "77726974-6570-6174-6865-787434000001",
        help: "identity; seeds all checksums",
    },
    OptionSpec {
        key: "lazy_itable_init",
        when: When::Mkfs,
        default: "",
        help: "leave inode tables to the kernel to zero",
    },
    OptionSpec { key: "nobarrier", when: When::Mount, default: "", help: "no cache flushes" },
    OptionSpec { key: "nodelalloc", when: When::Mount, default: "", help: "allocate in write()" },
    OptionSpec { key: "commit", when: When::Mount, default: "5", help: "seconds between commits" },
];

/// ext4.
pub static ENTRY: FsEntry = FsEntry {
    name: "ext4",
    about: "ext4 with jbd2, eras 3.4, 3.8 and 4.6 (paper ext4-fsync)",
    options: OPTIONS,
    mkfs: make,
    mount,
    probe,
    inspect,
    recover,
    check,
    blocks,
    eras,
};

fn era_of(o: &Options) -> FsResult<Era> {
    let text = o.get("era", OPTIONS).unwrap_or("4.6");
    Version::parse(text)
        .map(Era::of)
        .ok_or(FsError::Invalid("era: a kernel version such as 3.4 or 4.6.2"))
}

fn switch(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut out = [0u8; 16];
    if hex.len() != 32 {
        return None;
    }
    for (o, pair) in out.iter_mut().zip(hex.chunks(2)) {
        *o = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// Features that mke2fs gave in an era: metadata_csum and 64bit came later.
fn features(era: Era) -> Features {
    // e2fsprogs 1.43 (May 2016) made them defaults; kernels could mount them from 3.6 on.
    if era.version >= Version(4, 7, 0) { Features::today() } else { Features::era_2012() }
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    let mut m = MkfsOptions::new(bytes, features(era_of(o)?));
    m.block_size = Some(number(o, "block_size", "block_size: 1024, 2048 or 4096")?);
    m.inode_size =
        number(o, "inode_size", "inode_size: a power of two from 128 to the block size")?;
    m.uuid = uuid(o.get("uuid", OPTIONS).unwrap_or_default())
        .ok_or(FsError::Invalid("uuid: 32 hexadecimal digits"))?;
    m.hash_seed = m.uuid;
    m.now = NOW;
    if switch(o, "lazy_itable_init") {
        m.inode_tables = InodeTables::Lazy;
    }
    let layout = mkfs(&m).map_err(|e| FsError::Unsupported(format!("mkfs: {e}")))?;
    let mut medium = Medium::new();
    layout.write_to(&mut medium, Sector(0));
    Ok(medium)
}

fn mount<'a>(env: &'a Env, o: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let era = era_of(o)?;
        let commit = number(o, "commit", "commit: seconds")?;
        if commit == 0 || commit > 3600 {
            return Err(FsError::Invalid("commit: from 1 to 3600 seconds"));
        }
        let base = MountOptions::new(era, &env.disk, env.device.0, env.device.1);
        let options = MountOptions {
            barrier: !switch(o, "nobarrier"),
            delalloc: !switch(o, "nodelalloc"),
            commit_interval: wp_base::Span::secs(u64::from(commit)),
            epoch_secs: env.epoch_secs,
            ..base
        };
        let fs = Ext4::mount(&env.rt, env.part.clone(), options).await?;
        let fs: Rc<dyn FileSystem> = Rc::new(Mounted(fs));
        Ok(fs)
    })
}

fn probe(view: &dyn View) -> bool {
    let mut magic = [0u8; 2];
    view.read_at(SuperBlock::AT + 0x38, &mut magic).is_ok()
        && u16::from_le_bytes(magic) == SuperBlock::MAGIC
}

fn policy(o: &Options) -> FsResult<RecoverPolicy> {
    let v = era_of(o)?.version;
    Ok(RecoverPolicy::linux(u32::from(v.0), u32::from(v.1)))
}

fn recover(view: &dyn View, o: &Options) -> FsResult<Vec<(Sector, Slice)>> {
    let overlay = Overlay::new(view);
    image::recover(&overlay, &policy(o)?, NOW)?;
    Ok(overlay.writes())
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options =
        image::InspectOptions { hash, policy: policy(o)?, now: NOW, ..Default::default() };
    let found = image::inspect(view, &options)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let hex = |h: [u8; 32]| h.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Ok(Inspection {
        recovered: found.recovery.is_needed(),
        findings: found
            .findings
            .iter()
            .map(|f| format!("/{}: {}", text(&f.path), f.error))
            .collect(),
        files: found
            .files
            .into_iter()
            .map(|f| ListedFile {
                path: text(&f.path),
                kind: f.kind.name(),
                ino: u64::from(f.ino),
                mode: u32::from(f.mode),
                nlink: u32::from(f.nlink),
                uid: f.uid,
                gid: f.gid,
                size: f.size,
                sha256: f.sha256.map(hex),
                target: f.target.as_deref().map(text),
                xattrs: f.xattrs.iter().map(|x| (text(&x.name), attribute(&x.value))).collect(),
            })
            .collect(),
    })
}

/// An attribute's value as `getfattr` prints it: text, or hexadecimal where it is none.
fn attribute(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(s) if !s.chars().any(char::is_control) => s.to_owned(),
        _ => value.iter().fold("0x".to_owned(), |t, b| t + &format!("{b:02x}")),
    }
}

fn check(view: &dyn View, o: &Options, recover: bool) -> FsResult<Checked> {
    let options = CheckOptions { recover, policy: policy(o)?, now: NOW, ..Default::default() };
    let report = check::check(view, &options)?;
    Ok(Checked {
        is_clean: report.is_clean(),
        recovered: report.recovered,
        left_out: report.left_out,
        faults: report
            .findings
            .into_iter()
            .map(|f| Fault {
                kind: f.kind.name(),
                structure: f.kind.class().name(),
                severity: f.severity.name(),
                place: f.place,
                found: f.found,
                expected: f.expected,
            })
            .collect(),
    })
}

fn blocks(view: &dyn View) -> FsResult<Box<dyn BlockMap>> {
    Ok(Box::new(crate::evidence::Blocks::read(view)?))
}

fn eras(version: &str) -> Option<Vec<EraRule>> {
    let v = Version::parse(version)?;
    let text = |v: Option<Version>| v.map(|v| v.to_string()).unwrap_or_default();
    let rules = POLICIES.iter().map(|p| EraRule {
        name: p.name,
        what: p.what,
        commit: p.commit,
        from: text(p.from),
        until: text(p.until),
        holds: p.holds(v),
    });
    Some(rules.collect())
}
