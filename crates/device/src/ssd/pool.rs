//! The requests in the device, by key.

use wp_base::event::Op;
use wp_base::{Sector, Time};
use wp_medium::Slice;

/// A request in the device.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) fua: bool,
    /// Barrier writes that were received before it.
    pub(crate) epoch: u32,
    /// Are its data (a write's) still on their way to the buffer?
    pub(crate) in_transfer: bool,
    pub(crate) at: Sector,
    pub(crate) sectors: u32,
    /// When the controller has understood it.
    pub(crate) decoded: Time,
    /// For a FUA write: entries still to be programmed. For a flush: order number of what it
    /// covers.
    pub(crate) left: u64,
    /// Write: what to write, until it is in the buffer. Read: what was found.
    pub(crate) data: Vec<Slice>,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    requests: Vec<Option<Request>>,
    spare: Vec<u32>,
    live: u32,
    /// Keys in order of submission are told by this; see `in_order`.
    arrivals: u64,
    arrived: Vec<u64>,
}

impl Pool {
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn insert(&mut self, request: Request) -> u32 {
        let key = self.spare.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.arrived.push(0);
            self.requests.len() as u32 - 1
        });
        self.requests[key as usize] = Some(request);
        self.arrivals += 1;
        self.arrived[key as usize] = self.arrivals;
        self.live += 1;
        key
    }

    pub(crate) fn get(&self, key: u32) -> &Request {
        self.requests[key as usize].as_ref().expect("keys are of requests in the device")
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> &mut Request {
        self.requests[key as usize].as_mut().expect("keys are of requests in the device")
    }

    pub(crate) fn remove(&mut self, key: u32) -> Request {
        self.spare.push(key);
        self.live -= 1;
        self.requests[key as usize].take().expect("keys are of requests in the device")
    }

    /// Requests in order of submission.
    pub(crate) fn in_order(&self) -> Vec<&Request> {
        let held = self.requests.iter().zip(&self.arrived);
        let mut held: Vec<(u64, &Request)> =
            held.filter_map(|(r, n)| Some((*n, r.as_ref()?))).collect();
        held.sort_by_key(|(n, _)| *n);
        held.into_iter().map(|(_, r)| r).collect()
    }
}
