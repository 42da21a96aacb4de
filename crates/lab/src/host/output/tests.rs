use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("listed");
    let name = |e: io::Result<std::fs::DirEntry>| e.expect("listed").file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn refused(path: &Path, shape: Shape) -> String {
    Output::create(path, shape, Existing::Replace).expect_err("refused").to_string()
}

#[test]
fn an_output_appears_whole_and_a_failed_one_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, part) = (dir.path().join("disk.img"), dir.path().join("disk.part"));
    std::fs::write(&part, "the user's").expect("written");
    let mut output = Output::create(&disk, Shape::Image, Existing::Refuse).expect("begun");
    output.write_all(b"half").expect("written");
    assert!(!disk.exists());
    drop(output);
    assert_eq!(names(dir.path()), ["disk.part"]);
    write(&disk, b"whole", Existing::Refuse).expect("written");
    assert_eq!(std::fs::read(&disk).expect("read"), b"whole");
    assert_eq!(std::fs::read(&part).expect("read"), b"the user's");
    assert_eq!(names(dir.path()), ["disk.img", "disk.part"]);
}

#[test]
fn what_exists_is_refused_at_once_and_also_when_it_is_made_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    let late = Output::create(&file, Shape::Text, Existing::Refuse).expect("begun");
    std::fs::write(&file, "other").expect("written");
    let e = write(&file, b"ours", Existing::Refuse).expect_err("it exists");
    assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(late.commit().expect_err("made meanwhile").kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&file).expect("read"), b"other");
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn the_mode_is_the_umasks_or_that_of_the_file_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, usual) = (dir.path().join("ours"), dir.path().join("usual"));
    let mode = |p: &Path| std::fs::metadata(p).expect("there").mode() & 0o7777;
    File::create(&usual).expect("made");
    write(&ours, b"1", Existing::Refuse).expect("written");
    assert_eq!(mode(&ours), mode(&usual));
    std::fs::set_permissions(&ours, Permissions::from_mode(0o640)).expect("set");
    write(&ours, b"2", Existing::Replace).expect("written");
    assert_eq!((mode(&ours), std::fs::read(&ours).expect("read")), (0o640, b"2".to_vec()));
}

#[test]
fn a_link_to_a_file_stays_a_link_and_one_to_nothing_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, link, nowhere) =
        (dir.path().join("file"), dir.path().join("link"), dir.path().join("nowhere"));
    std::fs::write(&file, "old").expect("written");
    symlink("file", &link).expect("linked");
    symlink("missing", &nowhere).expect("linked");
    write(&link, b"new", Existing::Replace).expect("written");
    assert_eq!(std::fs::read(&file).expect("read"), b"new");
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(write(&link, b"", Existing::Refuse).is_err());
    assert_eq!(refused(&nowhere, Shape::Text), "it is a symbolic link that leads nowhere");
    assert_eq!(names(dir.path()), ["file", "link", "nowhere"]);
}

#[test]
fn a_link_of_another_user_in_an_open_directory_is_not_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    std::fs::write(&file, "root's").expect("written");
    symlink(&file, &link).expect("linked");
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("set");
    if std::os::unix::fs::lchown(&link, Some(65_534), None).is_err() {
        crate::testing::skipped(
            "links of other users",
            "only root can give a link to another user",
        );
        return;
    }
    assert_eq!(refused(&link, Shape::Text), "it is a symbolic link of another user");
    assert_eq!(std::fs::read(&file).expect("read"), b"root's");
}

#[test]
fn nodes_are_never_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pipe, socket) = (dir.path().join("pipe"), dir.path().join("socket"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("run");
    assert!(made.success());
    let _listener = UnixListener::bind(&socket).expect("bound");
    let image = "it is not a regular file: an image needs one";
    for node in [&pipe, Path::new("/dev/full"), Path::new("/dev/null"), Path::new("/dev/stdout")] {
        assert_eq!(refused(node, Shape::Image), image, "{}", node.display());
    }
    assert_eq!(refused(&socket, Shape::Text), "it is a socket");
    assert_eq!(refused(dir.path(), Shape::Text), "it is a directory");
    write(Path::new("/dev/null"), b"text", Existing::Refuse).expect("written");
    let full = write(Path::new("/dev/full"), b"text", Existing::Refuse).expect_err("it is full");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let reader = File::options().read(true).write(true).open(&pipe).expect("open");
    write(&pipe, b"text", Existing::Refuse).expect("written");
    let mut got = [0; 4];
    io::Read::read_exact(&mut &reader, &mut got).expect("read");
    assert_eq!(&got, b"text");
    assert!(std::fs::symlink_metadata(&pipe).expect("there").file_type().is_fifo());
}

#[test]
fn what_cannot_be_made_is_known_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("a/b/file");
    assert_eq!(refused(&missing, Shape::Text), "no such directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    assert!(refused(&file.join("below"), Shape::Text).contains("ot a directory"));
    try_folder(&dir.path().join("x/y")).expect("it can be made");
    assert!(
        try_folder(&file.join("x")).expect_err("a file").to_string().ends_with("not a directory")
    );
    assert!(try_folder(Path::new("/proc/self/x")).is_err());
}

#[test]
fn names_are_given_to_all_or_none_and_nothing_is_written_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|n| dir.path().join(n));
    let new = |p: &PathBuf| Output::create(p, Shape::Image, Existing::Refuse).expect("free");
    let all = paths.iter().map(new).collect();
    std::fs::write(&paths[1], "mine").expect("written meanwhile");
    let (which, e) = commit_all(all).expect_err("b is taken");
    assert_eq!((&which, e.kind()), (&paths[1], io::ErrorKind::AlreadyExists));
    assert_eq!(std::fs::read(&paths[1]).expect("there"), b"mine");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    std::fs::remove_file(&paths[1]).expect("gone");
    commit_all(paths.iter().map(new).collect()).expect("both are free");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
}
