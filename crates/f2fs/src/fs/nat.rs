//! Where nodes are: the NAT, its cache, and what fsync must know of it.
//!
//! Source: Linux `fs/f2fs/node.c` (`f2fs_get_node_info`, `set_node_addr`).

use wp_base::FsResult;

use super::mount::F2fs;

/// What the NAT says of a node (`struct node_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeInfo {
    /// Its number.
    pub nid: u32,
    /// Inode that it is of.
    pub ino: u32,
    /// Where it is: `NULL`, `NEW`, or a block.
    pub blk_addr: u32,
    /// How often the number was given anew.
    pub version: u8,
}

/// The NAT of a mounted file system.
pub(crate) struct Nat {}

impl F2fs {
    /// What the NAT says of a node (`f2fs_get_node_info`). Errors: `Corrupt` for a number that no
    /// node can have, `Io`.
    pub(crate) async fn nat(&self, nid: u32) -> FsResult<NodeInfo> {
        let _ = nid;
        todo!()
    }

    /// Must the inode's fsync say where its name is (`f2fs_need_dentry_mark`)?
    pub(crate) fn need_dentry_mark(&self, nid: u32) -> bool {
        let _ = nid;
        todo!()
    }

    /// Does the last checkpoint know the node (`f2fs_is_checkpointed_node`)?
    pub(crate) fn is_checkpointed_node(&self, nid: u32) -> bool {
        let _ = nid;
        todo!()
    }

    /// Must an fsync write the inode's block too (`f2fs_need_inode_block_update`)?
    pub(crate) async fn need_inode_block_update(&self, ino: u32) -> bool {
        let _ = ino;
        todo!()
    }
}
