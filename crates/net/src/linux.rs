//! Host interfaces: which interface of Linux stands for which interface of this router.
//!
//! The Linux control plane pairs an interface of the router with one of Linux, in some network namespace. This table says which
//! belong together. It is here, below the plugins, because two of them meet in it: one makes pairs and keeps the table, another
//! follows the kernel's routes, neighbours and addresses in the namespaces that are named here.
//!
//! An interface with a host interface accepts IPv4 without an address of its own: groups and broadcasts are for Linux.
//!
//! Every change raises [`HostInterfaces::generation`] and is followed by [`IfEvent::HostInterface`].
//!
//! Whoever carries a change of the kernel's into the router does so inside [`Router::with_host_change`], so that those who carry
//! changes of the router's into the kernel do not send it back.

use std::collections::{BTreeMap, HashMap};

use quiver_graph::IfIndex;

use crate::{IfEvent, InterfaceError, Router};

/// An interface of Linux that stands for one of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// The router's interface.
    pub interface: IfIndex,
    /// Name or path of the network namespace that the host interface is in; `None`: the router's own.
    pub namespace: Option<String>,
    /// Its name there.
    pub host_name: String,
    /// Its number there.
    pub host_ifindex: u32,
}

/// The host interfaces of a router, by its interfaces and by theirs. At most one for each interface.
#[derive(Debug, Default)]
pub struct HostInterfaces {
    by_interface: BTreeMap<u32, HostInterface>,
    by_host: HashMap<Option<String>, HashMap<u32, IfIndex>>,
    generation: u64,
    /// A change that Linux has made is being carried over.
    changed_there: bool,
}

impl HostInterfaces {
    /// The host interface of one of the router's.
    pub fn get(&self, interface: IfIndex) -> Option<&HostInterface> {
        self.by_interface.get(&interface.0)
    }

    /// By its namespace and its number there.
    pub fn by_host(&self, namespace: Option<&str>, host_ifindex: u32) -> Option<&HostInterface> {
        let own = namespace.map(str::to_owned);
        self.get(*self.by_host.get(&own)?.get(&host_ifindex)?)
    }

    /// All, by number of the router's interface.
    pub fn iter(&self) -> impl Iterator<Item = &HostInterface> {
        self.by_interface.values()
    }

    /// Namespaces with at least one host interface, in no order.
    pub fn namespaces(&self) -> impl Iterator<Item = Option<&str>> {
        self.by_host.keys().map(Option::as_deref)
    }

    /// Another number after each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the change that is being made was made in Linux first.
    pub fn is_host_change(&self) -> bool {
        self.changed_there
    }

    fn insert(&mut self, host: HostInterface) {
        self.remove(host.interface);
        self.generation += 1;
        self.by_host.entry(host.namespace.clone()).or_default().insert(host.host_ifindex, host.interface);
        self.by_interface.insert(host.interface.0, host);
    }

    fn remove(&mut self, interface: IfIndex) -> Option<HostInterface> {
        let host = self.by_interface.remove(&interface.0)?;
        self.generation += 1;
        if let Some(numbers) = self.by_host.get_mut(&host.namespace) {
            numbers.remove(&host.host_ifindex);
            if numbers.is_empty() {
                self.by_host.remove(&host.namespace);
            }
        }
        Some(host)
    }
}

impl Router {
    /// Which interfaces of Linux stand for interfaces of this router.
    pub fn host_interfaces(&self) -> &HostInterfaces {
        &self.host_interfaces
    }

    /// Notes the host interface of an interface, in place of the one that it had. Listeners are called.
    ///
    /// # Errors
    /// No such interface, or the host interface stands for another one.
    pub fn add_host_interface(&mut self, host: HostInterface) -> Result<(), InterfaceError> {
        let index = host.interface;
        self.interfaces.expect(index)?;
        if let Some(other) = self.host_interfaces.by_host(host.namespace.as_deref(), host.host_ifindex)
            && other.interface != index
        {
            let name = self.interfaces.name(other.interface);
            return Err(InterfaceError::NotPossible(format!("host interface `{}' stands for {name}", host.host_name)));
        }
        self.remove_host_interface(index);
        self.host_interfaces.insert(host);
        self.update_ip_flags(index);
        self.tell(&IfEvent::HostInterface(index, true));
        Ok(())
    }

    /// Forgets the host interface of an interface. Listeners are called, when it is no longer in the table.
    pub fn remove_host_interface(&mut self, interface: IfIndex) -> Option<HostInterface> {
        let host = self.host_interfaces.remove(interface)?;
        self.update_ip_flags(interface);
        self.tell(&IfEvent::HostInterface(interface, false));
        Some(host)
    }

    /// Makes a change that Linux has made already ([`HostInterfaces::is_host_change`]).
    pub fn with_host_change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.host_interfaces.changed_there, true);
        let result = change(self);
        self.host_interfaces.changed_there = before;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    fn host(interface: IfIndex, namespace: Option<&str>, number: u32) -> HostInterface {
        HostInterface { interface, namespace: namespace.map(Into::into), host_name: format!("e{number}"), host_ifindex: number }
    }

    struct Heard(Vec<(IfIndex, bool)>);

    fn hear(router: &mut Router, event: &IfEvent) {
        if let IfEvent::HostInterface(index, added) = *event
            && let Some(heard) = router.part_mut::<Heard>()
        {
            heard.0.push((index, added));
        }
    }

    #[test]
    fn a_host_interface_is_found_from_both_sides_until_it_is_removed() {
        let mut h = Harness::new();
        let (a, b) = (h.interface(1), h.interface(2));
        h.router.add_part(Heard(Vec::new()));
        h.router.listen(hear);
        let router = &mut h.router;
        router.add_host_interface(host(a, Some("dataplane"), 7)).unwrap();
        router.add_host_interface(host(b, None, 7)).unwrap();
        let table = router.host_interfaces();
        let generation = table.generation();
        assert_eq!(table.by_host(Some("dataplane"), 7).unwrap().interface, a);
        assert_eq!(table.by_host(None, 7).unwrap().interface, b);
        assert_eq!((table.by_host(None, 8), table.namespaces().count(), table.iter().count()), (None, 2, 2));

        router.add_host_interface(host(a, Some("dataplane"), 9)).unwrap();
        let table = router.host_interfaces();
        assert!(table.generation() > generation);
        assert_eq!(table.by_host(Some("dataplane"), 7), None, "the former one is gone");
        assert_eq!(table.get(a).unwrap().host_ifindex, 9);

        assert_eq!(router.remove_host_interface(a).unwrap().host_ifindex, 9);
        assert_eq!(router.remove_host_interface(a), None);
        let table = router.host_interfaces();
        assert_eq!(table.namespaces().collect::<Vec<_>>(), [None]);
        assert_eq!(router.part::<Heard>().unwrap().0, [(a, true), (b, true), (a, false), (a, true), (a, false)]);
    }

    struct Echoes(Vec<bool>);

    fn note(router: &mut Router, event: &IfEvent) {
        let there = router.host_interfaces().is_host_change();
        if let (IfEvent::Admin(..), Some(echoes)) = (event, router.part_mut::<Echoes>()) {
            echoes.0.push(there);
        }
    }

    #[test]
    fn a_change_that_linux_made_is_known_as_such_to_listeners() {
        let mut h = Harness::new();
        let a = h.interface(1);
        h.router.add_part(Echoes(Vec::new()));
        h.router.listen(note);
        h.router.with_host_change(|router| router.set_interface_up(a, false)).unwrap();
        h.router.set_interface_up(a, true).unwrap();
        assert_eq!(h.router.part::<Echoes>().unwrap().0, [true, false]);
    }

    #[test]
    fn a_host_interface_stands_for_one_interface() {
        let mut h = Harness::new();
        let (a, b) = (h.interface(1), h.interface(2));
        h.router.add_host_interface(host(a, None, 7)).unwrap();
        let error = h.router.add_host_interface(host(b, None, 7)).unwrap_err().to_string();
        assert_eq!(error, "host interface `e7' stands for x1");
        assert!(h.router.add_host_interface(host(IfIndex(99), None, 8)).is_err());
        h.router.add_host_interface(host(a, None, 7)).unwrap();
    }
}
