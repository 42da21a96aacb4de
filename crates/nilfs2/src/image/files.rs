//! Contents, names and link targets of files.

use wp_base::{FsError, FsResult};
use wp_vfs::{Digest, FileType, Part, TakePart};

use crate::disk::{dir, ino};

use super::{Image, Record};

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirName {
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: u64,
    /// Type, as the entry has it; `None`: it does not tell.
    pub kind: Option<FileType>,
}

impl Image<'_> {
    /// The names of a directory but `.` and `..`, in order of their places.
    ///
    /// Errors: `Corrupt` for a hole, an entry that contradicts itself, a reserved inode.
    pub fn names(&self, file: &Record) -> FsResult<Vec<DirName>> {
        let g = self.geometry();
        if !file.inode.is_dir() {
            return Err(FsError::NotDir);
        }
        let blocks = file.inode.size.get() >> g.block_bits;
        let mut names = Vec::new();
        let mut next = 0;
        self.each_block(file, &mut |key, place| {
            if key >= blocks {
                return Ok(());
            }
            if key != next {
                return Err(self.dir_hole(file, next));
            }
            next = key + 1;
            let block = self.read_block(place, "nilfs2 directory")?;
            for slot in dir::slots(&block, g.byte_of(place))? {
                let number = slot.entry.inode.get();
                if number == 0 || slot.name == b"." || slot.name == b".." {
                    continue;
                }
                if number < g.first_ino && number != ino::ROOT {
                    let at = g.byte_of(place) + slot.at as u64;
                    let expected = format!("{} or more", g.first_ino);
                    return Err(FsError::corrupt(
                        "nilfs2 directory entry",
                        "inode",
                        at,
                        number,
                        expected,
                    ));
                }
                names.push(DirName {
                    name: slot.name.to_vec(),
                    ino: number,
                    kind: FileType::from_entry(slot.entry.file_type),
                });
            }
            Ok(())
        })?;
        if next < blocks {
            return Err(self.dir_hole(file, next));
        }
        Ok(names)
    }

    fn dir_hole(&self, file: &Record, block: u64) -> FsError {
        let expected = format!("a block {block} of directory {}", file.ino);
        FsError::corrupt("nilfs2 directory", "block map", file.at, 0, expected)
    }

    /// Where a symbolic link leads. Errors: `Corrupt` for one that is empty or longer than a block.
    pub fn link_target(&self, file: &Record) -> FsResult<Vec<u8>> {
        let size = file.inode.size.get();
        let most = self.geometry().block_bytes() as u64;
        if !file.inode.is_symlink() {
            return Err(FsError::Invalid("readlink: no symbolic link"));
        }
        let place = self.block_of(file, 0)?;
        let (Some(place), 1..) = (place, size) else {
            let expected = "a target";
            return Err(FsError::corrupt("nilfs2 symlink", "i_size", file.at, size, expected));
        };
        if size > most {
            let expected = format!("1 to {most}");
            return Err(FsError::corrupt("nilfs2 symlink", "i_size", file.at, size, expected));
        }
        let mut block = self.read_block(place, "nilfs2 symlink")?;
        block.truncate(size as usize);
        let end = block.iter().position(|b| *b == 0).unwrap_or(block.len());
        block.truncate(end);
        Ok(block)
    }

    /// Digest of a file's contents. `bytes_left`: data that may still be read.
    pub fn sha256(&self, file: &Record, bytes_left: &mut u64) -> FsResult<Digest> {
        Digest::of(bytes_left, |each| self.read_file(file, each))
    }

    /// The contents of a file, in order, in pieces; what has no block as a number of zeroes.
    ///
    /// Errors: of the block map and of `each`.
    pub fn read_file(&self, file: &Record, each: &mut TakePart<'_>) -> FsResult<()> {
        let bytes = self.geometry().block_bytes() as u64;
        let size = file.inode.size.get();
        let mut done = 0u64;
        self.each_block(file, &mut |key, place| {
            let Some(at) = key.checked_mul(bytes).filter(|at| *at < size) else { return Ok(()) };
            each(Part::Zeroes(at - done))?;
            let block = self.read_block(place, "nilfs2 data")?;
            let n = bytes.min(size - at);
            each(Part::Bytes(block.get(..n as usize).unwrap_or(&[])))?;
            done = at + n;
            Ok(())
        })?;
        each(Part::Zeroes(size - done))
    }
}
