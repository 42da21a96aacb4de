//! Roll-forward: the nodes that were written after the checkpoint, in the order of the warm node
//! log, and what becomes of them.
//!
//! Picture:    pass 1 ([`find`]) follows the chain and lists the inodes with an fsync mark (new
//!             ones, marked for their name too, get their node number); pass 2 ([`replay`]) follows
//!             it again and applies each node of a listed inode up to its last mark.
//!
//! With F and D for the marks, CP for the checkpoint (`recovery.c`, "Roll forward recovery
//! scenarios"; the tests have one case for each):
//!
//! ```text
//! 1 inode | CP | inode, dnode F    the inode is applied too   5 CP | inode, dnode F     dropped
//! 2 inode | CP | inode F, dnode F  both                       6 CP | inode DF, dnode F  both
//! 3 inode | CP | dnode F, inode    without the last inode     7 CP | dnode F, inode DF  the inode
//! 4 inode | CP | dnode F, inode F  both                       8 CP | dnode F, inode     dropped
//! ```
//!
//! Scenario 7 is as the kernel's comment has it: the dnode is found while its inode is not known,
//! so it does not count as a mark; pass 2 applies it all the same, for it stands before the
//! inode's.
//! Source:     `find_fsync_dnodes`, `recover_data`, `do_recover_data`.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use crate::disk::inode::{InodeExtra, advise, inline};
use crate::disk::{
    Block, Footer, Geometry, Inode, Log, Node, SEGMENT_BLOCKS, ZERO_BLOCK, addr, feature, tree,
};

use super::files::{Slot, State};
use super::inodes::FsyncInodes;
use super::zones::ZoneTable;
use super::{Reason, RecoverOptions, Recovery, Rejected, RejectedNode, Rules};

/// The chain, and which of its nodes are to be recovered.
pub(super) struct Chain {
    nodes: Vec<u32>,
    rejected: BTreeSet<u32>,
    inodes: FsyncInodes,
}

impl Chain {
    /// Is there nothing to recover?
    pub(super) fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }
}

/// Reads the node blocks of the chain one after another. `each` is told address and contents.
///
/// Errors: `Corrupt` for a chain that bites its tail: longer than there are free blocks.
fn follow(s: &State<'_>, each: &mut dyn FnMut(u32, &Block) -> FsResult<()>) -> FsResult<()> {
    let image = s.t.image;
    let g = image.geometry();
    let cp = image.checkpoint();
    let (segment, offset) = cp.log(Log::WarmNode);
    let mut at = g.block(segment, offset);
    let blocks = u64::from(g.segments) * u64::from(SEGMENT_BLOCKS);
    let free = blocks.saturating_sub(cp.head().valid_block_count.get());
    let mut seen = 0u64;
    while g.is_main(at) {
        let block = image.read_block(at, "f2fs node")?;
        let footer = Footer::of(&block);
        if !cp.is_recoverable(footer.cp_ver.get()) {
            return Ok(());
        }
        each(at, &block)?;
        let next = footer.next_blkaddr.get();
        seen += 1;
        if seen >= free || next == at {
            let expected = format!("a chain of less than {free} nodes");
            let at = Geometry::byte_of(at);
            return Err(FsError::corrupt("f2fs node", "next_blkaddr", at, next.into(), expected));
        }
        at = next;
    }
    Ok(())
}

/// Nodes that OPRW leaves out: those with an address that was not written when the power went, as
/// the write pointers tell, and all later ones of the same inode (algorithm 1 of the paper).
fn reject(s: &State<'_>, zones: &ZoneTable, out: &mut Recovery) -> FsResult<BTreeSet<u32>> {
    let (mut skipped, mut rejected) = (BTreeSet::new(), BTreeSet::new());
    let mut counts = Rejected::default();
    follow(s, &mut |at, block| {
        counts.nodes_seen += 1;
        let footer = Footer::of(block);
        let ino = footer.ino.get();
        let node = |reason| RejectedNode { at, ino, offset: footer.offset(), reason };
        if skipped.contains(&ino) {
            counts.later += 1;
            counts.nodes.push(node(Reason::Later));
            rejected.insert(at);
            return Ok(());
        }
        let mut first = None;
        for block in words(block, s.feature()) {
            counts.slots_seen += 1;
            if !addr::is_block(block) {
                continue;
            }
            counts.addresses_seen += 1;
            if let Some(pointer) = zones.not_written(block) {
                counts.addresses_unwritten += 1;
                first = first.or(Some(Reason::Unwritten { block, pointer }));
            }
        }
        if let Some(reason) = first {
            counts.unwritten += 1;
            counts.inodes.push(ino);
            counts.nodes.push(node(reason));
            skipped.insert(ino);
            rejected.insert(at);
        }
        Ok(())
    })?;
    out.oprw = Some(counts);
    Ok(rejected)
}

/// Words of a node of the chain that may be addresses of data; holes, promises and heads of
/// clusters are among them.
fn words(block: &Block, sb_feature: u32) -> impl Iterator<Item = u32> + '_ {
    let footer = Footer::of(block);
    let inode = Inode::of(block);
    let shape = crate::disk::Shape::of(inode, sb_feature);
    let is_inline = inode.inline & (inline::DATA | inline::DENTRY) != 0;
    let has_none = footer.is_inode() && (is_inline || !inode.has_addresses())
        || !footer.is_inode() && !tree::is_direct(footer.offset());
    let is_inode = footer.is_inode();
    let slots = if is_inode { shape.inode_addrs } else { Node::WORDS };
    let word = move |n| if is_inode { inode.addr(&shape, n) } else { Node::of(block).word(n) };
    let count = if has_none || footer.offset() == tree::XATTR_OFFSET { 0 } else { slots };
    (0..count).map(word)
}

/// Pass 1. Errors: of the image, or a new inode whose number is taken; a mount then goes without
/// roll-forward. `find_fsync_dnodes`.
pub(super) fn find(
    s: &mut State<'_>,
    options: &RecoverOptions,
    zones: &ZoneTable,
    out: &mut Recovery,
) -> FsResult<Chain> {
    let rejected = if options.oprw { reject(s, zones, out)? } else { BTreeSet::new() };
    let mut nodes = Vec::new();
    // The chain is read as the image has it; what pass 1 changes is in memory.
    follow(s, &mut |at, _| {
        nodes.push(at);
        Ok(())
    })?;
    out.work.chain_blocks = nodes.len() as u64;
    let mut inodes = FsyncInodes::default();
    for at in &nodes {
        out.nodes_seen += 1;
        out.work.nodes += 1;
        if rejected.contains(at) {
            continue;
        }
        let block = s.t.image.read_block(*at, "f2fs node")?;
        let footer = *Footer::of(&block);
        if !footer.has(Footer::FSYNC) {
            continue;
        }
        let ino = footer.ino.get();
        let is_named = footer.is_inode() && footer.has(Footer::DENTRY);
        let place = match inodes.find(ino, &mut out.work) {
            Some(n) => n,
            None => {
                let made = out.inodes_made;
                if is_named {
                    recover_inode_page(s, &block)?;
                    out.inodes_made += 1;
                }
                match s.get(ino) {
                    Ok(_) => {}
                    // The inode may come later.
                    Err(FsError::NotFound) => {
                        out.nodes_without_inode += 1;
                        continue;
                    }
                    Err(e) => return Err(e),
                }
                out.work.inodes_read += u64::from(made == out.inodes_made);
                inodes.push(ino)
            }
        };
        inodes.mark(place, *at, is_named);
    }
    inodes.end_of_pass();
    Ok(Chain { nodes, rejected, inodes })
}

/// Makes an inode that the checkpoint does not have: its fields, and nothing in it yet.
/// `f2fs_recover_inode_page`.
fn recover_inode_page(s: &mut State<'_>, from: &Block) -> FsResult<()> {
    let ino = Footer::of(from).ino.get();
    if !s.t.nat(ino)?.is_free() {
        let expected = format!("a free number for a new inode (inode {ino})");
        return Err(FsError::corrupt("f2fs node", "footer.nid", 0, ino.into(), expected));
    }
    let has = |bit| s.t.image.super_block().has(bit);
    let mut block = Box::new(ZERO_BLOCK);
    // Everything before the cached run and the words.
    let fields = std::mem::offset_of!(Inode, ext);
    block.iter_mut().zip(from.iter().take(fields)).for_each(|(to, from)| *to = *from);
    let source = Inode::of(from);
    let inode = Inode::of_mut(&mut block);
    inode.size = 0.into();
    inode.blocks = 1.into();
    inode.links = 1.into();
    inode.xattr_nid = 0.into();
    inode.inline = source.inline & (inline::XATTR | inline::EXTRA_ATTR);
    if source.has_inline(inline::EXTRA_ATTR) {
        let (old, new) = (source.extra(), inode.extra_mut());
        new.extra_isize = old.extra_isize;
        if has(feature::FLEXIBLE_INLINE_XATTR)
            && source.has_extra(std::mem::offset_of!(InodeExtra, projid))
        {
            new.inline_xattr_size = old.inline_xattr_size;
        }
        if has(feature::PRJQUOTA)
            && source.has_extra(std::mem::offset_of!(InodeExtra, inode_checksum))
        {
            new.projid = old.projid;
        }
        if has(feature::INODE_CRTIME)
            && source.has_extra(std::mem::offset_of!(InodeExtra, compr_blocks))
        {
            (new.crtime, new.crtime_nsec) = (old.crtime, old.crtime_nsec);
        }
    }
    let footer = Footer::of_mut(&mut block);
    (footer.nid, footer.ino) = (ino.into(), ino.into());
    footer.set_mark(Footer::COLD, true);
    s.t.count_node()?;
    s.t.counts.inodes += 1;
    s.t.set_node(ino, ino, addr::NEW)?;
    s.nodes.insert(ino, block);
    Ok(())
}

/// Pass 2. Errors: as pass 1. `recover_data`.
pub(super) fn replay(
    s: &mut State<'_>,
    mut chain: Chain,
    options: &RecoverOptions,
    out: &mut Recovery,
) -> FsResult<()> {
    let mut nameless = Vec::new();
    let mut before = BTreeMap::new();
    for at in &chain.nodes {
        if chain.rejected.contains(at) {
            continue;
        }
        let block = s.t.image.read_block(*at, "f2fs node")?;
        let footer = *Footer::of(&block);
        let ino = footer.ino.get();
        out.work.nodes += 1;
        let Some(place) = chain.inodes.find(ino, &mut out.work) else { continue };
        let (last, last_dentry) = chain.inodes.marks(place);
        if footer.is_inode() {
            if !options.rules.writes_inodes() {
                before.entry(ino).or_insert(s.node(ino)?);
            }
            recover_inode(s, ino, &block, options.rules)?;
        }
        if last_dentry == Some(*at) {
            recover_dentry(s, ino, &block, options, &mut nameless)?;
            out.names += 1;
            out.work.names += 1;
        }
        if last == *at {
            chain.inodes.leave(place);
        }
        recover_node(s, ino, &block, options, out)?;
        out.nodes_applied += 1;
    }
    out.inodes = chain.inodes.numbers().collect();
    for (ino, block) in before {
        forget_fields(s, ino, Inode::of(&block))?;
    }
    // Files that lost their last name go when nobody holds them any more.
    for ino in nameless {
        if Inode::of(&*s.node(ino)?).links.get() == 0 {
            s.delete(ino)?;
            out.deleted += 1;
        }
    }
    if options.aside {
        // Before anything goes to a new segment: none that the chain is in may be taken for free.
        s.t.leave_alone(&chain.nodes)?;
    }
    s.t.renew_data_logs()
}

/// Nothing marked an inode dirty: its node is written without the fields that were recovered. A new
/// length marks it, and so do new blocks and a new name.
fn forget_fields(s: &mut State<'_>, ino: u32, old: &Inode) -> FsResult<()> {
    if s.changed.contains(&ino) || s.of_node(ino, |b| Inode::of(b).size != old.size)? {
        return Ok(());
    }
    take_fields(s.inode_mut(ino)?, old);
    let inode = s.inode_mut(ino)?;
    (inode.uid, inode.gid) = (old.uid, old.gid);
    Ok(())
}

/// Fields that every version recovers.
fn take_fields(inode: &mut Inode, source: &Inode) {
    inode.mode = source.mode;
    inode.size = source.size;
    (inode.atime, inode.atime_nsec) = (source.atime, source.atime_nsec);
    (inode.ctime, inode.ctime_nsec) = (source.ctime, source.ctime_nsec);
    (inode.mtime, inode.mtime_nsec) = (source.mtime, source.mtime_nsec);
    inode.advise = source.advise;
    inode.flags = source.flags;
    // `i_gc_failures` is the lower half of this word, of regular files only.
    if inode.is_file() {
        inode.current_depth = source.current_depth;
    }
    for bit in [inline::PIN_FILE, inline::DATA_EXIST] {
        inode.set_inline(bit, source.has_inline(bit));
    }
}

/// Takes over the fields of an inode. `recover_inode`.
fn recover_inode(s: &mut State<'_>, ino: u32, from: &Block, rules: Rules) -> FsResult<()> {
    let has_projects = s.t.image.super_block().has(feature::PRJQUOTA);
    let source = Inode::of(from);
    let inode = s.inode_mut(ino)?;
    take_fields(inode, source);
    if !rules.recovers_owners() {
        return Ok(());
    }
    (inode.uid, inode.gid) = (source.uid, source.gid);
    if source.has_inline(inline::EXTRA_ATTR)
        && has_projects
        && source.has_extra(std::mem::offset_of!(InodeExtra, inode_checksum))
    {
        inode.extra_mut().projid = source.extra().projid;
    }
    Ok(())
}

/// Gives a file the name that its inode has. Another file of that name loses it.
/// `recover_dentry`.
fn recover_dentry(
    s: &mut State<'_>,
    ino: u32,
    from: &Block,
    options: &RecoverOptions,
    nameless: &mut Vec<u32>,
) -> FsResult<()> {
    let source = Inode::of(from);
    let dir = source.pino.get();
    let name = source.own_name().to_vec();
    if name.len() as u32 != source.namelen.get() || name.is_empty() {
        return Err(FsError::NameTooLong);
    }
    if source.has_advice(advise::ENC_NAME) {
        return Err(FsError::Unsupported(format!("encrypted name of inode {ino}")));
    }
    s.get(dir)?;
    // Each round takes one holder of the name away.
    while let Some(found) = s.find_name(dir, &name)? {
        if found.ino == ino {
            return Ok(());
        }
        match s.get(found.ino) {
            Err(FsError::NotFound) => return Err(FsError::Exists),
            other => other?,
        };
        if s.remove_name(dir, found, &name, options.now)? {
            nameless.push(found.ino);
        }
    }
    s.changed.insert(ino);
    s.add_name(dir, &name, ino, options.now)
}

/// Takes over attributes, inline data or addresses of one node. `do_recover_data`.
fn recover_node(
    s: &mut State<'_>,
    ino: u32,
    from: &Block,
    options: &RecoverOptions,
    out: &mut Recovery,
) -> FsResult<()> {
    let footer = *Footer::of(from);
    if footer.is_inode() {
        recover_inline_attributes(s, ino, from)?;
    } else if footer.offset() == tree::XATTR_OFFSET {
        return s.replace_attributes(ino, from);
    }
    if recover_inline_data(s, ino, from)? {
        return Ok(());
    }
    let shape = s.get(ino)?;
    let Some(first) = shape.first_block(footer.offset()) else {
        let expected = "a node with addresses";
        let found = footer.offset().into();
        return Err(FsError::corrupt("f2fs node", "footer.flag", 0, found, expected));
    };
    let here = s.find(ino, first, true)?.ok_or(FsError::TooBig)?;
    let word = |block: &Block, slot| match footer.is_inode() {
        true => Inode::of(block).addr(&shape, slot),
        false => Node::of(block).word(slot),
    };
    let mut now = s.node(here.nid)?;
    for slot in 0..shape.addrs_of(footer.offset()) {
        let at = Slot { nid: here.nid, slot };
        let to = word(from, slot);
        out.work.addresses += 1;
        // Nearly all are as they were; what changes one may change another of the node.
        if word(&now, slot) == to && (!addr::is_block(to) || s.t.g.is_main(to)) {
            continue;
        }
        recover_address(s, ino, at, first + u64::from(slot), to, options, out)?;
        s.of_node(here.nid, |block| now.copy_from_slice(block))?;
    }
    // The node takes the marks of the one that was found; its number stays its own.
    let target = s.node_mut(here.nid)?;
    let nid = Footer::of(target).nid;
    *Footer::of_mut(target) = footer;
    Footer::of_mut(target).nid = nid;
    Ok(())
}

fn recover_address(
    s: &mut State<'_>,
    ino: u32,
    at: Slot,
    block: u64,
    to: u32,
    options: &RecoverOptions,
    out: &mut Recovery,
) -> FsResult<()> {
    let from = s.address(ino, at)?;
    for a in [from, to] {
        if addr::is_block(a) && !s.t.g.is_main(a) {
            let expected = format!("a block of the main area (inode {ino})");
            return Err(FsError::corrupt("f2fs node", "addr", 0, a.into(), expected));
        }
    }
    if from == to {
        return Ok(());
    }
    s.changed.insert(ino);
    if to == addr::NULL {
        return s.punch(ino, at);
    }
    let inode = s.inode_mut(ino)?;
    if !inode.has_advice(advise::KEEP_SIZE) && inode.size.get() <= block * 4096 {
        inode.size = ((block + 1) * 4096).into();
    }
    if to == addr::NEW {
        s.punch(ino, at)?;
        return s.reserve(ino, at);
    }
    if to == addr::COMPRESS {
        return Err(FsError::Unsupported(format!("compressed data (inode {ino})")));
    }
    if from == addr::NULL {
        s.reserve(ino, at)?;
    }
    take_from_previous(s, ino, at, to)?;
    if s.t.is_valid(to)? && options.rules.check_destination() {
        let expected = format!("a block that nothing else has (inode {ino})");
        return Err(FsError::corrupt("f2fs node", "addr", 0, to.into(), expected));
    }
    let owner = s.owner_of(at)?;
    s.t.adopt(owner, from, to)?;
    s.set_address(ino, at, to)?;
    out.blocks += 1;
    Ok(())
}

/// Takes a block from the node that had it, as the summaries tell: an older version of the chain
/// may have put it elsewhere. `check_index_in_prev_nodes`.
fn take_from_previous(s: &mut State<'_>, ino: u32, at: Slot, block: u32) -> FsResult<()> {
    if !s.t.is_valid(block)? {
        return Ok(());
    }
    let owner = s.t.owner(block)?;
    let (nid, slot) = (owner.nid.get(), u32::from(owner.ofs_in_node.get()));
    let shape = s.get(ino)?;
    let is_here = at.nid == nid || ino == nid;
    let most = if at.nid == ino { shape.inode_addrs } else { shape.node_addrs };
    if slot >= most {
        let expected = format!("less than {most} (node {nid})");
        return Err(FsError::corrupt("f2fs summary", "ofs_in_node", 0, slot.into(), expected));
    }
    let (other, place) = if is_here {
        (ino, Slot { nid, slot })
    } else {
        let node = s.node(nid)?;
        let footer = *Footer::of(&node);
        let other = footer.ino.get();
        let shape = s.get(other)?;
        let first = shape.first_block(footer.offset());
        let Some(first) = first else { return Ok(()) };
        match s.find(other, first + u64::from(slot), false)? {
            Some(place) => (other, place),
            None => return Ok(()),
        }
    };
    if s.address(other, place)? == block {
        s.punch(other, place)?;
    }
    Ok(())
}

/// Takes over the attributes in an inode. `f2fs_recover_inline_xattr`.
fn recover_inline_attributes(s: &mut State<'_>, ino: u32, from: &Block) -> FsResult<()> {
    let shape = s.get(ino)?;
    let source = Inode::of(from);
    let has = source.has_inline(inline::XATTR);
    let inode = s.inode_mut(ino)?;
    inode.set_inline(inline::XATTR, has);
    if has {
        let bytes = source.xattr_area(&shape);
        let to = inode.xattr_area_mut(&shape);
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
    Ok(())
}

/// Takes over inline data, or makes room for addresses. Was it inline data?
/// `f2fs_recover_inline_data`.
fn recover_inline_data(s: &mut State<'_>, ino: u32, from: &Block) -> FsResult<bool> {
    let shape = s.get(ino)?;
    let had = s.of_node(ino, |block| Inode::of(block).has_inline(inline::DATA))?;
    let is_inode = Footer::of(from).is_inode();
    let source = Inode::of(from);
    if is_inode && source.has_inline(inline::DATA) {
        if !had {
            s.truncate(ino)?;
        }
        let bytes = source.inline_area(&shape);
        let inode = s.inode_mut(ino)?;
        let to = inode.inline_area_mut(&shape);
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        inode.set_inline(inline::DATA | inline::DATA_EXIST, true);
        return Ok(true);
    }
    if had {
        let inode = s.inode_mut(ino)?;
        inode.inline_area_mut(&shape).fill(0);
        inode.set_inline(inline::DATA | inline::DATA_EXIST, false);
    }
    Ok(false)
}
