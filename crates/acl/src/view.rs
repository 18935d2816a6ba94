//! What the nodes know. Published as a whole, read as a snapshot.

use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_tables::chunks::Chunks;

use crate::policy::Policy;
use crate::session::Sessions;

/// A direction of an interface.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// What is permitted; all of it where there is none.
    pub policy: Option<Arc<Policy>>,
    /// EtherTypes that frames of layer 2 may have which are not IP; all where there is none.
    pub ether_types: Option<Arc<[u16]>>,
}

/// An interface.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// What comes in, what leaves.
    pub sides: [Side; 2],
    /// Whether packets may belong to sessions.
    pub stateful: bool,
    /// Sessions that began before this version of the configuration are over.
    pub since: u32,
    /// The version of its lists: sessions that began before are looked at again, if so configured.
    pub version: u32,
    /// Bytes of the link header of packets that leave.
    pub link: u32,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By interface.
    pub interfaces: Chunks<Option<Arc<Bound>>>,
    /// The table of sessions, where an interface may have some.
    pub sessions: Option<Arc<Sessions>>,
    /// Whether sessions are looked at again when lists have changed.
    pub reclassify: bool,
    /// Whether later fragments are in no rule that looks at ports.
    pub ported_fragments: bool,
    /// The number of this version.
    pub version: u32,
}

impl View {
    /// An interface; nothing where it has no lists.
    #[inline(always)]
    pub fn get(&self, interface: IfIndex) -> Option<&Bound> {
        self.interfaces.get(interface.0 as usize)?.as_deref()
    }
}
