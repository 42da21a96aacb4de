//! In which order the flusher visits what is dirty, and how often.

use std::cell::RefCell;
use std::rc::Rc;

use wp_base::Time;
use wp_block::{
    Admit, BlockQueue, CrashView, DevRequest, DeviceModel, Effects, Limits, QueueConfig,
};
use wp_cache::{Fut, Mapping, WbControl, WbOps, WbPolicy, Writeback};
use wp_medium::Medium;
use wp_rt::Rt;

/// A device that nothing is written to here.
struct Nothing;

impl DeviceModel for Nothing {
    fn limits(&self) -> &Limits {
        const { &Limits::plain(1024) }
    }
    fn submit(&mut self, _: Time, rq: DevRequest, fx: &mut Effects) -> Admit {
        fx.complete(rq.id);
        Admit::Accepted
    }
    fn timer(&mut self, _: Time, _: u64, _: &mut Effects) {}
    fn crash_view(&self, _: Time) -> CrashView {
        CrashView { medium: Medium::new(), loss: Vec::new(), zones: None }
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Nothing)
    }
    fn medium(&self) -> Medium {
        Medium::new()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// What the flusher did: `a` for blocks of `a`, `a'` for what its owner keeps elsewhere.
type Log = Rc<RefCell<Vec<String>>>;

/// A file whose inode is kept in a block of `nodes`; without `nodes` that mapping itself.
struct File {
    name: &'static str,
    log: Log,
    nodes: Option<Rc<Mapping>>,
}

fn dirty(map: &Rc<Mapping>, block: u64) {
    map.mark_dirty(&map.get(block));
}

fn clean(map: &Mapping) {
    for block in map.tagged(0, u64::MAX, usize::MAX) {
        map.clear_dirty(&map.get(block));
        map.drop_tag(block);
    }
}

impl WbOps for File {
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            if self.nodes.is_none() && !wbc.sync {
                // As F2FS does with its nodes.
                wbc.skipped.set(wbc.skipped.get() + 1);
                return Ok(());
            }
            self.log.borrow_mut().push(self.name.to_owned());
            wbc.budget.set(wbc.budget.get() - 1);
            clean(map);
            Ok(())
        })
    }

    fn write_inode<'a>(&'a self, _: &'a Rc<Mapping>) -> Option<Fut<'a, ()>> {
        let nodes = self.nodes.clone()?;
        Some(Box::pin(async move {
            self.log.borrow_mut().push(format!("{}'", self.name));
            dirty(&nodes, 0);
            Ok(())
        }))
    }
}

struct World {
    rt: Rt,
    wb: Rc<Writeback>,
    log: Log,
    nodes: Rc<Mapping>,
    owners: Vec<Rc<File>>,
}

impl World {
    fn new() -> World {
        let rt = Rt::new(0);
        let queue = BlockQueue::new(&rt, QueueConfig::default(), Box::new(Nothing));
        let wb = Writeback::new(&rt, queue.whole(), WbPolicy::default());
        let nodes = Mapping::new(&rt, "nodes", 4096, &wb);
        let mut w = World { rt, wb, log: Log::default(), nodes, owners: Vec::new() };
        let nodes = w.nodes.clone();
        w.own(&nodes, "nodes", None);
        w
    }

    fn own(&mut self, map: &Rc<Mapping>, name: &'static str, nodes: Option<Rc<Mapping>>) {
        let owner = Rc::new(File { name, log: self.log.clone(), nodes });
        let ops: Rc<dyn WbOps> = owner.clone();
        map.set_ops(Rc::downgrade(&ops));
        self.owners.push(owner);
    }

    fn file(&mut self, name: &'static str) -> Rc<Mapping> {
        let map = Mapping::new(&self.rt, "file", 4096, &self.wb);
        let nodes = Some(self.nodes.clone());
        self.own(&map, name, nodes);
        map
    }

    /// What a sync has the flusher do.
    fn sync(&self, sync: bool) -> String {
        let wb = self.wb.clone();
        let done = self.rt.block_on("sync", async move { wb.write_files(sync).await });
        assert!(done.is_ok(), "{done:?}");
        self.log.take().join(" ")
    }
}

#[test]
fn what_a_round_makes_dirty_is_in_the_next() {
    let mut w = World::new();
    let (a, b) = (w.file("a"), w.file("b"));
    dirty(&a, 0);
    a.mark_inode_dirty();
    dirty(&b, 0);
    b.mark_inode_dirty();
    assert_eq!(w.sync(true), "a a' b b' nodes");
    assert_eq!(w.sync(true), "");
    // The nodes are before the second file: they are written for each.
    dirty(&a, 0);
    dirty(&w.nodes, 0);
    b.mark_inode_dirty();
    assert_eq!(w.sync(true), "a nodes b' nodes");
}

#[test]
fn new_times_alone_are_last_and_only_for_who_waits() {
    let mut w = World::new();
    let (a, b) = (w.file("a"), w.file("b"));
    a.mark_times_dirty();
    dirty(&b, 0);
    assert_eq!(w.sync(false), "b");
    dirty(&w.nodes, 0);
    assert_eq!(w.sync(true), "nodes a' nodes");
    // With something else they go with that, at its place.
    dirty(&a, 0);
    a.mark_times_dirty();
    dirty(&w.nodes, 0);
    assert_eq!(w.sync(true), "a a' nodes");
}

#[test]
fn times_are_owed_until_the_owner_is_asked_whoever_wrote_them() {
    let mut w = World::new();
    let a = w.file("a");
    a.mark_times_dirty();
    a.take_times();
    assert_eq!(w.sync(false), "a'");
    // Not the second time: nothing is owed.
    a.take_times();
    assert_eq!(w.sync(true), "nodes");
}

#[test]
fn a_file_that_another_wrote_keeps_its_place() {
    let mut w = World::new();
    let (a, b) = (w.file("a"), w.file("b"));
    dirty(&a, 0);
    clean(&a);
    dirty(&b, 0);
    dirty(&a, 1);
    assert_eq!(w.sync(true), "a b");
    // Once the flusher has looked it has none any more.
    dirty(&a, 0);
    clean(&a);
    assert_eq!(w.sync(true), "");
    dirty(&b, 0);
    dirty(&a, 1);
    assert_eq!(w.sync(true), "b a");
}

#[test]
fn an_owner_that_is_written_apart_leaves_the_list_or_goes_to_its_end() {
    let mut w = World::new();
    let (a, b, c) = (w.file("a"), w.file("b"), w.file("c"));
    a.mark_inode_dirty();
    dirty(&b, 0);
    b.mark_inode_dirty();
    dirty(&c, 0);
    let (wb, both) = (w.wb.clone(), [a, b]);
    let task = async move {
        for map in &both {
            wb.write_owner(map).await.expect("written");
        }
    };
    w.rt.block_on("checkpoint", task).expect("it ends");
    assert_eq!(w.log.take().join(" "), "a' b'");
    assert_eq!(w.sync(true), "c nodes b");
    let gone = w.file("gone");
    dirty(&gone, 0);
    clean(&gone);
    w.wb.forget(&gone);
    assert!(gone.is_idle());
    assert_eq!(w.sync(true), "");
}
