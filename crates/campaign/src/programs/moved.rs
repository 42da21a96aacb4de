//! Programs whose directories get other names, with files made in them that are synced.

use wp_workload::program::{Call, Program, Step};

use super::{BLOCK, CREATE, READ, Writer};

const NAPS: [u64; 3] = [0, 3_000, 6_000_000];
const FD: u32 = 0;
const ROOT_FD: u32 = 1;

/// Directories that are made, renamed and filled; files in them are written and synced. Now and
/// then everything is.
pub fn directories(seed: u64) -> Program {
    let mut w = Writer::new(seed, "programs that move directories");
    w.open(ROOT_FD, ".", READ);
    let mut dirs: Vec<String> = vec!["d0".to_owned(), "d1".to_owned()];
    for dir in &dirs {
        w.call(Call::Mkdir(dir.clone()));
    }
    w.call(Call::Syncfs(ROOT_FD));
    w.steps.push(Step::Case("move".to_owned()));
    for n in 2..12u32 {
        let which = w.below(dirs.len() as u64) as usize;
        match w.below(10) {
            0..=2 => {
                let new = format!("d{n}");
                w.call(Call::Rename(dirs[which].clone(), new.clone()));
                dirs[which] = new;
            }
            3..=7 => {
                // A name of its own: a file that a checkpoint has keeps the directory's old name.
                let name = format!("{}/f{n}", dirs[which]);
                w.open(FD, &name, CREATE);
                if w.below(2) == 0 {
                    w.write(FD, 0, BLOCK);
                }
                w.call(Call::Fsync(FD));
                w.call(Call::Close(FD));
            }
            8 => w.call(Call::Syncfs(ROOT_FD)),
            _ => w.nap(&NAPS),
        }
    }
    Program(w.steps)
}
