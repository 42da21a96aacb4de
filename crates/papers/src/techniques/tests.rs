use std::collections::BTreeSet;

use wp_base::FsError;
use wp_machine::MachineError;
use wp_machine::registry;
use wp_vfs::Options;

use super::*;

/// A drive with all that any technique needs, but zones.
const DRIVE: &[(&str, u64)] = &[("capacity_bytes", 64 << 20), ("barrier_writes", 1)];

/// One that keeps all writes in order.
const OPTR: &[(&str, u64)] = &[("capacity_bytes", 64 << 20), ("optr", 1)];

/// One that flushes sets of sectors, which no drive with barrier writes does.
const RANGES: &[(&str, u64)] = &[("capacity_bytes", 64 << 20), ("range_flush", 1)];

/// What a mount with these options says.
fn mounted(fs: &str, options: &str, needs: &[Need]) -> Result<(), MachineError> {
    let fs = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, fs)
        .map_err(MachineError::Config)?;
    let options =
        Options::parse(options, fs.options).map_err(|e| MachineError::Config(e.to_string()))?;
    let fresh = wp_campaign::Bench::of(fs, options)?;
    let (device, mut params) = match needs {
        n if n.contains(&Need::Zones) => wp_campaign::bugs::ZONES,
        n if n.contains(&Need::RangeFlush) => ("fixed", RANGES),
        n if n.contains(&Need::OrderedWholeWrites) => ("fixed", OPTR),
        _ => ("fixed", DRIVE),
    };
    // Neither is made on less.
    if ["btrfs", "nilfs2"].contains(&fs.name) {
        params = &[("capacity_bytes", 256 << 20)];
    }
    let device_params = params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    let bench = wp_campaign::Bench { device: device.to_owned(), device_params, ..fresh };
    wp_campaign::play(&bench, &Default::default()).map(drop)
}

#[test]
fn every_technique_is_mounted_with_its_options_by_the_file_system_that_has_it() {
    let mut names = BTreeSet::new();
    for t in TECHNIQUES {
        assert!(names.insert(t.name), "{} stands there twice", t.name);
        assert!(!t.about.is_empty() && !t.name.is_empty());
        let Some(fs) = t.fs else {
            assert!(t.on.is_empty() && t.needs.is_empty(), "{}: named, not built", t.name);
            continue;
        };
        let entry = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, fs)
            .unwrap_or_else(|e| panic!("{}: {e}", t.name));
        for (key, value) in t.options() {
            let spec = entry.options.iter().find(|o| o.key == key);
            let spec = spec.unwrap_or_else(|| panic!("{}: {fs} has no option {key}", t.name));
            assert!(value != "true" || spec.default.is_empty(), "{}: {key} takes a value", t.name);
        }
        if let Err(e) = mounted(fs, t.on, t.needs) {
            panic!("{}: {fs},{}: {e}", t.name, t.on);
        }
    }
}

#[test]
fn a_conflict_is_of_two_techniques_and_refused_by_the_mount_where_the_table_says_so() {
    for t in TECHNIQUES {
        for c in t.conflicts {
            let other = find(c.with);
            assert_eq!(t.fs, other.fs, "{} and {}", t.name, c.with);
            let back = other.conflicts.iter().any(|o| o.with == t.name);
            assert!(!back, "{} and {} stand there twice", t.name, c.with);
            if !c.mount_refuses {
                continue;
            }
            let both = format!("{},{}", t.on, other.on);
            let needs = [t.needs, other.needs].concat();
            let refused = mounted(t.fs.expect("it is built"), &both, &needs);
            let is_refused =
                matches!(refused, Err(MachineError::Fs { error: FsError::Invalid(_), .. }));
            assert!(is_refused, "{} with {}: {refused:?}", t.name, c.with);
        }
    }
}

#[test]
fn what_techniques_need_of_drive_and_kernel_is_told_and_the_way_to_see_why() {
    let of = |params: &[(&str, u64)]| {
        let params: Vec<_> = params.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        limits("850pro-256", &params).expect("a drive")
    };
    let (plain, ordered) = (of(&[]), of(&[("barrier_writes", 1)]));
    let told = |names: &[&str], kernel, drive: &Limits| {
        refusal(names, kernel, drive).map(|r| r.to_string()).unwrap_or_default()
    };
    assert!(told(&["dual-mode"], (3, 10), &plain).contains("crash bug A32"));
    assert_eq!(told(&["dual-mode"], (3, 10), &ordered), "");
    assert!(told(&["dual-mode", "discard"], (3, 10), &ordered).contains("conflicts with discard"));
    assert!(told(&["strict"], (3, 13), &plain).contains("from 4.17"));
    assert!(told(&["oprw"], (5, 14), &plain).contains("zoned"));
    assert!(told(&["no-filing"], (4, 9), &plain).contains("before 4.7"));
}

#[test]
fn bugs_that_the_table_names_can_be_shown() {
    let named = TECHNIQUES.iter().flat_map(|t| t.unsafe_without.iter().map(move |u| (t, u)));
    for (t, (_, id)) in named {
        let known = wp_campaign::bugs::find(id).is_some();
        assert!(known, "{}: no bug {id}", t.name);
    }
}
