//! A tree as the guest lists it, and as `writepath inspect --hash --json` does.

use std::collections::BTreeMap;

use serde_json::Value;

/// A file: what is compared of it, by the name of the field.
type File = BTreeMap<&'static str, String>;
/// All files, by path.
pub type Tree = BTreeMap<String, File>;

const KINDS: [(&str, &str); 7] = [
    ("f", "file"),
    ("d", "dir"),
    ("l", "symlink"),
    ("c", "char"),
    ("b", "block"),
    ("p", "fifo"),
    ("s", "socket"),
];

/// Reads what `guest.sh` printed. Errors: a line that it cannot have printed.
pub fn of_guest(text: &str) -> Result<Tree, String> {
    let mut out = Tree::new();
    for line in text.lines() {
        let wrong = || format!("`{line}` is no line of a tree");
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["E", kind, mode, nlink, size, ino, uid, gid, path, target] => {
                let kind = KINDS.iter().find(|(k, _)| *k == kind).ok_or_else(wrong)?.1;
                let mode = u32::from_str_radix(mode, 8).map_err(|_| wrong())?;
                let mut file = File::from([
                    ("type", kind.to_owned()),
                    ("mode", format!("{mode:04o}")),
                    ("nlink", nlink.to_owned()),
                    ("ino", ino.to_owned()),
                    ("uid", uid.to_owned()),
                    ("gid", gid.to_owned()),
                ]);
                if kind == "file" || kind == "symlink" {
                    file.insert("size", size.to_owned());
                }
                if kind == "symlink" {
                    file.insert("target", target.to_owned());
                }
                out.insert(path.to_owned(), file);
            }
            ["S", hash, path] => {
                let file = out.get_mut(path).ok_or_else(wrong)?;
                file.insert("sha256", hash.to_owned());
            }
            _ => return Err(wrong()),
        }
    }
    Ok(out)
}

/// Reads the document of `writepath inspect --json`. Errors: it has no files.
pub fn of_inspect(doc: &Value) -> Result<Tree, String> {
    let files = doc["files"].as_array().ok_or("inspect lists no files")?;
    let mut out = Tree::new();
    for f in files {
        let mut file = File::new();
        let is_file = matches!(f["type"].as_str(), Some("file" | "symlink"));
        for field in ["type", "mode", "nlink", "ino", "uid", "gid", "size", "target", "sha256"] {
            let value = match &f[field] {
                Value::Null => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if field != "size" || is_file {
                file.insert(field, value);
            }
        }
        out.insert(f["path"].as_str().unwrap_or("").to_owned(), file);
    }
    Ok(out)
}

/// How ours differs from the kernel's, a few lines. `unread`: contents that were not read have no
/// hash, which is no difference.
pub fn differences(kernel: &Tree, ours: &Tree, unread: bool) -> Vec<String> {
    let mut out = Vec::new();
    for (path, file) in kernel {
        let Some(found) = ours.get(path) else {
            out.push(format!("{path} is missing"));
            continue;
        };
        for (field, value) in file {
            match found.get(field) {
                Some(v) if v == value => {}
                // Hashes of files with much that is zero are of another kind, and marked.
                Some(v) if v.starts_with("sparse:") => {}
                None if *field == "sha256" && unread => {}
                v => out.push(format!("{path}: {field} is {v:?}, the kernel's {value}")),
            }
        }
    }
    for path in ours.keys().filter(|p| !kernel.contains_key(*p)) {
        out.push(format!("{path} is not in the kernel's tree"));
    }
    out.truncate(4);
    out
}

#[cfg(test)]
mod tests {
    use super::{differences, of_guest, of_inspect};

    #[test]
    fn what_differs_is_named() {
        let text = "E\tf\t644\t1\t3\t12\t0\t0\ta\t\nS\tabc\ta\nE\td\t755\t2\t99\t13\t0\t0\tb\t\n";
        let kernel = of_guest(text).expect("a tree");
        let doc = |size| {
            serde_json::json!({"files": [
                {"path": "a", "type": "file", "mode": "0644", "nlink": 1, "ino": 12, "uid": 0,
                 "gid": 0, "size": size, "sha256": "abc"},
                {"path": "b", "type": "dir", "mode": "0755", "nlink": 2, "ino": 13, "uid": 0,
                 "gid": 0, "size": 4096}]})
        };
        let same = of_inspect(&doc(3)).expect("files");
        assert!(differences(&kernel, &same, false).is_empty());
        let other = of_inspect(&doc(4)).expect("files");
        assert_eq!(differences(&kernel, &other, false).len(), 1);
        assert!(of_guest("E\tx\n").is_err());
    }
}
