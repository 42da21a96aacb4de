//! The rules of NILFS2 that changed between kernels.

use wp_base::kernel::Version;
use wp_base::policies;

policies! { FileSystem:
    /// Roll-forward puts a block of a file where its block of the log stands in a page.
    recovery_misplaces = "67b8bcbaed47 nilfs2: fix data corruption in dsync block recovery for small block sizes",
        None, Some(Version(6, 8, 0)),
        backported &[
            Version(4, 19, 307), Version(5, 4, 269), Version(5, 10, 210), Version(5, 15, 149),
            Version(6, 1, 79), Version(6, 6, 18),
        ],
        "with blocks smaller than a page recovery copies the data of an fdatasync to the offset that the log's block has in its page, which need not be the file's";
    /// A renamed directory's `..` is written even if its parent stays.
    rename_writes_dotdot = "e30ccbb9c022 nilfs2: do not update mtime of renamed directory that is not moved",
        None, Some(Version(6, 14, 0)),
        "a rename of a directory writes its `..` and changes its times, even within one parent";
}
