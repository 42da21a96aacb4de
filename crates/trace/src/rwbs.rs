//! The letters that stand for an operation and its flags, such as `FWFS`, read.
//!
//! Source: blkparse(1), "RWBS"; the order is that of `wp_base::event::rwbs`, which writes them.
//! Letters of later kernels: `DE` a secure erase, `Z…` operations on zones (6.16), `U` an atomic
//! write (6.11); of earlier ones `B`, a barrier (until 2.6.36).

use wp_base::event::{Flags, Op};

use crate::item::{Skip, Step};

/// The operation that letters name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Read,
    Write,
    Discard,
    Flush,
    /// `N`: none of these. With sectors it writes zeroes (`REQ_OP_WRITE_ZEROES`) or appends to a
    /// zone: every other operation of this letter has none.
    Neither,
    /// An operation on zones that carries no data.
    Zone,
}

/// Reads letters; `None` if they are none.
pub(crate) fn parse(text: &str) -> Option<(Named, Flags)> {
    let mut flags = Flags::NONE;
    let mut rest = text.as_bytes();
    if let [b'F', b'D' | b'W' | b'R' | b'N' | b'F' | b'Z', ..] = rest {
        flags |= Flags::PREFLUSH;
        rest = &rest[1..];
    }
    let (named, used) = match rest {
        [b'D', b'E', ..] => (Named::Discard, 2),
        [b'D', ..] => (Named::Discard, 1),
        [b'W', ..] => (Named::Write, 1),
        [b'R', ..] => (Named::Read, 1),
        [b'N', ..] => (Named::Neither, 1),
        [b'F', ..] => (Named::Flush, 1),
        [b'Z', b'A', ..] => (Named::Write, 2),
        [b'Z', b'R', b'A', ..] => (Named::Zone, 3),
        [b'Z', b'R' | b'O' | b'C' | b'F', ..] => (Named::Zone, 2),
        _ => return None,
    };
    for letter in &rest[used..] {
        flags |= match letter {
            b'F' => Flags::FUA,
            b'A' => Flags::RAHEAD,
            b'S' => Flags::SYNC,
            b'M' => Flags::META,
            // An atomic write is a write; a barrier of old was a flush before and after.
            b'U' => Flags::NONE,
            b'B' => Flags::PREFLUSH | Flags::FUA,
            _ => return None,
        };
    }
    Some((named, flags))
}

/// What a request of `sectors` sectors does: the operation, and whether it leaves zeroes; or why it
/// is no request.
pub(crate) fn operation(named: Named, flags: Flags, sectors: u32) -> Result<(Op, bool), Skip> {
    match (named, sectors) {
        (Named::Zone, _) => Err(Skip::Zone),
        (Named::Flush, _) => Ok((Op::Flush, false)),
        (_, 0) if flags.has(Flags::PREFLUSH) => Ok((Op::Flush, false)),
        (_, 0) => Err(Skip::NoData),
        (Named::Read, _) => Ok((Op::Read, false)),
        (Named::Write, _) => Ok((Op::Write, false)),
        (Named::Neither, _) => Ok((Op::Write, true)),
        (Named::Discard, _) => Ok((Op::Discard, false)),
    }
}

/// As [`operation`], of a step at a sector. The flush machine of the kernel completes an empty
/// flush as a write of nothing at sector 0.
pub(crate) fn of_step(
    step: Step,
    named: Named,
    flags: Flags,
    at: u64,
    sectors: u32,
) -> Result<(Op, bool), Skip> {
    match operation(named, flags, sectors) {
        Err(Skip::NoData) if step == Step::Complete && at == 0 => Ok((Op::Flush, false)),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::event::rwbs;

    #[test]
    fn what_we_write_is_read_back() {
        for bits in 0..32 {
            let flags = Flags(bits);
            for (op, sectors) in [(Op::Read, 8), (Op::Write, 8), (Op::Discard, 8), (Op::Flush, 0)] {
                let flags = if op == Op::Flush { flags | Flags::PREFLUSH } else { flags };
                let text = rwbs(op, flags);
                let (named, read) = parse(&text).expect("letters of ours");
                assert_eq!(operation(named, read, sectors), Ok((op, false)), "{text}");
                if text != "FF" {
                    assert_eq!(read, flags, "{text}");
                }
            }
        }
    }

    #[test]
    fn letters_of_other_kernels() {
        let op = |text: &str, sectors| {
            let (named, flags) = parse(text)?;
            Some((operation(named, flags, sectors), flags))
        };
        let (sync, pre) = (Flags::SYNC, Flags::PREFLUSH);
        assert_eq!(op("NS", 8), Some((Ok((Op::Write, true)), sync)));
        assert_eq!(op("N", 0), Some((Err(Skip::NoData), Flags::NONE)));
        assert_eq!(op("FN", 0), Some((Ok((Op::Flush, false)), pre)));
        assert_eq!(op("FF", 0), Some((Ok((Op::Flush, false)), pre)));
        assert_eq!(op("F", 0), Some((Ok((Op::Flush, false)), Flags::NONE)));
        assert_eq!(op("FS", 0), Some((Ok((Op::Flush, false)), sync)));
        assert_eq!(op("DE", 8), Some((Ok((Op::Discard, false)), Flags::NONE)));
        assert_eq!(op("ZAS", 8), Some((Ok((Op::Write, false)), sync)));
        assert_eq!(op("ZRAS", 0), Some((Err(Skip::Zone), sync)));
        assert_eq!(op("WBS", 8), Some((Ok((Op::Write, false)), pre | Flags::FUA | sync)));
        for none in ["", "X", "WX", "S", "é", "Z", "+"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
