//! What the mounted file system offers to system calls. (FILES owns this file.)

use std::rc::Rc;

use super::mount::F2fs;

/// A mounted F2FS, as [`wp_vfs::FileSystem`].
pub struct Mounted(pub Rc<F2fs>);
