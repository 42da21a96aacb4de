//! What a drive was sent, for a log as dm-log-writes makes it, with marks of the order.

use wp_medium::log_order::LogOrder;
use wp_medium::write_log::LogEntry;

use super::Request;
use super::parts::Parent;

/// Entries in the order of completion, with marks where each request was submitted.
#[derive(Default)]
pub(super) struct Written {
    pub entries: Vec<LogEntry>,
    /// Requests that have marks.
    requests: u64,
}

impl Written {
    /// A request has come.
    pub fn submitted(&mut self, request: &Request, parent: &mut Parent) {
        if parent.has_entry() {
            parent.written.clone_from(&request.data);
            parent.number = self.requests;
            self.requests += 1;
            self.entries.push(LogOrder::Submit(parent.number).entry());
        }
    }

    /// It is answered, without an error.
    pub fn completed(&mut self, parent: &Parent) {
        if let Some(entry) = parent.entry() {
            self.entries.extend([LogOrder::Complete(parent.number).entry(), entry]);
        }
    }
}
