//! Messages on a stream socket: a header of 16 bytes before each.
//!
//! ```text
//!   0  8 bytes  a pointer of VPP's own; zero here
//!   8  4 bytes  length of the message that follows, big-endian
//!  12  4 bytes  a mark of VPP's own; zero here
//! ```

/// Bytes of the header.
pub const HEADER: usize = 16;
/// Longest message that is taken from a client. Routes with 255 paths take 42 kB, command lines more.
pub const LONGEST: usize = 4 << 20;

/// Number of `sockclnt_create`, which clients know beforehand.
pub const CREATE: u16 = 15;
/// Number of `sockclnt_create_reply`.
pub const CREATE_REPLY: u16 = 16;

/// What stands at the front of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front<'a> {
    /// Not yet a whole message; so many bytes are needed at least, all in all.
    Partial(usize),
    /// A message, and how many bytes it took with its header.
    Message(&'a [u8], usize),
    /// A length that no client needs: this is not a client.
    TooLong(u32),
}

/// Looks at the front of received bytes.
pub fn front(bytes: &[u8]) -> Front<'_> {
    let Some(length) = bytes.get(8..12).and_then(|length| length.first_chunk()) else { return Front::Partial(HEADER) };
    let length = u32::from_be_bytes(*length);
    if length as usize > LONGEST {
        return Front::TooLong(length);
    }
    let end = HEADER + length as usize;
    match bytes.get(HEADER..end) {
        Some(message) => Front::Message(message, end),
        None => Front::Partial(end),
    }
}

/// Appends a frame; `write` appends the message.
pub fn push(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let length = u32::try_from(out.len() - start - HEADER).unwrap_or(u32::MAX);
    if let Some(at) = out.get_mut(start + 8..start + 12) {
        at.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whole_in_parts_and_in_a_row() {
        let mut bytes = Vec::new();
        push(&mut bytes, |out| out.extend_from_slice(b"one"));
        push(&mut bytes, |_| ());
        assert_eq!(front(&bytes), Front::Message(b"one", 19));
        assert_eq!(front(&bytes[19..]), Front::Message(b"", 16));
        assert_eq!(front(&bytes[..15]), Front::Partial(19));
        assert_eq!(front(&bytes[..11]), Front::Partial(16));
        assert_eq!(front(&[]), Front::Partial(16));
        assert_eq!(front(&[0xff; 16]), Front::TooLong(u32::MAX));
    }
}
