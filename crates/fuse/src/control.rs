//! Files in the root directory that are none of the file system: what a program, or who starts it,
//! tells us there. They are in no listing.

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// Its lines are acknowledgements.
    Ack,
    /// Its lines make the drive fail: steps of a program (`fail write data 0 1`, `heal`).
    Fault,
}

impl Control {
    const ALL: [Control; 2] = [Control::Ack, Control::Fault];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Control::Ack => ".writepath-ack",
            Control::Fault => ".writepath-fault",
        }
    }

    /// The variable that has its path.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Control::Ack => "WRITEPATH_ACK",
            Control::Fault => "WRITEPATH_FAULT",
        }
    }

    /// Its node and its handle; no file has them.
    pub(crate) const fn node(self) -> u64 {
        (1 << 62) + self as u64
    }

    pub(crate) fn named(name: &[u8]) -> Option<Control> {
        Control::ALL.into_iter().find(|c| c.name().as_bytes() == name)
    }

    pub(crate) fn of(node: u64) -> Option<Control> {
        Control::ALL.into_iter().find(|c| c.node() == node)
    }
}

/// The extended attribute of the root directory that is asked for when a program has ended.
pub(crate) const END: &str = "user.writepath-end";

/// Longest part of a line that is kept while its end has not come, bytes.
const LINE_MAX: usize = 1 << 20;

/// Makes lines of what is written in pieces.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// The lines that end in `bytes`.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => whole.push(std::mem::take(&mut self.0)),
                byte if self.0.len() < LINE_MAX => self.0.push(*byte),
                _ => {}
            }
        }
        whole
    }

    /// A last line without an end.
    pub(crate) fn rest(self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then_some(self.0)
    }
}
