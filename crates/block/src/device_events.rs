//! What the device tells of its inside, as events: its commands get numbers that never repeat.

use std::collections::BTreeMap;

use wp_base::event::{Class, DeviceWork, Event};

use crate::device::{DevRequest, Done};
use crate::engine::Ctx;

/// Commands that an event has told of. Empty while nobody listens.
#[derive(Default)]
pub(crate) struct DeviceEvents {
    /// The device's name of a command in it -> its number.
    numbers: BTreeMap<u64, u64>,
    /// The last number given.
    last: u64,
}

impl DeviceEvents {
    /// The device took a command, of which this is everything but the data.
    pub fn command(&mut self, cx: &Ctx, command: &DevRequest) {
        let &DevRequest { id, op, flags, at, sectors, .. } = command;
        self.last += 1;
        self.numbers.insert(id, self.last);
        let id = self.last;
        cx.rt.emit(Class::DEVICE, || Event::Command { id, op, flags, at, sectors });
    }

    /// What a call into the device told. Commands that came before anybody listened are left out.
    pub fn works(&mut self, cx: &Ctx, works: &mut Vec<DeviceWork>) {
        for mut work in works.drain(..) {
            cx.rt.emit(Class::DEVICE, || {
                let known = |id: &u64| self.numbers.get(id).copied();
                work.commands = work.commands.iter().filter_map(known).collect();
                Event::Device(Box::new(work))
            });
        }
    }

    /// A command completed.
    pub fn done(&mut self, cx: &Ctx, done: &Done) {
        if let Some(id) = self.numbers.remove(&done.id) {
            cx.rt.emit(Class::DEVICE, || Event::CommandEnd { id, ok: done.status.is_ok() });
        }
    }

    /// What is left after a power cut: the numbering goes on.
    pub fn after_cut(&self) -> DeviceEvents {
        DeviceEvents { numbers: BTreeMap::new(), last: self.last }
    }
}
