//! The medium against a naive array of bytes.

use std::cell::RefCell;

use proptest::prelude::*;
use wp_base::{Rng, Sector};
use wp_medium::{Medium, Page, Slice, Spill, Versions, held_and_spilled, spill_to};

/// 160 pages: two levels of nodes, and writes that cross from one to the next.
const SECTORS: u64 = 1280;

#[derive(Clone, Debug)]
enum Step {
    Pattern { at: u64, sectors: u64, tag: u64, by_address: bool },
    Zero { at: u64, sectors: u64 },
    Page { at: u64, from: u32, sectors: u32, fill: u8 },
    Bytes { at: u64, len: usize, fill: u8 },
    Discard { at: u64, sectors: u64 },
    Fork,
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..SECTORS;
    prop_oneof![
        (at.clone(), 1..600u64, 0..2u64, any::<bool>()).prop_map(
            |(at, sectors, tag, by_address)| { Step::Pattern { at, sectors, tag, by_address } }
        ),
        (at.clone(), 1..300u64).prop_map(|(at, sectors)| Step::Zero { at, sectors }),
        (at.clone(), 0..8u32, 1..9u32, any::<u8>()).prop_map(|(at, from, sectors, fill)| {
            Step::Page { at, from, sectors: sectors.min(8 - from), fill }
        }),
        (0..SECTORS * 512, 1..9000usize, any::<u8>()).prop_map(|(at, len, fill)| Step::Bytes {
            at,
            len,
            fill
        }),
        (at, 1..600u64).prop_map(|(at, sectors)| Step::Discard { at, sectors }),
        Just(Step::Fork),
    ]
}

fn apply(step: &Step, medium: &mut Medium, naive: &mut [u8]) {
    let clip = |at: u64, sectors: u64| sectors.min(SECTORS - at);
    let mut put = |medium: &mut Medium, at: u64, slice: Slice| {
        medium.write(Sector(at), &slice);
        let from = at as usize * 512;
        naive[from..from + slice.len() as usize].copy_from_slice(&slice.to_vec());
    };
    match *step {
        Step::Pattern { at, sectors, tag, by_address } => {
            let off = if by_address { at * 512 } else { 0 };
            put(medium, at, Slice::pattern(tag, off, clip(at, sectors) as u32 * 512));
        }
        Step::Zero { at, sectors } => put(medium, at, Slice::zero(clip(at, sectors) as u32 * 512)),
        Step::Page { at, from, sectors, fill } => {
            let page = Page::from_bytes(&[fill; 4096]);
            let n = clip(at, u64::from(sectors)) as u32;
            put(medium, at, Slice::of_page(page, from * 512, n * 512));
        }
        Step::Bytes { at, len, fill } => {
            let len = len.min((SECTORS * 512 - at) as usize);
            let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
            medium.write_bytes(at, &bytes);
            naive[at as usize..at as usize + len].copy_from_slice(&bytes);
        }
        Step::Discard { at, sectors } => {
            let n = clip(at, sectors);
            medium.discard(Sector(at), n);
            naive[at as usize * 512..(at + n) as usize * 512].fill(0);
        }
        Step::Fork => {}
    }
}

fn bytes_of(medium: &Medium, at: u64, sectors: u32) -> Vec<u8> {
    Slice::concat(&medium.read(Sector(at), sectors))
}

/// A file in memory.
#[derive(Default)]
struct InMemory(RefCell<Vec<u8>>);

impl Spill for InMemory {
    fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let mut all = self.0.borrow_mut();
        let end = at as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[at as usize..end].copy_from_slice(bytes);
        true
    }
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        out.copy_from_slice(&self.0.borrow()[at as usize..][..out.len()]);
        true
    }
}

/// Holds what `steps` make against the array that they make.
fn compare(steps: &[Step], probe: u64) -> Result<(), TestCaseError> {
    let (mut medium, mut naive) = (Medium::new(), vec![0u8; SECTORS as usize * 512]);
    let mut forks = vec![(medium.clone(), naive.clone())];
    for s in steps {
        apply(s, &mut medium, &mut naive);
        if matches!(s, Step::Fork) {
            forks.push((medium.clone(), naive.clone()));
        }
    }
    forks.push((medium.clone(), naive.clone()));
    // A fork is what it was when it was made, whatever was written since.
    for (m, n) in &forks {
        prop_assert!(bytes_of(m, 0, SECTORS as u32) == *n);
        let mut out = vec![0u8; 1000];
        let at = probe as usize * 512 % (n.len() - 1000) + 7;
        m.read_bytes(at as u64, &mut out[..993]);
        prop_assert!(out[..993] == n[at..at + 993]);
        let some = (SECTORS - probe).min(11) as u32;
        let expected = &n[probe as usize * 512..][..some as usize * 512];
        prop_assert!(bytes_of(m, probe, some) == expected);
        // What no run covers is zero; runs are apart and in order.
        let mut end = None;
        for (at, sectors) in m.runs() {
            prop_assert!(end.is_none_or(|e| e < at.0), "runs touch at {}", at.0);
            let from = end.unwrap_or(0) as usize * 512;
            prop_assert!(n[from..at.0 as usize * 512].iter().all(|b| *b == 0));
            end = Some(at.0 + sectors);
        }
        let last = (end.unwrap_or(0) as usize * 512).min(n.len());
        prop_assert!(n[last..].iter().all(|b| *b == 0));
    }
    // diff names every sector that differs, and no page in which nothing does.
    for (m, n) in &forks {
        let mut named = vec![false; SECTORS as usize];
        let mut bad = Vec::new();
        medium.diff(m, &mut |at, sectors| {
            let (from, to) = (at.0 as usize, at.0 as usize + sectors as usize);
            named[from..to.min(SECTORS as usize)].fill(true);
            if sectors > 8 || naive[from * 512..to * 512] == n[from * 512..to * 512] {
                bad.push(at);
            }
        });
        prop_assert!(bad.is_empty(), "{bad:?}");
        for (i, named) in named.iter().enumerate() {
            let at = i * 512..(i + 1) * 512;
            prop_assert!(*named || naive[at.clone()] == n[at], "sector {i} differs unnamed");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_of_writes_reads_back_as_from_an_array(
        steps in prop::collection::vec(step(), 1..40),
        probe in 0..SECTORS,
    ) {
        compare(&steps, probe)?;
    }

    #[test]
    fn the_same_with_memory_for_a_few_pages_only(
        steps in prop::collection::vec(step(), 1..40),
        probe in 0..SECTORS,
        budget in 0..200_000usize,
    ) {
        spill_to(Box::<InMemory>::default(), budget);
        let compared = compare(&steps, probe);
        spill_to(Box::<InMemory>::default(), usize::MAX);
        compared?;
    }
}

/// Versions of blocks one behind the other, as a log has them, and whole pages that are alike.
#[test]
fn a_log_that_memory_has_no_room_for_takes_a_tenth_and_reads_back() {
    const PAGES: u64 = 20_000;
    const BUDGET: usize = 1 << 20;
    spill_to(Box::<InMemory>::default(), BUDGET);
    let mut rng = Rng::stream(1, "spill");
    let mut bytes = vec![[0u8; 4096]; 13];
    for block in &mut bytes {
        block.fill_with(|| rng.next_u64() as u8);
    }
    let mut versions = vec![Versions::default(); 7];
    let (mut medium, mut sums, mut most) = (Medium::new(), Vec::new(), 0);
    for n in 0..PAGES {
        let block = n as usize % bytes.len();
        for _ in 0..rng.below(9) {
            bytes[block][rng.below(4096) as usize] = rng.next_u64() as u8;
        }
        let page = match versions.get_mut(block) {
            Some(versions) => versions.next(&bytes[block]),
            None => Page::from_bytes(&bytes[block]),
        };
        medium.write(Sector(n * 8), &Slice::of_page(page, 0, 4096));
        sums.push(wp_base::crc::crc32_le(0, &bytes[block]));
        most = most.max(held_and_spilled().0);
    }
    assert!(most < 2 * BUDGET, "{most} bytes");
    let spilled = held_and_spilled().1;
    assert!(spilled > 0 && spilled < PAGES * 4096 / 10, "{spilled} bytes");
    let read = |n: u64| {
        let mut page = [0; 4096];
        medium.read_bytes(n * 4096, &mut page);
        wp_base::crc::crc32_le(0, &page)
    };
    assert!((0..PAGES).all(|n| read(n) == sums[n as usize]));
    // Back into memory by a write, with all of its neighbours.
    let mut other = medium.clone();
    other.write(Sector(0), &Slice::pattern(1, 0, 4096));
    let mut places = Vec::new();
    other.diff(&medium, &mut |at, sectors| places.push((at.0, sectors)));
    assert_eq!(places, [(0, 8)]);
    drop((medium, other));
    assert_eq!(held_and_spilled().1, 0);
    spill_to(Box::<InMemory>::default(), usize::MAX);
}

#[test]
fn a_512_gb_device_filled_with_one_pattern_is_one_node_path() {
    let mut m = Medium::new();
    let sectors = 512_000_000_000u64 / 512;
    let step = 8 * 1024 * 1024 / 512u64;
    let mut at = 0;
    let mut most = 0;
    while at < sectors {
        let n = step.min(sectors - at);
        m.write(Sector(at), &Slice::pattern(1, at * 512, (n * 512) as u32));
        at += n;
        most = most.max(m.memory_nodes());
    }
    assert!(most < 64, "{most} nodes");
    assert_eq!(m.runs().collect::<Vec<_>>(), vec![(Sector(0), sectors)]);
    let mut got = [0u8; 16];
    m.read_bytes(300_000_000_008, &mut got);
    assert_eq!(got[..], Slice::pattern(1, 300_000_000_008, 16).to_vec());
}

#[test]
fn the_same_page_everywhere_collapses_whatever_holds_it() {
    let page = Page::from_bytes(b"boot");
    let mut m = Medium::new();
    let mut p = Medium::new();
    for i in 0..32 * 32u64 {
        m.write(Sector(i * 8), &Slice::of_page(page.clone(), 0, 4096));
        p.write(Sector(i * 8), &Slice::pattern(5, 0, 4096));
    }
    assert_eq!((m.memory_nodes(), p.memory_nodes()), (0, 0));
    assert_eq!(bytes_of(&p, 4096, 8), Slice::pattern(5, 0, 4096).to_vec());
    // And comes apart again where it is written to.
    p.write(Sector(4096), &Slice::pattern(6, 0, 512));
    assert_eq!(p.memory_nodes(), 3);
    let mut places = Vec::new();
    let mut q = p.clone();
    q.write(Sector(4096), &Slice::pattern(5, 0, 512));
    q.diff(&p, &mut |at, n| places.push((at.0, n)));
    assert_eq!(places, [(4096, 1)]);
    assert_eq!(q.memory_nodes(), 0);
}

#[test]
fn sectors_written_apart_join_into_their_page() {
    let page = Page::from_bytes(b"whole");
    let mut m = Medium::new();
    for i in [3u32, 0, 7, 1, 2, 6, 5, 4] {
        m.write(Sector(u64::from(i)), &Slice::of_page(page.clone(), i * 512, 512));
    }
    assert_eq!(m.read(Sector(0), 8).len(), 1);
    assert_eq!(m.memory_nodes(), 0);
}

#[test]
fn a_medium_that_grows_keeps_what_it_had() {
    let mut m = Medium::new();
    m.write_bytes(100, b"low");
    m.write(Sector(1 << 40), &Slice::pattern(1, 0, 512));
    let mut got = [0u8; 3];
    m.read_bytes(100, &mut got);
    assert_eq!(&got, b"low");
    assert_eq!(m.runs().collect::<Vec<_>>(), vec![(Sector(0), 1), (Sector(1 << 40), 1)]);
    m.discard(Sector(0), 1 << 41);
    assert_eq!((m.runs().count(), m.memory_nodes()), (0, 0));
}

#[test]
fn diff_after_one_write_visits_one_path_only() {
    let mut a = Medium::new();
    for i in 0..100_000u64 {
        a.write(Sector(i * 8), &Slice::from_bytes(&i.to_le_bytes()).to_page_slice());
    }
    let mut b = a.clone();
    b.write(Sector(77_777 * 8), &Slice::pattern(1, 0, 4096));
    let mut places = Vec::new();
    a.diff(&b, &mut |at, n| places.push((at.0, n)));
    assert_eq!(places, [(77_777 * 8, 8)]);
}

trait PageSlice {
    fn to_page_slice(&self) -> Slice;
}
impl PageSlice for Slice {
    fn to_page_slice(&self) -> Slice {
        Slice::of_page(self.to_page(), 0, 4096)
    }
}
