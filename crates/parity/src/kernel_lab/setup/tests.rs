use super::*;

/// A program that says this, whatever it is asked.
fn program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\ncat <<'X'\n{text}\nX\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A root with these programs.
fn root(dir: &Path, programs: &[&str]) -> PathBuf {
    let root = dir.join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::write(root.join("init_uml"), "").unwrap();
    for name in programs {
        std::fs::write(root.join("bin").join(name), "").unwrap();
    }
    root
}

const PROGRAMS: [&str; 7] = ["sh", "mount", "cp", "chmod", "uname", "cat", "mkfs.ext4"];

/// A configuration with all that is needed, but an option.
fn config(without: &str) -> String {
    let mut out = String::from("CONFIG_UML=y\nCONFIG_EXT4_FS=y\nCONFIG_F2FS_FS=m\n");
    for (option, _) in NEEDED.iter().filter(|(option, _)| *option != without) {
        out.push_str(&format!("CONFIG_{option}=y\n"));
    }
    out
}

#[test]
fn what_is_built_in_is_told_from_modules_and_from_longer_names() {
    let config = "# CONFIG_XFS_FS is not set\nCONFIG_F2FS_FS=m\nCONFIG_EXT4_FS_POSIX_ACL=y\n\
                  CONFIG_HOSTFS=y\n";
    assert!(is_built_in(config, "HOSTFS"));
    for not in ["XFS_FS", "F2FS_FS", "EXT4_FS", "HOST"] {
        assert!(!is_built_in(config, not), "{not}");
    }
}

#[test]
fn every_option_that_is_needed_is_named_when_it_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, root) = (dir.path().join("linux"), root(dir.path(), &PROGRAMS));
    program(&kernel, &config(""));
    let whole = look(&kernel, &root);
    assert_eq!(whole.missing, []);
    let has: Vec<&str> =
        whole.file_systems.iter().filter(|h| h.kernel && h.mkfs).map(|h| h.fs).collect();
    assert_eq!((has, whole.zones), (vec!["ext4"], false));
    for (option, _) in NEEDED {
        program(&kernel, &config(option));
        let missing = look(&kernel, &root).missing;
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].what.contains(&format!("CONFIG_{option}=y")), "{missing:?}");
    }
}

#[test]
fn what_is_no_kernel_and_what_is_no_root_are_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, empty) = (dir.path().join("linux"), dir.path().join("none"));
    let nothing = look(&kernel, &empty);
    assert_eq!(nothing.missing.len(), 3, "kernel, root, file systems: {nothing:?}");
    program(&kernel, "a program");
    let other = look(&kernel, &root(dir.path(), &PROGRAMS[1..]));
    let what: Vec<&str> = other.missing.iter().map(|m| m.what.as_str()).collect();
    assert!(what[0].ends_with("is not a User-Mode Linux kernel"), "{what:?}");
    assert!(what[1].ends_with("has no program sh"), "{what:?}");
    assert!(other.missing.iter().all(|m| !m.way_out.is_empty()) && !other.is_usable());
    assert!(take(&kernel, &empty, &dir.path().join("to")).is_err());
    assert!(!dir.path().join("to").exists(), "nothing is copied of what is of no use");
}

#[test]
fn what_is_taken_is_copied_and_itself_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, root) = (dir.path().join("linux"), root(dir.path(), &PROGRAMS));
    program(&kernel, &config(""));
    let to = dir.path().join("to");
    take(&kernel, &root, &to).unwrap();
    let (binary, directory) = places(&to);
    assert_eq!(look(&binary, &directory).missing, []);
    take(&binary, &directory, &to).unwrap();
    assert_eq!(look(&binary, &directory).missing, []);
}

#[test]
fn the_newest_source_of_debians_is_taken_and_none_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(debian_source(dir.path()).unwrap_err().contains("apt-get install linux-source-6.12"));
    for name in ["linux-source-6.9.tar.xz", "linux-source-6.12.tar.xz", "linux-source-7.x.tar.xz"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let found = debian_source(dir.path()).unwrap();
    assert!(found.ends_with("linux-source-6.12.tar.xz"), "{}", found.display());
}

#[test]
fn our_own_configuration_has_all_that_is_needed_but_what_is_the_default() {
    // The defaults of `ARCH=um` (6.12) have these.
    let default = ["PROC_FS", "SYSFS", "BINFMT_ELF", "BINFMT_SCRIPT"];
    for (option, _) in NEEDED.iter().filter(|(option, _)| !default.contains(option)) {
        assert!(is_built_in(CONFIG, option), "{option}");
    }
    for fs in FILE_SYSTEMS {
        assert!(is_built_in(CONFIG, &format!("{}_FS", fs.to_uppercase())), "{fs}");
    }
    assert!(is_built_in(CONFIG, "BLK_DEV_ZONED"));
}

#[test]
fn a_second_build_in_one_place_waits_for_no_other_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (source, work) = (dir.path().join("source"), dir.path().join("work"));
    std::fs::create_dir_all(&source).unwrap();
    std::fs::create_dir_all(work.join("build")).unwrap();
    let lock = std::fs::File::create(work.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let config = dir.path().join("config");
    std::fs::write(&config, "").unwrap();
    let why = script(KERNEL_SH, &[&source, &config, &work]).unwrap_err();
    // 3 also where a tool is missing; nothing was made in either case.
    assert!(why.contains("exit status: 3"), "{why}");
    assert!(!work.join("build/.config").exists());
    // Without a Makefile this ends too, but not before it has begun.
    drop(lock);
    let why = script(KERNEL_SH, &[&source, &config, &work]).unwrap_err();
    assert!(why.contains("exit status: 3") || work.join("build/.config").exists(), "{why}");
}
