//! The allocator of the command and of the benches, told how simulations use memory.

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
}
