//! Stores through shared mappings, page by page.

use wp_medium::{PAGE_BYTES, Pieces, Slice};

/// What a store puts into one page of memory.
pub struct PageStore {
    /// Byte of the file at which the page begins.
    pub start: u64,
    /// Byte of the page at which the store begins.
    within: usize,
    data: Vec<u8>,
}

impl PageStore {
    /// The bytes of the page with the store in them. `held`: those that the file has of it; what
    /// is stored behind them, which is behind the end of the file, is lost with the page.
    pub fn over(&self, held: &[Slice]) -> Vec<u8> {
        let mut bytes = Slice::concat(held);
        let kept = bytes.len().saturating_sub(self.within).min(self.data.len());
        if let Some(to) = bytes.get_mut(self.within..self.within + kept) {
            to.copy_from_slice(&self.data[..kept]);
        }
        bytes
    }
}

/// The pages that a store of `data` at byte `offset` of a file touches, in order.
pub fn page_stores(offset: u64, data: &[Slice]) -> impl Iterator<Item = PageStore> {
    let page = PAGE_BYTES as u64;
    let end = offset + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
    let (mut pieces, mut at) = (Pieces::new(data), offset);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = at / page * page;
        let n = (start + page - at).min(end - at);
        let data = Slice::concat(&pieces.take(n as u32));
        let within = (at - start) as usize;
        at += n;
        Some(PageStore { start, within, data })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_in_its_pages_and_not_behind_the_end_of_the_file() {
        let of = |seed: u8, n: usize| Slice::from_bytes(&vec![seed; n]);
        let data = [of(7, 100), of(8, 4096), of(8, 904)];
        let stores: Vec<PageStore> = page_stores(4090, &data).collect();
        assert_eq!(stores.iter().map(|s| s.start).collect::<Vec<_>>(), [0, 4096, 8192]);
        let first = stores[0].over(&[Slice::zero(4096)]);
        assert_eq!((first[4089], first[4090], first.len()), (0, 7, 4096));
        let second = stores[1].over(&[Slice::zero(4096)]);
        assert_eq!((second[0], second[93], second[94], second[4095]), (7, 7, 8, 8));
        // The file ends 20 bytes into the last page; of a page that it does not reach it has none.
        assert_eq!(stores[2].over(&[Slice::zero(20)]), [8; 20]);
        assert_eq!(stores[2].over(&[]), []);
        assert_eq!(stores[0].over(&[Slice::zero(10)]), [0; 10]);
        assert_eq!(page_stores(5, &[]).count(), 0);
    }
}
