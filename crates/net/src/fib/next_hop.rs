//! Next hops that somebody sends to without a route: a load-balance of its own leads there, whatever the tables say.

use std::net::IpAddr;

use quiver_graph::IfIndex;

use super::FibError;
use super::path::{Path, Source};
use super::table::by_family;
use crate::Router;
use crate::ip::FamilyId;

impl Router {
    /// A load-balance that leads to a neighbour on an interface, and nowhere while the interface is down. It is kept until
    /// [`release_next_hop`](Self::release_next_hop); its one bucket follows the neighbour's link address.
    ///
    /// # Errors
    /// No such interface, an address that no host has, no room.
    pub fn hold_next_hop(&mut self, interface: IfIndex, address: IpAddr) -> Result<u32, FibError> {
        let family = FamilyId::of(&address);
        let path = vec![Path::neighbor(interface, address)];
        self.with_fib(|fib, env| {
            // The neighbour's own route has the same list. Table 0 is always there, and of a single path no table matters.
            let lb = by_family!(family, F => fib.obtain::<F>(env, 0, Source::Adjacency, path))?;
            if let Some(list) = fib.lists.get_mut(lb) {
                list.refs += 1;
            }
            Ok(lb)
        })
    }

    /// Gives back what [`hold_next_hop`](Self::hold_next_hop) gave.
    pub fn release_next_hop(&mut self, lb: u32) {
        self.with_fib(|fib, _| {
            let Some(family) = fib.lists.get(lb).map(|list| list.key.family) else { return };
            by_family!(family, F => fib.unref::<F>(lb));
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::fib::Class;
    use crate::testing::{Harness, host_mac};

    #[test]
    fn a_held_next_hop_follows_interface_and_neighbour_until_it_is_released() {
        let mut h = Harness::new();
        let x = h.interface(0);
        let peer = "192.0.2.7".parse().unwrap();
        let lb = h.router.hold_next_hop(x, peer).unwrap();
        assert_eq!(h.router.hold_next_hop(x, peer), Ok(lb), "one for all who hold it");
        let class = |h: &Harness| h.router.data.load_balances.get(lb).bucket().class();
        assert_eq!(class(&h), Class::Incomplete);
        h.router.add_neighbor(x, peer, host_mac(0), true, false).unwrap();
        assert_eq!(class(&h), Class::Rewrite);
        h.router.set_interface_up(x, false).unwrap();
        assert_eq!(class(&h), Class::Drop);
        h.router.set_interface_up(x, true).unwrap();
        h.router.release_next_hop(lb);
        assert_eq!(class(&h), Class::Rewrite, "the other holder still has it");
        h.router.release_next_hop(lb);
        assert!(h.router.fib().lists.get(lb).is_none());
    }
}
