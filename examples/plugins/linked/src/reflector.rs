//! A kind of interface: a reflector sends IPv4 packets back to where they come from, with source and destination exchanged. It answers
//! test traffic, as a host with an echo service does.

use std::sync::Arc;

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::{IfIndex, InterfaceCounters, Node, NodeCx, NodeSpec, Pkt, Verdict, drop_reasons, flags, next_nodes};
use quiver_net::Router;
use quiver_net::interface::ops::of_kind;
use quiver_net::interface::{InterfaceKind, Kind, NewInterface, Tx};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::{EtherType, EthernetHeader};

const REFLECTOR: InterfaceKind = InterfaceKind { name: "reflector", called: "a reflector", device_type: "reflector" };

next_nodes! { enum Next { Ethernet = "ethernet-input" } }
drop_reasons! {
    enum Drop {
        /// A reflector sends back IPv4 only.
        NotIp4 = "not IPv4",
    }
}

#[derive(Clone)]
struct Reflect {
    interface: IfIndex,
    counters: Arc<InterfaceCounters>,
}

impl Node for Reflect {
    type Next = Next;
    type Drop = Drop;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let EthernetHeader { dst, src, .. } = packet.head();
        let header = EthernetHeader { dst: src, src: dst, ..packet.head() };
        let addresses: Option<[[u8; 4]; 2]> = packet.read_at(14 + 12);
        let (EtherType::IPV4, Some([from, to])) = (header.ether_type(), addresses) else { return packet.drop(Drop::NotIp4) };
        packet.set_head(header);
        packet.set_head_at::<_, 26>([to, from]);
        let (thread, bytes) = (cx.thread(), packet.total_len() as u64);
        self.counters.tx.add(thread, self.interface.0, 1, bytes);
        self.counters.rx.add(thread, self.interface.0, 1, bytes);
        packet.set_rx_if(self.interface);
        packet.unmark(flags::LOCAL);
        Next::Ethernet.into()
    }
}

pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<Create>().declare::<Delete>().covers(&["reflector_create", "reflector_delete"]);
    registry.configuration(Stage::Interfaces, |_| whole(configuration));
}

request! {
    /// Creates an interface that sends IPv4 packets back to where they come from.
    pub change Create "reflector_create" ["create reflector interface"] {
        /// Name.
        pub name: String = "<name>",
    }
}

impl Execute<Router> for Create {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let counters = Arc::clone(router.graph.interfaces());
        let node = move |interface, name| NodeSpec::node(name, Reflect { interface, counters: Arc::clone(&counters) });
        let mac = MacAddr::numbered(router.interfaces.end());
        let (kind, tx) = (Kind::Virtual(&REFLECTOR), Tx::Node(Box::new(node)));
        let new = NewInterface { name: self.name, kind, mac, mtu: 1500, max_frame: 9216, tx };
        router.create_interface(new)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Deletes a reflector.
    pub change Delete "reflector_delete" ["delete reflector interface"] {
        /// Interface.
        pub interface: IfRef = "<if>",
    }
}

impl Execute<Router> for Delete {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let is =
            |interface: &quiver_net::interface::Interface| (interface.kind == Kind::Virtual(&REFLECTOR)).then_some(interface.index);
        for index in of_kind(router, Some(&self.interface), REFLECTOR.called, is)? {
            router.delete_interface(index)?;
        }
        Ok(Outcome::Done(()))
    }
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    for interface in router.interfaces.iter().filter(|interface| interface.kind == Kind::Virtual(&REFLECTOR)) {
        let name = interface.name.clone();
        out.push(&Create { name: name.clone() }).undo(&Delete { interface: IfRef(name) });
    }
}
