//! Requests and replies, as bytes of one datagram each.
//!
//! ```text
//!   request   version 1 │ kind │ 0 │ 0 │ queues, 4 bytes │ kind 1: the namespace, 1 to 4095 bytes without NUL
//!             kinds: 1 namespace, 2 the AF_XDP program, 3 the fast path (0 queues)
//!   reply     version 1 │ 0, or 1 for an error │ 0 │ 0 │ flags or error number, 4 bytes │ beside it: descriptors
//! ```
//!
//! Both ends are the same program, so words are in the machine's own byte order. The helper still believes nothing.

use quiver_drivers::fast_path::{MAPS, PROGRAMS};
use quiver_drivers::rights::{NAMESPACE_MAX, QUEUES_MAX};

const VERSION: u8 = 1;
const HEADER: usize = 8;
/// Longest request.
pub const REQUEST_MAX: usize = HEADER + NAMESPACE_MAX;
/// Bytes of a reply.
pub const REPLY: usize = HEADER;
/// Sockets in a namespace.
const SOCKETS: usize = 3;
/// Most descriptors of a reply: the sockets and the queues.
pub const FDS_MAX: usize = QUEUES_MAX as usize + SOCKETS;

/// What the helper can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sockets and TAP descriptors in a namespace.
    Namespace {
        /// Name, `pid:<n>` or path.
        namespace: String,
        /// TAP descriptors.
        queues: u32,
    },
    /// The AF_XDP program and its map.
    Redirect {
        /// Entries of the map.
        queues: u32,
    },
    /// The programs of the fast path and their maps.
    FastPath,
}

/// Bytes that are no request, or none that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Request {
    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let (kind, queues, namespace) = match self {
            Self::Namespace { namespace, queues } => (1, *queues, namespace.as_str()),
            Self::Redirect { queues } => (2, *queues, ""),
            Self::FastPath => (3, 0, ""),
        };
        let mut bytes = vec![VERSION, kind, 0, 0];
        bytes.extend(queues.to_ne_bytes());
        bytes.extend(namespace.bytes());
        bytes
    }

    /// Reads bytes from anybody.
    ///
    /// # Errors
    /// Not one of the two forms to the byte, or out of its ranges.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let ([VERSION, kind, 0, 0], rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)? else { return Err(Malformed) };
        let (queues, rest) = rest.split_first_chunk::<4>().ok_or(Malformed)?;
        let queues = u32::from_ne_bytes(*queues);
        if queues > QUEUES_MAX {
            return Err(Malformed);
        }
        match kind {
            // Without TAP descriptors it is asked for its sockets.
            1 if (1..=NAMESPACE_MAX).contains(&rest.len()) && !rest.contains(&0) => {
                let namespace = std::str::from_utf8(rest).map_err(|_| Malformed)?.to_owned();
                Ok(Self::Namespace { namespace, queues })
            }
            2 if rest.is_empty() && queues > 0 => Ok(Self::Redirect { queues }),
            3 if rest.is_empty() && queues == 0 => Ok(Self::FastPath),
            _ => Err(Malformed),
        }
    }

    /// How many descriptors belong to a good answer.
    pub fn fds(&self) -> usize {
        match self {
            Self::Namespace { queues, .. } => SOCKETS + *queues as usize,
            Self::Redirect { .. } => 2,
            Self::FastPath => PROGRAMS.len() + MAPS.len(),
        }
    }
}

/// What the helper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; descriptors come with it.
    Done {
        /// 1: the program takes frames in several pieces.
        flags: u32,
    },
    /// The operating system's number.
    Failed(i32),
}

impl Reply {
    /// As bytes.
    pub fn bytes(self) -> [u8; REPLY] {
        let (failed, [a, b, c, d]) = match self {
            Self::Done { flags } => (0, flags.to_ne_bytes()),
            Self::Failed(number) => (1, number.to_ne_bytes()),
        };
        [VERSION, failed, 0, 0, a, b, c, d]
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// Not of the form.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        match *bytes {
            [VERSION, 0, 0, 0, a, b, c, d] => Ok(Self::Done { flags: u32::from_ne_bytes([a, b, c, d]) }),
            [VERSION, 1, 0, 0, a, b, c, d] => match i32::from_ne_bytes([a, b, c, d]) {
                number @ 1..=4095 => Ok(Self::Failed(number)),
                _ => Err(Malformed),
            },
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            ("[^\0]{1,64}", 0..=QUEUES_MAX).prop_map(|(namespace, queues)| Request::Namespace { namespace, queues }),
            (1..=QUEUES_MAX).prop_map(|queues| Request::Redirect { queues }),
            Just(Request::FastPath),
        ]
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_were(request in requests()) {
            prop_assert_eq!(Request::parse(&request.bytes()), Ok(request));
        }

        /// Whatever is understood is written the same: there are no two forms of one request, and no bytes that mean nothing.
        #[test]
        fn any_bytes_are_a_request_of_that_very_form_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.bytes(), bytes);
            }
        }

        #[test]
        fn a_changed_byte_is_another_request_or_refused(request in requests(), place in any::<prop::sample::Index>(), to in any::<u8>()) {
            let mut bytes = request.bytes();
            let place = place.index(bytes.len());
            bytes[place] = to;
            if let Ok(read) = Request::parse(&bytes) {
                prop_assert_eq!(read.bytes(), bytes);
            }
        }

        #[test]
        fn any_bytes_are_a_reply_of_that_very_form_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(reply) = Reply::parse(&bytes) {
                prop_assert_eq!(&reply.bytes()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn lengths_and_numbers_have_bounds() {
        let namespace = |text: String, queues| Request::Namespace { namespace: text, queues }.bytes();
        assert!(Request::parse(&namespace("x".repeat(NAMESPACE_MAX), QUEUES_MAX)).is_ok());
        for odd in [
            namespace("x".repeat(NAMESPACE_MAX + 1), 1),
            namespace(String::new(), 1),
            namespace("a\0b".into(), 1),
            namespace("x".into(), QUEUES_MAX + 1),
            Request::Redirect { queues: 0 }.bytes(),
            [Request::Redirect { queues: 1 }.bytes(), vec![0]].concat(),
            [Request::FastPath.bytes(), vec![0]].concat(),
            [namespace(String::new(), 1), vec![0xff]].concat(),
            vec![],
            vec![VERSION; HEADER],
        ] {
            assert_eq!(Request::parse(&odd), Err(Malformed), "{odd:?}");
        }
        assert_eq!(Reply::parse(&Reply::Failed(1).bytes()), Ok(Reply::Failed(1)));
        assert_eq!(Reply::parse(&Reply::Failed(0).bytes()), Err(Malformed));
        assert_eq!(Reply::parse(&Reply::Done { flags: 1 }.bytes()), Ok(Reply::Done { flags: 1 }));
    }
}
