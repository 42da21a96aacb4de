//! Memory that an input takes: beyond a limit there is none.

#![expect(unsafe_code, reason = "an allocator that counts, and else is the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Most bytes that an input may hold beyond what was held before it.
const BYTES_MAX: i64 = 512 << 20;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(i64::MAX) };
}

struct Meter;

#[global_allocator]
static METER: Meter = Meter;

/// While this lives, its thread may take so much more than it held.
pub struct Limit;

impl Limit {
    /// From now on.
    pub fn begin() -> Limit {
        MOST.set(LIVE.get() + BYTES_MAX);
        Limit
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        MOST.set(i64::MAX);
    }
}

/// Is there room for `bytes` bytes more? They are counted if so.
fn take(bytes: i64) -> bool {
    LIVE.with(|live| {
        let now = live.get() + bytes;
        let has_room = bytes <= 0 || MOST.with(|most| now <= most.get());
        if has_room {
            live.set(now);
        }
        has_room
    })
}

// SAFETY: every request goes to the system's allocator unchanged, or is refused with null, which an
// allocator may do.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size() as i64) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size() as i64) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size as i64 - layout.size() as i64) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above; what it was given came from the system.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        take(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
