//! IPv4 and IPv6 forwarding nodes: input checks, lookup, rewrite. One text for both families, over [`Family`].
//!
//! ```text
//!                 ip4-unicast arc                       aux = adjacency            ip4-output arc
//!  ip4-input ──► [features] ──► ip4-lookup ──┬──► ip4-rewrite ──► [features] ──► <if>-output
//!      │                          │          ├──► ip4-arp, ip4-glean     (link address not known)
//!      │                          │          ├──► ip4-receive            (ours)
//!      └─► ip4-multicast arc      │          ├──► ip4-drop, ip4-punt, ip4-null
//!                                 └──────────┴──► lookup-ip4-dst          (another table)
//! ```
//!
//! What a packet needs of the tables is reached through records of [`crate::DataPlane`]; the FIB writes them.

mod family;

pub use family::{Family, FamilyId, V4, V6};

/// Aux lane for `ip4-icmp-error` and `ip6-icmp-error`: which error to send. `data` goes where the type has a number (next
/// hop's MTU of "fragmentation needed" and "packet too big").
#[inline(always)]
pub const fn icmp_aux(kind: u8, code: u8, data: u16) -> u32 {
    (kind as u32) << 24 | (code as u32) << 16 | data as u32
}

/// What [`icmp_aux`] put into the lane: type, code, data.
#[inline(always)]
pub const fn icmp_of_aux(aux: u32) -> (u8, u8, u16) {
    ((aux >> 24) as u8, (aux >> 16) as u8, aux as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_icmp_request_survives_the_aux_lane() {
        for (kind, code, data) in [(3, 4, 1500), (11, 0, 0), (255, 255, u16::MAX)] {
            assert_eq!(icmp_of_aux(icmp_aux(kind, code, data)), (kind, code, data));
        }
    }
}
