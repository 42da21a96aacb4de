//! Slots that are used again: records with a small number as their name, and no allocation once
//! warm.

/// Records by slot number.
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a record; its slot.
    pub fn put(&mut self, record: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(record);
                slot
            }
            None => {
                self.slots.push(Some(record));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Takes a record out. Panics if the slot is empty.
    pub fn take(&mut self, slot: u32) -> T {
        let record = self.slots[slot as usize].take().expect("a slot is taken out once");
        self.free.push(slot);
        record
    }

    /// The record. Panics if the slot is empty.
    pub fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].as_ref().expect("the slot is in use")
    }

    /// The record. Panics if the slot is empty.
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].as_mut().expect("the slot is in use")
    }

    /// Records in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
