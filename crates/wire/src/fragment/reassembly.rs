//! Which parts of one datagram have come.
//!
//! Parts are kept sorted; the caller's tag (a buffer index) goes with each, so that a complete datagram is read off in order.
//! A part that came already, byte range for byte range, is a duplicate and ignored (RFC 8200, 4.5); any other overlap
//! condemns the datagram (RFC 5722), in IPv4 too: no honest sender makes one.

use core::ops::Range;

/// A part that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<T> {
    /// Where it lies in the datagram's payload, in bytes
    pub range: Range<u16>,
    /// The caller's
    pub tag: T,
}

/// What a part that was taken means.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Kept; more is missing
    Incomplete,
    /// Kept; all parts are here, and the payload is so many bytes long
    Complete(u16),
}

/// Why a part was not taken; the caller still owns what its tag stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReassemblyError {
    /// The same part has come before; the datagram goes on
    Duplicate,
    /// Overlaps another part: the whole datagram is to be dropped
    Overlap,
    /// Has no payload, or is not the last and no multiple of 8 long; the datagram goes on
    BadLength,
    /// Reaches past the longest payload that the caller allows; the datagram goes on
    TooLong,
    /// Contradicts another part about where the datagram ends: the whole datagram is to be dropped
    EndMismatch,
    /// More parts than the caller allows: the whole datagram is to be dropped
    TooMany,
}

impl ReassemblyError {
    /// The whole datagram is to be dropped, not only this part.
    pub const fn condemns(self) -> bool {
        matches!(self, Self::Overlap | Self::EndMismatch | Self::TooMany)
    }
}

/// The parts of one datagram. Bounded by the number of parts; makes no use of time, which is the caller's.
#[derive(Clone, Debug)]
pub struct Reassembly<T> {
    /// Sorted, without overlap, none empty
    pieces: Vec<Piece<T>>,
    max_pieces: usize,
    max_len: u16,
    /// Sum of the lengths of all pieces
    received: u32,
    /// Where the datagram ends, once the last part has come
    end: Option<u16>,
}

impl<T> Reassembly<T> {
    /// Takes at most `max_pieces` parts of a payload of at most `max_len` bytes.
    pub const fn new(max_pieces: usize, max_len: u16) -> Self {
        Self { pieces: Vec::new(), max_pieces, max_len, received: 0, end: None }
    }

    /// A part of `len` bytes at `offset` has come; `more` if it is not the last.
    pub fn insert(&mut self, offset: u16, len: usize, more: bool, tag: T) -> Result<Arrival, ReassemblyError> {
        if len == 0 || (more && !len.is_multiple_of(8)) {
            return Err(ReassemblyError::BadLength);
        }
        let end = u16::try_from(usize::from(offset) + len).ok().filter(|end| *end <= self.max_len);
        let range = offset..end.ok_or(ReassemblyError::TooLong)?;
        let at = self.pieces.partition_point(|piece| piece.range.start < range.start);
        self.check_place(at, &range, more)?;
        if self.pieces.len() >= self.max_pieces {
            return Err(ReassemblyError::TooMany);
        }
        self.received += u32::from(range.end - range.start);
        if !more {
            self.end = Some(range.end);
        }
        self.pieces.insert(at, Piece { range, tag });
        Ok(match self.end {
            // Without overlap, as many bytes as the payload is long are all of them
            Some(end) if u32::from(end) == self.received => Arrival::Complete(end),
            _ => Arrival::Incomplete,
        })
    }

    /// The part fits between its neighbours at `at` and agrees about the end.
    fn check_place(&self, at: usize, range: &Range<u16>, more: bool) -> Result<(), ReassemblyError> {
        let next = self.pieces.get(at);
        if next.is_some_and(|next| next.range == *range) && more == (self.end != Some(range.end)) {
            return Err(ReassemblyError::Duplicate);
        }
        let before = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        if next.is_some_and(|next| next.range.start < range.end) || before.is_some_and(|before| before.range.end > range.start) {
            return Err(ReassemblyError::Overlap);
        }
        let past_end = match self.end {
            Some(end) => range.end > end || !more,
            None => !more && next.is_some(),
        };
        // What ends where the datagram ends says that it is the last, and the other way round
        if past_end || (more && self.end == Some(range.end)) {
            return Err(ReassemblyError::EndMismatch);
        }
        Ok(())
    }

    /// The parts in the order of their places.
    pub fn pieces(&self) -> &[Piece<T>] {
        &self.pieces
    }

    /// The parts, for good.
    pub fn into_pieces(self) -> Vec<Piece<T>> {
        self.pieces
    }

    /// The first part has come: an ICMP time-exceeded may be sent about the datagram.
    pub fn has_first(&self) -> bool {
        self.pieces.first().is_some_and(|piece| piece.range.start == 0)
    }

    /// All parts are here.
    pub fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| u32::from(end) == self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reassembly() -> Reassembly<u32> {
        Reassembly::new(16, 65_515)
    }

    #[test]
    fn parts_in_any_order_complete_once() {
        let parts = [(0, 16, true), (16, 8, true), (24, 5, false)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut whole = reassembly();
            let results = order.map(|i: usize| {
                let (offset, len, more) = parts[i];
                whole.insert(offset, len, more, i as u32).unwrap()
            });
            assert_eq!(results[..2], [Arrival::Incomplete; 2]);
            assert_eq!(results[2], Arrival::Complete(29));
            let tags: Vec<u32> = whole.pieces().iter().map(|piece| piece.tag).collect();
            assert_eq!(tags, [0, 1, 2]);
            assert!(whole.is_complete() && whole.has_first());
        }
    }

    #[test]
    fn a_duplicate_changes_nothing_and_an_overlap_condemns() {
        let mut whole = reassembly();
        whole.insert(8, 16, true, 0).unwrap();
        assert_eq!(whole.insert(8, 16, true, 1), Err(ReassemblyError::Duplicate));
        for (offset, len) in [(0, 16), (8, 8), (8, 24), (16, 8), (16, 16), (0, 40)] {
            let error = whole.insert(offset, len, true, 1).unwrap_err();
            assert_eq!(error, ReassemblyError::Overlap, "{offset}+{len}");
            assert!(error.condemns());
        }
        assert!(!whole.has_first());
        assert_eq!(whole.insert(0, 8, true, 1), Ok(Arrival::Incomplete));
        assert_eq!(whole.insert(24, 1, false, 2), Ok(Arrival::Complete(25)));
        assert_eq!(whole.insert(24, 1, false, 3), Err(ReassemblyError::Duplicate));
    }

    #[test]
    fn two_ends_are_a_contradiction() {
        let mut whole = reassembly();
        whole.insert(8, 8, false, 0).unwrap();
        assert_eq!(whole.insert(16, 8, true, 1), Err(ReassemblyError::EndMismatch));
        assert_eq!(whole.insert(16, 8, false, 1), Err(ReassemblyError::EndMismatch));
        assert_eq!(whole.insert(0, 8, false, 1), Err(ReassemblyError::EndMismatch));
        let mut whole = reassembly();
        whole.insert(16, 8, true, 0).unwrap();
        assert_eq!(whole.insert(0, 8, false, 1), Err(ReassemblyError::EndMismatch));
    }

    #[test]
    fn lengths_and_limits_are_checked() {
        let mut whole = reassembly();
        assert_eq!(whole.insert(0, 0, false, 0), Err(ReassemblyError::BadLength));
        assert_eq!(whole.insert(0, 12, true, 0), Err(ReassemblyError::BadLength));
        // the ping of death: a last part that reaches past what an IP packet can hold
        assert_eq!(whole.insert(65_512, 100, false, 0), Err(ReassemblyError::TooLong));
        assert_eq!(whole.insert(65_512, usize::MAX / 2, false, 0), Err(ReassemblyError::TooLong));
        for i in 0..16 {
            whole.insert(i * 16, 8, true, 0).unwrap();
        }
        assert_eq!(whole.insert(8, 8, true, 0), Err(ReassemblyError::TooMany));
    }

    proptest! {
        /// Against a map of bytes, each of which must be written exactly once.
        #[test]
        fn completeness_agrees_with_a_map_of_bytes(
            parts in prop::collection::vec((0u16..10, 1usize..40, any::<bool>()), 1..20),
        ) {
            let mut whole = Reassembly::new(100, 1000);
            let mut map = [false; 200];
            let mut end = None;
            for (i, (units, len, more)) in parts.into_iter().enumerate() {
                let (offset, len) = (units * 8, if more { len.next_multiple_of(8) } else { len });
                let range = usize::from(offset)..usize::from(offset) + len;
                match whole.insert(offset, len, more, i) {
                    Ok(arrival) => {
                        prop_assert!(map[range.clone()].iter().all(|written| !written));
                        map[range.clone()].fill(true);
                        if !more {
                            prop_assert_eq!(end, None);
                            end = Some(range.end);
                        }
                        let complete = end.is_some_and(|end| {
                            map.iter().position(|written| !written) == Some(end)
                                && map[end..].iter().all(|written| !written)
                        });
                        prop_assert_eq!(matches!(arrival, Arrival::Complete(_)), complete);
                        prop_assert_eq!(whole.is_complete(), complete);
                    }
                    Err(ReassemblyError::Duplicate | ReassemblyError::Overlap) => {
                        prop_assert!(map[range].iter().any(|written| *written));
                    }
                    Err(ReassemblyError::EndMismatch) => {
                        let last = map.iter().rposition(|written| *written).map(|at| at + 1);
                        prop_assert!(end.is_some() || last > Some(range.end));
                    }
                    Err(_) => prop_assert!(false, "no limit is near"),
                }
                prop_assert!(whole.pieces().is_sorted_by_key(|piece| piece.range.start));
            }
        }
    }
}
