//! Why fragments are dropped, and what came of the others.

use quiver_graph::{DropReasons, drop_reasons};

drop_reasons! {
    /// What the nodes of reassembly count. Names in the statistics are VPP's.
    pub enum Drop {
        /// A part of the packet came a second time; the first one counts.
        Duplicate = "duplicate fragments" as "reass_duplicate_fragment",
        /// A fragment overlaps another one, or contradicts it about the packet's end; the whole packet is dropped.
        Overlap = "overlapping fragments" as "reass_overlapping_fragment",
        /// Another fragment condemned the packet that this one belongs to; the reason is counted there.
        Condemned = "fragments of condemned packets",
        /// More packets are being put together than the limit allows.
        ///
        /// Causes: many fragmented packets at a time, or an attack with first fragments only.
        /// Check: `show ip4-full-reassembly` for the limit; find the senders by a capture of drops.
        /// See: `show ip4-full-reassembly`, `set ip4-full-reassembly`.
        Limit = "drops due to concurrent reassemblies limit" as "reass_limit_reached",
        /// More packets of one source are being put together than the limit allows.
        SourceLimit = "drops due to reassemblies limit of one source",
        /// The packet is cut into more fragments than the limit allows.
        TooMany = "fragment chain too long (drop)" as "reass_fragment_chain_too_long",
        /// The headers in front of the fragment do not add up, or it reaches past the longest packet.
        Malformed = "malformed packets" as "reass_malformed_packet",
        /// The fragment has no payload, or is not the last and no multiple of 8 bytes long.
        BadLength = "invalid fragment length" as "reass_invalid_frag_len",
        /// The headers of the whole packet could not be made.
        Internal = "drops due to internal reassembly error" as "reass_internal_error",
        /// The other fragments of the packet did not arrive in time.
        ///
        /// Causes: fragments get lost on the way, often by a firewall that passes first fragments only.
        /// Check: `show ip4-full-reassembly`; avoid fragments by a smaller MTU at the sender.
        /// See: `show ip4-full-reassembly`, `set ip4-full-reassembly`.
        Timeout = "fragments dropped due to reassembly timeout" as "reass_timeout",
        /// The queue to the thread that puts packets together is full.
        Congestion = "congestion drop",
        /// Packets for the router itself are not put together: that is switched off.
        Off = "local reassembly is off",
        /// A fragment arrived.
        Received = "fragments received" (info) as "reass_fragments_rcvd",
        /// A packet was put together.
        Success = "successful reassemblies" (info) as "reass_success",
        /// A fragment became part of a packet, or went on behind its first.
        Reassembled = "fragments reassembled" (info) as "reass_fragments_reassembled",
    }
}

impl Drop {
    /// Those for which a held fragment is dropped.
    const HELD: [Self; 10] = [
        Self::Duplicate,
        Self::Overlap,
        Self::Condemned,
        Self::Limit,
        Self::SourceLimit,
        Self::TooMany,
        Self::Malformed,
        Self::BadLength,
        Self::Internal,
        Self::Timeout,
    ];
}

/// Who gave a fragment to the thread that joins it, and gets it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The packet is for this router.
    Local,
    /// A feature joins the packets of an interface.
    Full,
    /// A feature keeps fragments back until the first has come.
    Shallow,
}

/// In the upper half of the aux lane of what goes back to a feature's node; whatever stands there otherwise before the lookup is the
/// number of something, and smaller.
const MARK: u32 = 0xfe55_0000;
const MARKED: u32 = 0xffff_0000;
/// Of the lower half: so many fragments are one packet now.
const JOINED: u32 = 0x8000;

impl Place {
    /// As a fragment's aux lane has it on its way to the thread that joins it.
    pub const fn aux(self) -> u32 {
        self as u32
    }

    /// Who gave a fragment.
    pub const fn of(aux: u32) -> Self {
        match aux {
            1 => Self::Full,
            2 => Self::Shallow,
            _ => Self::Local,
        }
    }
}

/// What becomes of a packet that comes back to a feature's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// A whole packet, of so many fragments.
    Joined(u16),
    /// A fragment whose first is known.
    Pass,
    /// Not to go on.
    Drop(Drop),
}

impl Back {
    /// For the aux lane.
    pub fn aux(self) -> u32 {
        MARK | match self {
            Self::Joined(n) => JOINED | u32::from(n),
            Self::Pass => 0,
            Self::Drop(reason) => 1 + u32::from(reason.index()),
        }
    }

    /// What an aux lane says; `None` for a packet that has not been here.
    #[inline(always)]
    pub fn of(aux: u32) -> Option<Self> {
        if aux & MARKED != MARK {
            return None;
        }
        Some(match aux & !MARKED {
            0 => Self::Pass,
            joined if joined & JOINED != 0 => Self::Joined((joined & !JOINED) as u16),
            reason => Self::Drop(Drop::HELD.get(reason as usize - 1).copied().unwrap_or(Drop::Internal)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_says_what_became_of_it() {
        for reason in Drop::HELD {
            assert_eq!(Back::of(Back::Drop(reason).aux()), Some(Back::Drop(reason)));
        }
        assert_eq!((Back::of(Back::Pass.aux()), Back::of(Back::Joined(35).aux())), (Some(Back::Pass), Some(Back::Joined(35))));
        assert_eq!([0, 1, 0xff_ffff].map(Back::of), [None; 3]);
        for place in [Place::Local, Place::Full, Place::Shallow] {
            assert_eq!(Place::of(place.aux()), place);
        }
    }
}
