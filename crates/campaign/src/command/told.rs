//! What a check is told of the time of a failure, and what tells two states apart for it.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use wp_crash::{Entry, Outcome};
use wp_workload::program::{Call, Data};

use crate::play::Played;
use crate::story::Cut;

/// A tree and what the program had been told: digest.
pub(super) type Key = [u8; 32];

/// What a check is told of the time of the failure.
pub(super) enum Told {
    /// Calls that had returned, and calls that had been called besides, one a line.
    Calls(String, String),
    /// Lines that had been acknowledged.
    Acked(Vec<u8>),
}

impl Told {
    /// Files by their names, with what is in them.
    pub(super) fn files(&self) -> Vec<(&'static str, &[u8])> {
        match self {
            Told::Calls(returned, called) => {
                vec![("returned", returned.as_bytes()), ("called", called.as_bytes())]
            }
            Told::Acked(lines) => vec![("acked", lines)],
        }
    }
}

/// What is told of a state: calls, or what had been acknowledged.
pub(super) fn told(played: &Played, acks: Option<&Acks>, (begun, ended): (u32, u32)) -> Told {
    if let Some(acks) = acks {
        return Told::Acked(acks.by(ended).to_vec());
    }
    let line = |n: &u32| format!("{}\n", played.ledger.called(*n));
    let answer = |n: &u32| match played.dids.get(*n as usize).map(|d| d.error.is_none()) {
        Some(false) => format!("# {}", line(n)),
        _ => line(n),
    };
    let ends = played.tape.entries.iter().filter_map(|(_, e)| match e {
        Entry::End(n) => Some(*n),
        _ => None,
    });
    let returned: Vec<u32> = ends.take(ended as usize).collect();
    let called = (0..begun).filter(|n| !returned.contains(n));
    Told::Calls(returned.iter().map(answer).collect(), called.map(|n| line(&n)).collect())
}

/// Lines that a program has acknowledged, in their order.
pub(crate) struct Acks {
    /// All of them, each with its line feed.
    lines: Vec<u8>,
    /// How many operations had returned with each, and where its line ends.
    ends: Vec<(u32, usize)>,
}

impl Acks {
    pub(crate) fn of(played: &Played) -> Acks {
        let ended = played.tape.entries.iter().filter_map(|(_, e)| match e {
            Entry::End(n) => Some(*n),
            _ => None,
        });
        let mut acks = Acks { lines: Vec::new(), ends: Vec::new() };
        for (n, count) in ended.zip(1..) {
            let call = played.dids.get(n as usize).map(|did| &did.call);
            if let Some(Call::Ack(Data::Given(line))) = call {
                acks.lines.extend_from_slice(line);
                acks.lines.push(b'\n');
                acks.ends.push((count, acks.lines.len()));
            }
        }
        acks
    }

    /// Those of the first `ended` operations that returned.
    pub(crate) fn by(&self, ended: u32) -> &[u8] {
        let count = self.ends.partition_point(|(n, _)| *n <= ended);
        let end = count.checked_sub(1).map_or(0, |last| self.ends[last].1);
        &self.lines[..end]
    }
}

/// Digest of a state's image: where it is not what the run began with, and what is there. `salt`
/// tells runs apart.
pub(super) fn image_key(cut: &Cut<'_>, salt: u64) -> Key {
    let mut hash = Sha256::new();
    hash.update(salt.to_le_bytes());
    let medium = cut.medium();
    cut.history.frames[0].base.diff(&medium, &mut |at, sectors| {
        hash.update(at.0.to_le_bytes());
        for slice in medium.read(at, sectors) {
            hash.update(slice.len().to_le_bytes());
            hash.update(slice.id().to_le_bytes());
        }
    });
    hash.finalize().into()
}

/// Digest of all that a check can see of a state.
pub(super) fn key(outcome: &Outcome, told: &Told, image: Option<Key>) -> Key {
    let mut hash = Sha256::new();
    let mut put = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    told.files().into_iter().for_each(|(_, text)| put(text));
    put(image.as_ref().map_or(&[], |key| &key[..]));
    let mut first: BTreeMap<u64, usize> = BTreeMap::new();
    for (n, f) in outcome.files.iter().enumerate() {
        // Which names are links of one another, and not which inode they have.
        let link = *first.entry(f.ino).or_insert(n);
        put(f.path.as_bytes());
        put(format!("{:?} {link} {} {:?}", f.kind, f.size, f.target).as_bytes());
        for (block, id) in &f.blocks {
            put(&block.to_le_bytes());
            put(&id.to_le_bytes());
        }
        put(f.tail.as_deref().unwrap_or_default());
    }
    hash.finalize().into()
}
