//! Paths of a job in one spelling. fio makes every directory on the way to a file, and no job makes
//! a symbolic link, so what a path means can be told from its words.

/// The names of a path; `..` takes back the one before, and leads nowhere from the root.
fn walk(path: &str, on_the_way: &mut dyn FnMut(&[&str])) -> String {
    let mut here: Vec<&str> = Vec::new();
    let mut names = path.split('/').filter(|n| !n.is_empty() && *n != ".").peekable();
    while let Some(name) = names.next() {
        match name {
            ".." => drop(here.pop()),
            name => here.push(name),
        }
        if names.peek().is_some() && name != ".." {
            on_the_way(&here);
        }
    }
    here.join("/")
}

/// `path` without a leading slash, `.`, `..` and empty names.
pub(super) fn plain(path: &str) -> String {
    walk(path, &mut |_| {})
}

/// The directories that are on the way to the last name of `path`, in order.
pub(super) fn directories(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    walk(path, &mut |dir| all.push(dir.join("/")));
    all
}

/// Can a file have this name? It cannot if the path ends in a slash, `.` or `..`.
pub(super) fn names_a_file(path: &str) -> bool {
    !matches!(path.rsplit('/').next(), None | Some("" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_path() {
        for (written, path, dirs) in [
            ("log", "log", &[][..]),
            ("/log", "log", &[]),
            ("./log", "log", &[]),
            ("../log", "log", &[]),
            ("d//log", "d/log", &["d"]),
            ("d/./e/../log", "d/log", &["d", "d/e"]),
            ("d/../log", "log", &["d"]),
        ] {
            assert_eq!(plain(written), path, "{written}");
            assert_eq!(directories(written), dirs, "{written}");
            assert!(names_a_file(written), "{written}");
        }
        for path in ["", "/", "log/", "d/.", "d/.."] {
            assert!(!names_a_file(path), "{path}");
        }
    }
}
