//! Frames of the stream.
//!
//! ```text
//!   0       1       2               4
//!   │ 1     │ 1     │ length        │ messages of netlink, in the host's byte order
//!   version  netlink  of all, big-endian
//! ```
//!
//! A stream that breaks these rules cannot be followed any further: the first such frame is its end.

use std::ops::Range;

/// Bytes in front of a frame's messages.
pub const HEADER: usize = 4;
/// The stream's version.
pub const VERSION: u8 = 1;
/// The kind of frames that have messages of netlink.
pub const NETLINK: u8 = 1;
/// Longest frame.
pub const FRAME_MOST: usize = u16::MAX as usize;

/// Cuts a stream into frames. It keeps less than a frame beside what was pushed last.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Bytes have come. To be taken out before the next ones.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// What is in the next frame; `None` where it has not all come.
    pub fn next_frame(&mut self) -> Option<Result<&[u8], &'static str>> {
        match self.find()? {
            Ok(range) => {
                self.at = range.end;
                Some(Ok(&self.bytes[range]))
            }
            Err(why) => Some(Err(why)),
        }
    }

    fn find(&self) -> Option<Result<Range<usize>, &'static str>> {
        let rest = self.bytes.get(self.at..)?;
        let [version, kind, high, low] = *rest.first_chunk::<HEADER>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        match (version, kind) {
            (VERSION, NETLINK) => {}
            (VERSION, _) => return Some(Err("frames that are not netlink (zebra needs `-M dplane_fpm_nl`)")),
            _ => return Some(Err("no stream of a forwarding plane manager, version 1")),
        }
        if length < HEADER {
            return Some(Err("a frame shorter than its header"));
        }
        (rest.len() >= length).then_some(Ok(self.at + HEADER..self.at + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let length = (content.len() + HEADER) as u16;
        [&[VERSION, NETLINK], &length.to_be_bytes()[..], content].concat()
    }

    #[test]
    fn streams_that_are_none_are_named() {
        for bytes in [[2, 1, 0, 4], [1, 2, 0, 4], [1, 0, 0, 4], [1, 1, 0, 3], [b'G', b'E', b'T', b' ']] {
            let mut frames = Frames::default();
            frames.push(&bytes);
            assert!(matches!(frames.next_frame(), Some(Err(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            pieces in prop::collection::vec(1..200_usize, 1..50),
        ) {
            let stream = contents.iter().flat_map(|content| frame(content)).collect::<Vec<u8>>();
            let (mut frames, mut got, mut at) = (Frames::default(), Vec::new(), 0);
            for n in 0.. {
                let piece = pieces[n % pieces.len()];
                if at >= stream.len() {
                    break;
                }
                frames.push(&stream[at..stream.len().min(at + piece)]);
                at += piece;
                while let Some(frame) = frames.next_frame() {
                    got.push(frame.unwrap().to_vec());
                }
            }
            prop_assert_eq!(got, contents);
        }

        #[test]
        fn no_bytes_panic_and_what_is_kept_is_bounded(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut frames = Frames::default();
            for piece in bytes.chunks(100) {
                frames.push(piece);
                while let Some(Ok(_)) = frames.next_frame() {}
                prop_assert!(frames.bytes.len() - frames.at < FRAME_MOST);
            }
        }
    }
}
