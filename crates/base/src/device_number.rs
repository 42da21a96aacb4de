//! Numbers of devices, in the forms that file systems store.
//!
//! Source: include/linux/kdev_t.h.

/// A device's number, as `mknod` takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct DeviceNumber {
    /// Of the driver: 12 bits.
    pub major: u32,
    /// Of the device: 20 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// What the kernel has in memory, and btrfs on disk (`MKDEV`).
    pub const fn kernel(self) -> u32 {
        self.major << 20 | self.minor & 0xF_FFFF
    }

    /// From that.
    pub const fn of_kernel(dev: u32) -> DeviceNumber {
        DeviceNumber { major: dev >> 20, minor: dev & 0xF_FFFF }
    }

    /// What ext4, F2FS and NILFS2 store of numbers that 16 bits cannot hold (`new_encode_dev`).
    pub const fn wide(self) -> u32 {
        self.minor & 0xFF | self.major << 8 | (self.minor & !0xFF) << 12
    }

    /// From that.
    pub const fn of_wide(dev: u32) -> DeviceNumber {
        DeviceNumber { major: (dev & 0xF_FF00) >> 8, minor: dev & 0xFF | (dev >> 12) & 0xF_FF00 }
    }

    /// The 16 bits that old kernels stored; `None`: too large for them (`old_valid_dev`).
    pub const fn narrow(self) -> Option<u32> {
        match self.major < 256 && self.minor < 256 {
            true => Some(self.major << 8 | self.minor),
            false => None,
        }
    }

    /// From the two words that ext4 and F2FS have in the place of block addresses: the 16 bits, or
    /// 0 and the wide form.
    pub const fn of_words(narrow: u32, wide: u32) -> DeviceNumber {
        match narrow {
            0 => DeviceNumber::of_wide(wide),
            _ => DeviceNumber { major: narrow >> 8 & 0xFF, minor: narrow & 0xFF },
        }
    }

    /// The two words (`ext4_set_inode_rdev`: `i_block[0]`, `i_block[1]`).
    pub const fn words(self) -> (u32, u32) {
        match self.narrow() {
            Some(narrow) => (narrow, 0),
            None => (0, self.wide()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_as_it_was_written() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (255, 255), (256, 0), (4095, 0xF_FFFF)] {
            let n = DeviceNumber { major, minor };
            assert_eq!(DeviceNumber::of_kernel(n.kernel()), n);
            assert_eq!(DeviceNumber::of_wide(n.wide()), n);
            let (narrow, wide) = n.words();
            assert_eq!(DeviceNumber::of_words(narrow, wide), n);
        }
        // `stat` prints 0x103 of /dev/null.
        assert_eq!(DeviceNumber { major: 1, minor: 3 }.words(), (0x103, 0));
    }
}
