//! F2FS's line in the registry.

use wp_base::{FsError, FsResult, Sector};
use wp_medium::{Medium, Overlay, Slice, Sound, View};
use wp_vfs::{
    BlockMap, Checked, EraRule, Fault, FsEntry, Inspection, ListedFile, OptionSpec, Options, When,
};

use crate::check::{self, CheckOptions};
use crate::disk::{SuperBlock, xattr};
use crate::image::{self, InspectOptions, RecoverOptions, Rules};
use crate::mkfs::{MkfsOptions, mkfs};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "era",
        when: When::Always,
        default: "6.18",
        help: "kernel version whose rules apply",
    },
    OptionSpec {
        key: "features",
        when: When::Mkfs,
        default: "",
        help: "joined by +, as mkfs.f2fs -O has them: extra_attr+inode_checksum",
    },
    OptionSpec {
        key: "segs_per_sec",
        when: When::Mkfs,
        default: "1",
        help: "segments of a section (mkfs.f2fs -s)",
    },
    OptionSpec {
        key: "secs_per_zone",
        when: When::Mkfs,
        default: "1",
        help: "sections of a zone (mkfs.f2fs -z)",
    },
    OptionSpec {
        key: "large_nat_bitmap",
        when: When::Mkfs,
        default: "",
        help: "more node ids (mkfs.f2fs -i)",
    },
    OptionSpec { key: "label", when: When::Mkfs, default: "", help: "label (mkfs.f2fs -l)" },
    OptionSpec {
        key: "oprw",
        when: When::Mount,
        default: "",
        help: "order-preserving recovery: nodes whose data was not written count as not written",
    },
];

/// F2FS.
pub static ENTRY: FsEntry = FsEntry {
    name: "f2fs",
    about: "F2FS images: mkfs.f2fs 1.15, recovery of 5.14 to 6.18, check; not mounted yet",
    options: OPTIONS,
    held: &[],
    modes: &[],
    mkfs: make,
    mkfs_zoned: Some(crate::zoned::mkfs_zoned),
    mount: None,
    probe,
    inspect,
    recover,
    check,
    survey: |overlay, o| image::survey(overlay, &how(o)?),
    blocks: |view| Ok(Box::new(crate::evidence::Blocks::read(view)?) as Box<dyn BlockMap>),
    eras,
};

/// Major and minor version. Errors: text that is none.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let is_version = parts.next().is_none_or(|p| p.parse::<u32>().is_ok());
    (is_version && parts.next().is_none()).then_some(version)
}

fn how(o: &Options) -> FsResult<RecoverOptions> {
    let (major, minor) = version(o.get("era", OPTIONS).unwrap_or_default())
        .ok_or(FsError::Invalid("era: a kernel version such as 6.1"))?;
    let rules = Rules::linux(major, minor);
    Ok(RecoverOptions { rules, oprw: is_set(o, "oprw"), ..RecoverOptions::default() })
}

/// Was a flag given, and not as `false` or `0`?
fn is_set(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    write(&mkfs_options(o, bytes)?)
}

/// The image that mkfs makes with these options.
pub(crate) fn write(m: &MkfsOptions) -> FsResult<Medium> {
    let mut medium = Medium::new();
    mkfs(m)?.write_to(&mut medium);
    Ok(medium)
}

/// What mkfs is asked for.
pub(crate) fn mkfs_options(o: &Options, bytes: u64) -> FsResult<MkfsOptions> {
    let mut m = MkfsOptions::new(bytes);
    m.segments_per_section = number(o, "segs_per_sec", "segs_per_sec: 1 or more")?;
    m.sections_per_zone = number(o, "secs_per_zone", "secs_per_zone: 1 or more")?;
    m.large_nat_bitmap = is_set(o, "large_nat_bitmap");
    m.label = o.get("label", OPTIONS).unwrap_or_default().to_owned();
    for name in o.get("features", OPTIONS).unwrap_or_default().split('+').filter(|n| !n.is_empty())
    {
        m.set_feature(name, true)?;
    }
    Ok(m)
}

fn probe(view: &dyn View) -> bool {
    let mut magic = [0u8; 4];
    view.read_at(SuperBlock::AT as u64, &mut magic).is_ok()
        && u32::from_le_bytes(magic) == SuperBlock::MAGIC
}

fn recover(view: &dyn View, o: &Options) -> FsResult<Vec<(Sector, Slice)>> {
    let overlay = Overlay::new(view);
    let last = image::recover(&overlay, &how(o)?)?.last_block.map(crate::disk::Geometry::byte_of);
    let mut writes = overlay.writes();
    // The block that makes the new checkpoint count waits for everything else.
    writes.sort_by_key(|(sector, _)| Some(sector.bytes()) == last);
    Ok(writes)
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options = InspectOptions { hash, recover: how(o)?, ..Default::default() };
    let found = image::inspect(view, &options)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let hex = |h: [u8; 32]| h.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let failed = found.recovery.failed.iter().map(|e| format!("roll-forward failed: {e}"));
    let wrong = found.findings.iter().map(|f| format!("/{}: {}", text(&f.path), f.error));
    let attributes = |all: &[xattr::Attribute]| {
        let one = |a: &xattr::Attribute| {
            let prefix = xattr::prefix(a.name_index).unwrap_or("unknown.");
            (format!("{prefix}{}", text(&a.name)), attribute(&a.value))
        };
        all.iter().map(one).collect()
    };
    let rejected = found.recovery.oprw.iter().flat_map(|r| &r.nodes);
    Ok(Inspection {
        recovered: found.recovery.is_needed(),
        left_out: rejected.map(ToString::to_string).collect(),
        findings: failed.chain(wrong).collect(),
        files: found
            .files
            .iter()
            .map(|f| ListedFile {
                path: text(&f.path),
                kind: f.kind.name(),
                ino: f.ino.into(),
                mode: f.mode.into(),
                nlink: f.nlink,
                uid: f.uid,
                gid: f.gid,
                size: f.size,
                sha256: f.sha256.map(hex),
                target: f.target.as_deref().map(text),
                xattrs: attributes(&f.xattrs),
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

fn check(view: &dyn View, o: &Options, recover: bool, _: &Sound) -> FsResult<Checked> {
    let recover = if recover { Some(how(o)?) } else { None };
    let report = check::check(view, &CheckOptions { recover })?;
    Ok(Checked {
        is_clean: report.is_clean(),
        recovered: report.recovered,
        left_out: report.left_out,
        faults: report
            .findings
            .into_iter()
            .map(|f| Fault {
                kind: f.kind.name(),
                structure: f.kind.structure(),
                severity: if f.kind.is_harmless() { "harmless" } else { "error" },
                place: f.place,
                found: f.found,
                expected: f.expected,
            })
            .collect(),
    })
}

fn eras(text: &str) -> Option<Vec<EraRule>> {
    let (major, minor) = version(text)?;
    let rules = Rules::linux(major, minor);
    let rule = |name, what, commit, from: &str, holds| EraRule {
        name,
        what,
        commit,
        from: from.to_owned(),
        until: String::new(),
        holds,
    };
    Some(vec![
        rule(
            "check_destination",
            "a block that something else still has stops roll-forward",
            "f2fs: fix to do sanity check on destination blkaddr during recovery",
            "6.1",
            rules.check_destination,
        ),
        rule(
            "leave_zones",
            "after a crash every log leaves the zone that it has begun",
            "f2fs: fix write pointers all the time",
            "6.8",
            rules.leave_zones,
        ),
    ])
}
