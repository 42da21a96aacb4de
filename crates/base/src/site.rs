//! Crash-safety points: the steps of the code that make a crash safe. Each can be left out.
//!
//! Picture:    every flush, FUA, wait, checksum and ordering edge asks its [`Site`] whether to
//!             do it ([`Site::on`]); a mutation run arms one on its thread
//!             ([`Site::leave_out`]), plays programs, and looks whether any state after a power cut
//!             shows it. A step that no oracle misses has no test, or no reason.
//! Invariants: 1. nothing is armed but between [`Site::leave_out`] and the drop of what it returns,
//!                and on that thread only;
//!             2. a site is asked where the step would be done, and nowhere else, so that
//!                [`Armed::reached`] counts steps that were left out;
//!             3. a crate's sites stand in one table ([`crate::sites!`]); `list sites` prints it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// What kind of step it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A cache flush is sent.
    Flush,
    /// A write is forced to the medium.
    Fua,
    /// Something is waited for before what follows is sent or returned.
    Wait,
    /// Something is written, and must be by then.
    Write,
    /// One change comes before another, or in the same transaction.
    Order,
    /// A checksum is computed.
    Checksum,
}

impl Kind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Flush => "flush",
            Kind::Fua => "fua",
            Kind::Wait => "wait",
            Kind::Write => "write",
            Kind::Order => "order",
            Kind::Checksum => "checksum",
        }
    }
}

/// A step that can be left out. Made by [`crate::sites!`] only: it is told from others by where it
/// is.
#[derive(Debug)]
pub struct Site {
    /// Its name: `crate/part/step`.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// What holds by it.
    pub what: &'static str,
    /// File that asks it, from the root of the workspace.
    pub file: &'static str,
}

/// What a thread does with the sites that it asks.
#[derive(Clone, Copy)]
enum Mode {
    /// Nothing: every step is done.
    Off,
    /// This one is left out.
    Out(&'static Site),
    /// Every step is done, and noted.
    Watch,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Off) };
    static REACHED: Cell<u64> = const { Cell::new(0) };
    static ASKED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

impl Site {
    /// Is the step to be done? Always, unless this thread has armed it.
    #[inline]
    pub fn on(&'static self) -> bool {
        match MODE.get() {
            Mode::Off => true,
            mode => self.look(mode),
        }
    }

    #[cold]
    fn look(&'static self, mode: Mode) -> bool {
        let left_out = match mode {
            Mode::Out(site) => std::ptr::eq(self, site),
            Mode::Watch => {
                ASKED.with_borrow_mut(|a| a.insert(self.name));
                false
            }
            Mode::Off => false,
        };
        REACHED.set(REACHED.get() + u64::from(left_out));
        !left_out
    }

    /// Leaves the step out on this thread until the answer is dropped. Panics if another is armed.
    pub fn leave_out(&'static self) -> Armed {
        Armed::new(Mode::Out(self))
    }
}

/// Notes which sites this thread asks until the answer is dropped. Panics if one is armed.
pub fn watch() -> Armed {
    Armed::new(Mode::Watch)
}

/// A step is left out, or sites are watched, as long as this lives.
#[derive(Debug)]
pub struct Armed {
    /// What is armed is this thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Armed {
    fn new(mode: Mode) -> Armed {
        assert!(matches!(MODE.get(), Mode::Off), "one site is left out at a time");
        MODE.set(mode);
        REACHED.set(0);
        ASKED.with_borrow_mut(BTreeSet::clear);
        Armed { _thread: std::marker::PhantomData }
    }

    /// Names of the sites that were asked while they were watched.
    pub fn asked(&self) -> Vec<&'static str> {
        ASKED.with_borrow(|a| a.iter().copied().collect())
    }

    /// How often the step was left out.
    pub fn reached(&self) -> u64 {
        REACHED.get()
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        MODE.set(Mode::Off);
    }
}

/// Declares a crate's sites, each as a `static`, and `ALL`, the table of them.
///
/// ```
/// mod site {
///     wp_base::sites! {
///         "crates/x/src/commit.rs" {
///             RECORD_WAIT, Wait, "x/commit/record-wait": "nobody is told before it is there";
///         }
///     }
/// }
/// assert!(site::RECORD_WAIT.on());
/// assert_eq!(site::ALL.len(), 1);
/// ```
#[macro_export]
macro_rules! sites {
    ($($file:literal { $($id:ident, $kind:ident, $name:literal: $what:literal;)* })*) => {
        $($(
            #[doc = $what]
            pub static $id: $crate::site::Site = $crate::site::Site {
                name: $name,
                kind: $crate::site::Kind::$kind,
                what: $what,
                file: $file,
            };
        )*)*
        /// Every site of this crate.
        pub static ALL: &[&$crate::site::Site] = &[$($(&$id,)*)*];
    };
}

#[cfg(test)]
mod tests {
    mod site {
        crate::sites! {
            "crates/base/src/site.rs" {
                A, Flush, "test/a": "a thing";
                B, Wait, "test/b": "another thing";
            }
        }
    }

    #[test]
    fn only_the_armed_site_is_left_out_and_only_for_as_long() {
        assert!(site::A.on() && site::B.on());
        {
            let armed = site::A.leave_out();
            assert!(!site::A.on() && site::B.on() && !site::A.on());
            assert_eq!(armed.reached(), 2);
        }
        assert!(site::A.on() && site::B.on());
        assert_eq!(site::B.leave_out().reached(), 0);
    }

    #[test]
    fn what_is_asked_is_noted_and_done() {
        let watching = super::watch();
        assert!(site::B.on() && site::B.on());
        assert_eq!(watching.asked(), ["test/b"]);
    }

    #[test]
    fn threads_do_not_see_each_others_sites() {
        let _armed = site::A.leave_out();
        std::thread::scope(|s| {
            let other = s.spawn(|| site::A.on());
            assert!(other.join().expect("it does not panic"));
        });
        assert!(!site::A.on());
    }

    #[test]
    fn the_table_has_them_in_order() {
        let names: Vec<&str> = site::ALL.iter().map(|s| s.name).collect();
        assert_eq!(names, ["test/a", "test/b"]);
    }

    #[test]
    fn a_site_is_back_after_a_panic() {
        let panicked = std::panic::catch_unwind(|| {
            let _armed = site::A.leave_out();
            assert!(site::A.on(), "it is left out");
        });
        assert!(panicked.is_err() && site::A.on());
    }
}
