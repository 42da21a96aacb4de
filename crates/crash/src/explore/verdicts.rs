//! What states were found to be, by what their judgement asks.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Judged;

/// Result, operations called, operations returned.
pub(super) type Asked = (u32, u32, u32);

/// Verdicts. Most states have that of the state before.
#[derive(Default)]
pub(super) struct Verdicts {
    all: BTreeMap<Asked, Rc<Judged>>,
    last: Option<(Asked, Rc<Judged>)>,
}

impl Verdicts {
    #[inline]
    pub(super) fn get(&mut self, asked: Asked) -> Option<Rc<Judged>> {
        if let Some((of, judged)) = &self.last
            && *of == asked
        {
            return Some(judged.clone());
        }
        let judged = self.all.get(&asked)?.clone();
        self.last = Some((asked, judged.clone()));
        Some(judged)
    }

    pub(super) fn insert(&mut self, asked: Asked, judged: Rc<Judged>) {
        self.all.insert(asked, judged);
    }

    pub(super) fn clear(&mut self) {
        *self = Verdicts::default();
    }
}
