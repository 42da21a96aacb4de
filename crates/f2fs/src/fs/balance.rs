//! Making room: garbage collection and checkpoints when too little is left.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_balance_fs`, `f2fs_balance_fs_bg`).

use std::rc::Rc;

use super::mount::F2fs;

impl F2fs {
    /// Before an operation that takes space, and after one that made something dirty (`need`)
    /// (`f2fs_balance_fs`). Waits: for garbage collection, if free sections run out. Not to be
    /// called with [`F2fs::lock_op`] held.
    pub(crate) async fn balance_fs(self: &Rc<Self>, need: bool) {
        let _ = need;
        todo!()
    }
}
