//! IP fragmentation and reassembly as pure arithmetic: who cuts or joins packets keeps the bytes.
//!
//! - [`Ipv4Fragments`] plans the cutting of an IPv4 packet for an MTU (RFC 791, 3.2), [`Ipv6Fragments`] that of a packet that
//!   this node sends itself (RFC 8200, 4.5).
//! - [`Reassembly`] follows which parts of one datagram have come, for both families.

mod plan4;
mod plan6;
mod reassembly;
pub use plan4::{Ipv4Fragment, Ipv4Fragments};
pub use plan6::{Ipv6Fragment, Ipv6Fragments};
pub use reassembly::{Arrival, Piece, Reassembly, ReassemblyError};

/// Why a packet cannot be fragmented.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum FragmentError {
    /// Don't-fragment is set: the sender is to be told the MTU
    DontFragment,
    /// The MTU leaves no room for 8 bytes of payload in each fragment
    MtuTooSmall,
    /// The packet's header lengths contradict each other or its bytes
    BadHeader,
    /// An option or extension header is malformed
    BadOption,
}
