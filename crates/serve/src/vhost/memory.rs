//! A guest's memory: files that it shares; and addresses of its process in them.
//!
//! Invariant: a client that shortens its memory does not end the server. What is mapped cannot be
//!            shortened (`F_SEAL_SHRINK`, set here if the client permits it: QEMU's memfd does);
//!            anything else (User-Mode Linux' file) is read and written by pread(2) and pwrite(2),
//!            for which a file's end is an error and no SIGBUS.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestRegionMmap, MemoryRegionAddress};

/// Most regions (what vhost-user allows).
pub const MAX_REGIONS: usize = 8;

/// Memory of the guest, by its physical addresses. Requests in flight keep the one that they began
/// with.
pub type Shared = Arc<Regions>;

/// A region as the front end tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Physical address in the guest.
    pub guest: u64,
    /// Bytes.
    pub bytes: u64,
    /// Address in the front end's process, which rings are told by.
    pub user: u64,
    /// Where in its file it begins.
    pub offset: u64,
}

/// A place that cannot be read or written: outside of all regions, or its file was shortened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Physical address.
    pub at: u64,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its memory at {:#x} is not mapped", self.at)
    }
}

/// How a region is reached.
enum Way {
    /// Its file cannot be shortened.
    Mapped(GuestRegionMmap),
    /// By system calls, from this place of the file on.
    File(File, u64),
}

/// What can be read and written.
pub struct Regions {
    /// By physical address.
    regions: Vec<(Region, Way)>,
}

impl Regions {
    /// The region that holds a place, where in it that is, and how many of `bytes` bytes from there
    /// on lie in it: regions may be neighbours.
    fn find(&self, at: u64, bytes: usize) -> Result<(&Way, u64, usize), Fault> {
        let n = self.regions.partition_point(|(r, _)| r.guest <= at).checked_sub(1);
        let (region, way) = n.and_then(|n| self.regions.get(n)).ok_or(Fault { at })?;
        let offset = at - region.guest;
        match region.bytes.checked_sub(offset) {
            None | Some(0) => Err(Fault { at }),
            Some(left) => Ok((way, offset, left.min(bytes as u64) as usize)),
        }
    }

    /// Do these bytes lie in regions? Those may be shortened all the same.
    pub fn holds(&self, mut at: u64, mut bytes: u64) -> bool {
        while bytes > 0 {
            let most = usize::try_from(bytes).unwrap_or(usize::MAX);
            let Ok((_, _, n)) = self.find(at, most) else { return false };
            (at, bytes) = (at + n as u64, bytes - n as u64);
        }
        true
    }

    /// Reads what is at a place. Errors: it is not there.
    pub fn read(&self, mut at: u64, mut out: &mut [u8]) -> Result<(), Fault> {
        while !out.is_empty() {
            let (way, offset, n) = self.find(at, out.len())?;
            let (here, rest) = out.split_at_mut(n);
            let done = match way {
                Way::Mapped(map) => map.read_slice(here, MemoryRegionAddress(offset)).is_ok(),
                Way::File(file, start) => file.read_exact_at(here, start + offset).is_ok(),
            };
            if !done {
                return Err(Fault { at });
            }
            (at, out) = (at + n as u64, rest);
        }
        Ok(())
    }

    /// Writes to a place. Errors: it is not there; then the file of it is not made longer.
    pub fn write(&self, mut at: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let (way, offset, n) = self.find(at, bytes.len())?;
            let (here, rest) = bytes.split_at(n);
            let done = match way {
                Way::Mapped(map) => map.write_slice(here, MemoryRegionAddress(offset)).is_ok(),
                Way::File(file, start) => {
                    let place = start + offset;
                    // One that is shortened between the two grows again, which is its owner's loss.
                    file.metadata().is_ok_and(|m| m.len() >= place + n as u64)
                        && file.write_all_at(here, place).is_ok()
                }
            };
            if !done {
                return Err(Fault { at });
            }
            (at, bytes) = (at + n as u64, rest);
        }
        Ok(())
    }

    /// Reads an index that the guest may be writing, before anything that is read afterwards.
    /// Errors: it is not there.
    pub fn load(&self, at: u64) -> Result<u16, Fault> {
        let read = || match self.find(at, 2)? {
            (Way::Mapped(map), offset, _) => {
                let value = map.load::<u16>(MemoryRegionAddress(offset), Ordering::Acquire);
                value.map(u16::from_le).map_err(|_| Fault { at })
            }
            (Way::File(..), ..) => {
                let mut bytes = [0; 2];
                self.read(at, &mut bytes)?;
                Ok(u16::from_le_bytes(bytes))
            }
        };
        // A system call may copy byte by byte: half of a new index and half of the one before are
        // not read twice.
        let mut value = read()?;
        loop {
            let again = read()?;
            if again == value {
                fence(Ordering::SeqCst);
                return Ok(value);
            }
            value = again;
        }
    }

    /// Writes the index of a used ring at `ring`, after everything that was written before. `first`
    /// is what its first entry names. Errors: it is not there.
    pub fn store_used(&self, ring: u64, index: u16, first: u32) -> Result<(), Fault> {
        fence(Ordering::SeqCst);
        let at = ring + 2;
        match self.find(at, 2)? {
            (Way::Mapped(map), offset, _) => map
                .store(index.to_le(), MemoryRegionAddress(offset), Ordering::Release)
                .map_err(|_| Fault { at }),
            (Way::File(..), ..) if ring.is_multiple_of(8) => {
                // Eight bytes that are aligned are copied as one word, of which the guest sees all
                // or nothing; flags, index and the first name are all ours.
                let [a, b] = index.to_le_bytes();
                let [c, d, e, f] = first.to_le_bytes();
                self.write(ring, &[0, 0, a, b, c, d, e, f])
            }
            (Way::File(..), ..) => self.write(at, &index.to_le_bytes()),
        }
    }
}

/// All regions.
pub struct Memory {
    told: Vec<Region>,
    shared: Shared,
}

impl Memory {
    /// Takes regions of files. Errors: they overlap, are empty or longer than their files; memory
    /// of huge pages that cannot be mapped; the host's.
    pub fn map(told: Vec<Region>, files: Vec<File>) -> Result<Memory, String> {
        if told.is_empty() || told.len() > MAX_REGIONS || told.len() != files.len() {
            return Err(format!("{} regions of memory in {} files", told.len(), files.len()));
        }
        let mut regions = Vec::new();
        for (r, file) in told.iter().zip(files) {
            regions.push((*r, way(r, file)?));
        }
        regions.sort_by_key(|(r, _)| r.guest);
        let overlap = |pair: &[(Region, Way)]| pair[0].0.guest + pair[0].0.bytes > pair[1].0.guest;
        if regions.windows(2).any(overlap) {
            return Err("regions of memory overlap".to_owned());
        }
        Ok(Memory { told, shared: Arc::new(Regions { regions }) })
    }

    /// The memory itself.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The physical address of one of the front end's process.
    pub fn physical(&self, user: u64) -> Option<u64> {
        let region = self.told.iter().find(|r| (r.user..r.user + r.bytes).contains(&user))?;
        region.guest.checked_add(user - region.user)
    }
}

/// How a region can be reached. Errors: it cannot.
fn way(r: &Region, file: File) -> Result<Way, String> {
    const HUGETLBFS: u64 = 0x9584_58f6;
    let host = |e: std::io::Error| format!("a region of memory: {e}");
    // The client can have shortened it until now, and no more after this.
    let sealed = fcntl_add_seals(&file, SealFlags::SHRINK).is_ok()
        || fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let held = file.metadata().map_err(host)?.len();
    let end = r.offset.checked_add(r.bytes).filter(|end| *end <= held);
    let wraps = r.user.checked_add(r.bytes).is_none() || r.guest.checked_add(r.bytes).is_none();
    if r.bytes == 0 || wraps || end.is_none() {
        return Err(format!(
            "a region of {} bytes at {:#x}, from {} on in a file of {held}",
            r.bytes, r.user, r.offset
        ));
    }
    // Where the host has no huge page left the first touch would end the program (SIGBUS), sealed
    // or not; a file of them cannot be read and written either.
    let kind = fstatfs(&file).map_err(|e| host(e.into()))?.f_type;
    if u64::try_from(kind) == Ok(HUGETLBFS) {
        let why = "a region of huge pages; QEMU: memory-backend-memfd without hugetlb=on";
        return Err(why.to_owned());
    }
    if !sealed {
        return Ok(Way::File(file, r.offset));
    }
    let bytes = usize::try_from(r.bytes).map_err(|_| "a region is too long")?;
    let file = FileOffset::new(file, r.offset);
    GuestRegionMmap::from_range(GuestAddress(r.guest), bytes, Some(file))
        .map(Way::Mapped)
        .map_err(|e| format!("a region of memory: {e}"))
}

#[cfg(test)]
mod tests {
    use wp_machine::testing::skipped;

    use super::*;

    fn memory(file: &File) -> Memory {
        let region = Region { guest: 0x1000, bytes: 0x4000, user: 0x70_0000, offset: 0 };
        Memory::map(vec![region], vec![file.try_clone().expect("cloned")]).expect("taken")
    }

    #[test]
    fn memory_that_is_shortened_is_a_fault_and_no_signal() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(0x4000).expect("made");
        let memory = memory(&file);
        let shared = memory.shared();
        shared.write(0x3000, &[7; 16]).expect("there");
        assert_eq!(shared.load(0x3000), Ok(0x0707));
        file.set_len(0x1000).expect("shortened");
        let fault = Err(Fault { at: 0x3000 });
        assert_eq!(shared.read(0x3000, &mut [0; 16]), fault);
        assert_eq!(shared.write(0x3000, &[0; 16]), fault);
        assert_eq!(shared.load(0x3000).map(drop), fault);
        assert_eq!(shared.store_used(0x3000, 1, 0), fault);
        assert_eq!(file.metadata().expect("there").len(), 0x1000, "it does not grow again");
        assert_eq!(shared.read(0x1000, &mut [0; 16]), Ok(()));
    }

    #[test]
    fn memory_that_can_be_sealed_cannot_be_shortened() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let made = memfd_create("guest", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC);
        let file = File::from(made.expect("a file in memory"));
        file.set_len(0x4000).expect("made");
        let memory = memory(&file);
        assert!(matches!(memory.shared().regions[0].1, Way::Mapped(_)));
        assert!(file.set_len(0x1000).is_err());
        memory.shared().store_used(0x2000, 0x1234, 7).expect("there");
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1000).expect("read");
        assert_eq!(bytes, [0, 0, 0x34, 0x12, 0, 0, 0, 0]);
    }

    #[test]
    fn huge_pages_are_refused_sealed_or_not() {
        use rustix::fs::{MemfdFlags, memfd_create};
        const HUGE: u64 = 2 << 20;
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let made = memfd_create("guest", flags).map(File::from);
        let Ok(file) = made.map_err(|e| skipped("huge pages of a guest", &e.to_string())) else {
            return;
        };
        file.set_len(HUGE).expect("a length takes no page");
        let region = Region { guest: 0, bytes: HUGE, user: 0x70_0000, offset: 0 };
        let refused = Memory::map(vec![region], vec![file]).err().expect("refused");
        assert!(refused.contains("huge pages"), "{refused}");
    }

    #[test]
    fn places_outside_are_faults() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(0x4000).expect("made");
        let memory = memory(&file);
        for (at, bytes) in [(0, 1), (0xfff, 2), (0x4fff, 2), (0x5000, 1), (u64::MAX, 2)] {
            assert!(!memory.shared().holds(at, bytes), "{at:#x}");
            assert!(memory.shared().read(at, &mut vec![0; bytes as usize]).is_err(), "{at:#x}");
        }
        assert!(memory.shared().holds(0x1000, 0x4000));
        assert_eq!(memory.physical(0x70_0010), Some(0x1010));
    }
}
