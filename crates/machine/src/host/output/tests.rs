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
    assert_eq!(std::fs::read(&file).expect("read"), b"other");
    assert_eq!(names(dir.path()).len(), 2, "the late one is under way");
    drop(late);
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn what_was_written_is_kept_beside_a_file_that_was_made_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(dir.path().join("file.1"), "the user's").expect("written");
    let mut late = Output::create(&file, Shape::Text, Existing::Refuse).expect("begun");
    late.write_all(b"ours").expect("written");
    std::fs::write(&file, "other").expect("written");
    let e = late.commit().expect_err("made meanwhile");
    assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
    assert!(e.to_string().ends_with("file.2"), "{e}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("read");
    assert_eq!(["file", "file.1", "file.2"].map(read), ["other", "the user's", "ours"]);
    // Of several that belong together none is kept alone.
    let many = ["a", "file"].map(|name| {
        std::fs::remove_file(dir.path().join(name)).ok();
        Output::create(&dir.path().join(name), Shape::Text, Existing::Refuse).expect("begun")
    });
    std::fs::write(&file, "other").expect("written");
    commit_all(many.into()).expect_err("made meanwhile");
    assert_eq!(names(dir.path()), ["file", "file.1", "file.2"]);
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_and_waits_for_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("made");
    assert!(refused(&pipe, Shape::Text).starts_with("no process reads this pipe"));
    assert!(refused(&pipe, Shape::Image).contains("not a regular file"));
    let reader = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let reader = rustix::fs::open(&pipe, reader, rustix::fs::Mode::empty()).expect("opened");
    write(&pipe, b"text", Existing::Refuse).expect("somebody reads");
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut bytes), Ok(4));
}

#[test]
fn without_the_flag_of_rename_nothing_is_replaced_either() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let exists = |from: &str, to: &str| {
        rename_without_flag(&at(from), &at(to)).expect_err("refused").kind()
            == io::ErrorKind::AlreadyExists
    };
    std::fs::write(at("file"), "1").expect("written");
    std::fs::write(at("other"), "2").expect("written");
    std::fs::create_dir_all(at("full/inner")).expect("made");
    std::fs::create_dir_all(at("made/results")).expect("made");
    let socket = UnixListener::bind(at("socket")).expect("bound");
    assert!(exists("file", "other") && exists("file", "full") && exists("socket", "file"));
    assert!(exists("made", "full") && exists("made", "other"));
    rename_without_flag(&at("file"), &at("file.new")).expect("renamed");
    rename_without_flag(&at("socket"), &at("socket.new")).expect("renamed");
    rename_without_flag(&at("made"), &at("results")).expect("renamed");
    drop(socket);
    assert_eq!(names(dir.path()), ["file.new", "full", "other", "results", "socket.new"]);
    assert!(at("full/inner").exists() && at("results/results").exists());
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
    assert_eq!(refused(&nowhere, Shape::Text), "it is a dangling symbolic link");
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
