//! Questions to the kernel by netlink, one at a time.

use std::io;

use netlink_sys::{Socket, SocketAddr};

use crate::sys;

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// The kernel answers at once; a bound for one that does not, ms.
const PATIENCE: libc::c_int = 1000;

/// A socket for questions.
pub(super) struct Questions(Socket);

impl Questions {
    /// In the network namespace of the calling thread.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// What an answer holds behind its header.
    pub(super) fn ask(&self, kind: u16, question: &[u8]) -> io::Result<Vec<u8>> {
        let mut message = Vec::with_capacity(HEADER + question.len());
        message.extend(((HEADER + question.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        // Sequence number and port: there is one question at a time.
        message.extend([0; 8]);
        message.extend(question);
        // An answer that came too late for the question before.
        while sys::wait_readable(&self.0, 0)? {
            self.0.recv_from_full()?;
        }
        self.0.send_to(&message, &SocketAddr::new(0, 0), 0)?;
        if !sys::wait_readable(&self.0, PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (answer, _) = self.0.recv_from_full()?;
        let kind = answer.get(4..6).and_then(|kind| Some(u16::from_ne_bytes(kind.try_into().ok()?)));
        if kind == Some(ERROR) {
            let code = answer.get(16..20).and_then(|code| Some(i32::from_ne_bytes(code.try_into().ok()?)));
            return Err(io::Error::from_raw_os_error(code.unwrap_or(-libc::EIO).wrapping_neg()));
        }
        answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// An attribute with its header and padding.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len());
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a kind.
pub(super) fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let [l0, l1, k0, k1, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes([k0, k1]) & 0x3fff == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

/// The value of an attribute that is a number of 32 bits.
pub(super) fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    find(attributes, kind).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_nonsense_is_not() {
        let all = [attribute(1, b"abc"), attribute(3, &7_u32.to_ne_bytes())].concat();
        assert_eq!(find(&all, 1), Some(&b"abc"[..]));
        assert_eq!((number(&all, 3), number(&all, 1)), (Some(7), None));
        assert_eq!(find(&all, 2), None);
        for odd in [&[][..], &[1], &[0, 0, 0, 0], &[3, 0, 1, 0], &[200, 0, 1, 0, 1]] {
            assert_eq!(find(odd, 1), None, "{odd:?}");
        }
    }
}
