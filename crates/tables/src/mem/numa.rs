//! Which memory node (NUMA) pages come from.

use std::io;
use std::ptr::NonNull;

/// Nodes that a mask has bits for: as many as Linux can have.
const NODES_MAX: usize = 1024;

/// What happens where a node has no memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Pages come from other nodes then.
    Prefer,
    /// Then there is no memory.
    Bind,
}

/// Asks the kernel to take pages of `bytes` bytes from `base` on, a page's start, from a memory node: those that are touched
/// from now on.
///
/// Placement changes neither contents nor addresses.
///
/// # Errors
/// No such node, a kernel without memory nodes, or a sandbox that forbids the call; then the kernel chooses, mostly the node of
/// the thread that touches a page first.
pub fn place(base: NonNull<u8>, bytes: usize, node: u32, policy: Policy) -> io::Result<()> {
    let mask = mask_of(node).ok_or(io::ErrorKind::InvalidInput)?;
    let mode: libc::c_int = match policy {
        Policy::Prefer => libc::MPOL_PREFERRED,
        Policy::Bind => libc::MPOL_BIND,
    };
    // The kernel leaves the last bit of the number that it is told out.
    let bits = NODES_MAX + 1;
    // SAFETY: the call reads `mask`, which has these bits, and writes nothing. It changes no contents of any memory; a range
    // that is not mapped is refused.
    let result = unsafe { libc::syscall(libc::SYS_mbind, base.as_ptr(), bytes, mode, mask.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The mask with one node.
fn mask_of(node: u32) -> Option<[u64; NODES_MAX / 64]> {
    let mut mask = [0; NODES_MAX / 64];
    *mask.get_mut(node as usize / 64)? = 1 << (node % 64);
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Budget, PageKind, Pages};

    #[test]
    fn a_mask_has_the_bit_of_its_node_and_no_other() {
        for node in [0, 1, 63, 64, 1023] {
            let mask = mask_of(node).unwrap();
            let set: Vec<u32> = (0..NODES_MAX as u32).filter(|bit| mask[*bit as usize / 64] >> (bit % 64) & 1 == 1).collect();
            assert_eq!(set, [node]);
        }
        assert_eq!(mask_of(1024), None);
    }

    /// Asks about an address (linux/mempolicy.h).
    const MPOL_F_ADDR: libc::c_ulong = 1 << 1;

    /// The policy that holds for the page at an address: its mode, and the mask of nodes.
    fn policy_at(address: NonNull<u8>) -> Option<(libc::c_int, u64)> {
        let (mut mode, mut mask) = (0, [0_u64; NODES_MAX / 64]);
        // SAFETY: the kernel writes one number and a mask of so many bits.
        let asked = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), NODES_MAX + 1, address.as_ptr(), MPOL_F_ADDR)
        };
        (asked == 0).then_some((mode, mask[0]))
    }

    /// Whether this machine lets a process place pages: not one without memory nodes, nor every sandbox.
    fn can_place() -> bool {
        let pages = Pages::reserve(1, PageKind::Base, &Budget::unlimited()).unwrap();
        let can = policy_at(pages.base()).is_some() && pages.place(0).is_ok();
        if !can {
            eprintln!("SKIP: this kernel or sandbox places no memory on nodes");
        }
        can
    }

    #[test]
    fn pages_are_asked_for_on_their_node_and_stay_usable() {
        if !can_place() {
            return;
        }
        for kind in [PageKind::Base, PageKind::Transparent] {
            let pages = Pages::reserve(5 << 20, kind, &Budget::unlimited()).unwrap();
            assert_ne!(policy_at(pages.base()), Some((libc::MPOL_PREFERRED, 1)), "not asked for yet");
            pages.place(0).unwrap();
            // Also what is committed later, which the kernel keeps as another mapping.
            pages.commit(1 << 20).unwrap();
            let last = pages.base().as_ptr().wrapping_add(pages.reserved() - 1);
            for at in [pages.base(), NonNull::new(last).unwrap()] {
                assert_eq!(policy_at(at), Some((libc::MPOL_PREFERRED, 1)));
            }
            // SAFETY: the first byte is committed.
            unsafe {
                pages.base().as_ptr().write(7);
                assert_eq!(pages.base().as_ptr().read(), 7);
            }
        }
        let pages = Pages::reserve(1 << 20, PageKind::Base, &Budget::unlimited()).unwrap();
        place(pages.base(), pages.reserved(), 0, Policy::Bind).unwrap();
        assert_eq!(policy_at(pages.base()), Some((libc::MPOL_BIND, 1)));
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_and_the_pages_are_as_before() {
        for node in [1000, 1023, 1024, u32::MAX] {
            let pages = Pages::reserve(1 << 20, PageKind::Base, &Budget::unlimited()).unwrap();
            assert!(pages.place(node).is_err(), "{node}");
            pages.commit(100).unwrap();
            // SAFETY: byte 99 is committed.
            unsafe { pages.base().as_ptr().add(99).write(7) };
        }
    }
}
