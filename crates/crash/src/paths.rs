//! Paths of calls: one spelling for each name of the tree.
//!
//! The ledger keeps names as recovery lists them: from the root, without a leading slash. A program
//! may write the same name as `/a`, `./a`, `d/../a` or through a symbolic link. What a call means
//! is said by the tree at the time of the call, which is the ledger's last. Only calls that
//! succeeded are resolved, so every directory on the way was there.

use crate::ledger::Ledger;

/// The root directory.
pub(crate) const ROOT_PATH: &str = ".";
/// Links of one path that the kernel follows (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// Which symbolic links of a path are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follow {
    /// All (`open`, `setxattr`).
    All,
    /// Those that lead to the directory of the last name (`rename`, `unlink` and the like).
    Parents,
}

impl Ledger {
    /// The name that `path` stands for now; the root is [`ROOT_PATH`].
    pub(crate) fn resolve(&self, path: &str, follow: Follow) -> String {
        let mut here: Vec<String> = Vec::new();
        // The names that are still to be walked, last first.
        let mut todo: Vec<String> = names(path);
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            here.push(name);
            let follows = !todo.is_empty() || follow == Follow::All;
            let Some(target) = self.link_target(&here.join("/")).filter(|_| follows) else {
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                break;
            }
            here.pop();
            if target.starts_with('/') {
                here.clear();
            }
            todo.extend(names(target));
        }
        if here.is_empty() { ROOT_PATH.to_owned() } else { here.join("/") }
    }
}

/// The names of a path, last first.
fn names(path: &str) -> Vec<String> {
    let names = path.split('/').filter(|n| !n.is_empty() && *n != ".");
    names.rev().map(str::to_owned).collect()
}
