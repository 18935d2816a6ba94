//! Who keeps copies of what packets are forwarded by, and so must know of every change.
//!
//! The graph reads its tables anew for each packet. A copy outside the process (a program of the kernel, a table of a network card) does
//! not, so its keeper is told in the midst of the change, on the main thread: when the command or the message that made the change is
//! answered, the copy is right or not used any more.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::IfIndex;

/// Is told of changes. What has changed is not told, and the router cannot be asked from here: the keeper stops using its copy, and looks
/// at the router when its own process runs.
pub trait ForwardingWatch: Send + Sync {
    /// The route of a prefix in a FIB has changed, come or gone.
    fn route(&self, fib: u32, prefix: IpAddr, len: u8);

    /// Where a load-balance leads has changed.
    fn load_balance(&self, index: u32);

    /// An adjacency has changed: neighbour, MTU, interface.
    fn adjacency(&self, index: u32);

    /// What is known of an interface, or its features, has changed.
    fn interface(&self, index: IfIndex);
}

/// The keeper, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<dyn ForwardingWatch>>);

impl Watch {
    pub fn new(keeper: Arc<dyn ForwardingWatch>) -> Self {
        Self(Some(keeper))
    }

    pub fn tell(&self, of: impl FnOnce(&dyn ForwardingWatch)) {
        if let Some(keeper) = &self.0 {
            of(&**keeper);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(1)" } else { "Watch(0)" })
    }
}
