//! The allocator of the command and of the benches, told how simulations use memory.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;

/// `mi_option_purge_delay` of mimalloc 2: milliseconds after which free memory is given back to the
/// host, 10 by default; -1: never. The crate of its C functions has no name for it.
const PURGE_DELAY: c_int = 15;

/// Keeps what is freed. A machine's pages are freed and allocated again all the time: a host that
/// gets them back zeroes each anew, which was a fifth of the time of an overwrite with fsync. The
/// most that a run needs is the same. To be called first; does nothing where mimalloc is not the
/// allocator.
pub fn keep_freed() {
    #[expect(unsafe_code, reason = "a C function that stores a number")]
    // SAFETY: the option exists in this version, which the test below reads back; any number may be
    // stored, from any thread.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, -1);
    }
}

/// mimalloc, called without an alignment where it aligns by itself: a call with an alignment takes
/// twice the instructions. Creating a file takes twenty small allocations.
pub struct Allocator;

/// What every piece of mimalloc is aligned to that is as large (`MI_MAX_ALIGN_SIZE`).
const ALIGNED: usize = 16;

/// Is a piece of this layout aligned in any case? The part of mimalloc's own answer
/// (`mi_malloc_is_naturally_aligned`) that holds whatever it rounds the size to.
#[inline]
const fn is_natural(layout: &Layout) -> bool {
    layout.align() <= ALIGNED && layout.align() <= layout.size()
}

#[expect(unsafe_code, reason = "an allocator is unsafe to write and to call")]
// SAFETY: every piece is mimalloc's, which takes it back whichever way it was asked for; one that
// is asked for without an alignment is aligned to 16 bytes, or to its size if that is smaller.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's, and mimalloc takes any size and power of two.
        unsafe {
            if is_natural(&layout) {
                libmimalloc_sys::mi_malloc(layout.size()).cast()
            } else {
                libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_natural(&layout) {
                libmimalloc_sys::mi_zalloc(layout.size()).cast()
            } else {
                libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, _: Layout) {
        // SAFETY: the caller's: it is one of ours.
        unsafe { libmimalloc_sys::mi_free(piece.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's: it is one of ours, aligned as `layout` says, which mimalloc keeps
        // for the new one, of any size; where there is no room the old one stays.
        unsafe { libmimalloc_sys::mi_realloc_aligned(piece.cast(), size, layout.align()).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_delay_of_purges() {
        #[expect(unsafe_code, reason = "a C function that reads a number")]
        // SAFETY: the option exists.
        let read = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // Of its options only this one has this default; the next, which the crate has a name for,
        // is the count of NUMA nodes.
        assert_eq!(PURGE_DELAY + 1, libmimalloc_sys::mi_option_use_numa_nodes);
        assert_eq!(read(), 10);
        keep_freed();
        assert_eq!(read(), -1);
    }

    #[test]
    fn pieces_are_aligned_as_asked_for_and_keep_their_bytes() {
        for size in 1..600usize {
            for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                #[expect(unsafe_code, reason = "an allocator's functions are unsafe to call")]
                // SAFETY: the piece is written and read within its size, and freed once.
                unsafe {
                    let piece = Allocator.alloc(layout);
                    assert!(piece.addr().is_multiple_of(align), "{size} {align}");
                    piece.write_bytes(7, size);
                    let piece = Allocator.realloc(piece, layout, 3 * size);
                    assert!(piece.addr().is_multiple_of(align), "{size} {align}");
                    assert!((0..size).all(|i| piece.add(i).read() == 7));
                    let larger = Layout::from_size_align(3 * size, align).expect("a layout");
                    Allocator.dealloc(piece, larger);
                    let piece = Allocator.alloc_zeroed(layout);
                    assert!(piece.addr().is_multiple_of(align), "{size} {align}");
                    assert!((0..size).all(|i| piece.add(i).read() == 0));
                    Allocator.dealloc(piece, layout);
                }
            }
        }
    }

    #[test]
    fn pieces_of_all_sizes_live_side_by_side_shrink_and_come_back_zeroed() {
        let sizes = [1, 7, 24, 1000, 4096, 4160, 40_000, 200_000, 3 << 20, 20 << 20];
        for align in [1, 8, 16, 64, 4096, 1 << 16, 1 << 20] {
            let layout = |size| Layout::from_size_align(size, align).expect("a layout");
            #[expect(unsafe_code, reason = "an allocator's functions are unsafe to call")]
            // SAFETY: each piece is written and read within its size while it lives, and freed once
            // with the layout that it has then.
            unsafe {
                let pieces = sizes.map(|size| (Allocator.alloc(layout(size)), size));
                (1..).zip(&pieces).for_each(|(tag, (piece, size))| piece.write_bytes(tag, *size));
                for (tag, (piece, size)) in (1u8..).zip(pieces) {
                    let less = size.div_ceil(3);
                    let piece = Allocator.realloc(piece, layout(size), less);
                    assert!(piece.addr().is_multiple_of(align), "{size} {align}");
                    let kept = std::slice::from_raw_parts(piece, less);
                    assert!(kept.iter().all(|b| *b == tag), "{size} {align}");
                    Allocator.dealloc(piece, layout(less));
                    let again = Allocator.alloc_zeroed(layout(less));
                    assert!(again.addr().is_multiple_of(align), "{size} {align}");
                    let zeroes = std::slice::from_raw_parts(again, less);
                    assert!(zeroes.iter().all(|b| *b == 0), "{size} {align}");
                    again.write_bytes(9, less);
                    Allocator.dealloc(again, layout(less));
                }
            }
        }
    }
}
