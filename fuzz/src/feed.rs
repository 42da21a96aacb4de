//! A fuzzer's bytes, taken one value after the other; zero when there are none left.

/// What is left of an input.
pub struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    /// All of it.
    pub fn new(bytes: &'a [u8]) -> Feed<'a> {
        Feed(bytes)
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `n` bytes.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn word<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(self.bytes(N)) {
            *to = *from;
        }
        out
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.word::<1>()[0]
    }
    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.word())
    }
    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.word())
    }
    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.word())
    }
    /// One of a list, by a byte; the list is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::from(self.u8()) % list.len()]
    }
}
