//! Making and removing interfaces.

use std::sync::Arc;

use quiver_graph::{
    ArcPoint, ArcSlot, DeviceInput, DeviceNext, DeviceTx, IfIndex, Link, MakeCx, NodeId, NodeSpec, Port, TxState, Verdict,
};
use quiver_wire::MacAddr;

use super::output::{LoopTx, Output};
use super::placement::TxQueues;
use super::{IfEvent, Interface, InterfaceError, Interfaces, Kind, Mtu, Origin};
use crate::data::{IfRecord, if_flags};
use crate::ip::FamilyId;
use crate::{Router, trace};

/// How packets leave.
pub enum Tx {
    /// Through a device.
    Port(Box<dyn Port>),
    /// Through a node made for the purpose; it gets the interface's number and the name to use.
    Node(Box<dyn FnOnce(IfIndex, String) -> NodeSpec>),
    /// Through the tx node of the parent (sub-interfaces).
    Parent(IfIndex),
    /// Looped back in.
    Loop,
}

/// An interface to be made.
pub struct NewInterface {
    /// Unique name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Own MAC address.
    pub mac: MacAddr,
    /// Largest layer-3 packet, bytes.
    pub mtu: u32,
    /// Largest frame, bytes without FCS.
    pub max_frame: u32,
    /// How packets leave.
    pub tx: Tx,
}

impl Router {
    pub(crate) fn create_local0(&mut self) {
        let Ok(index) = self.interfaces.numbers.alloc() else { return };
        let null = self.graph.node("null-node").unwrap_or(NodeId(0));
        self.interfaces.insert(Interface::bare(IfIndex(index), "local0".into(), Kind::Local, null));
        self.graph.interfaces().rename(self.graph.stats(), index, "", "local0");
        self.graph.interfaces().set_len(1);
    }

    /// Makes an interface: number, nodes on all threads, queues placed. It starts down.
    ///
    /// # Errors
    /// The name is taken, no number is free, or the device refuses; then nothing has changed.
    pub fn create_interface(&mut self, new: NewInterface) -> Result<IfIndex, InterfaceError> {
        if self.interfaces.by_name(&new.name).is_some() {
            return Err(InterfaceError::Exists(new.name));
        }
        let index = IfIndex(self.interfaces.number_for(&new.name)?);
        match self.build_interface(index, new) {
            Ok(()) => {
                self.tell(&IfEvent::Created(index));
                Ok(index)
            }
            Err(error) => {
                self.interfaces.numbers.free_now(index.0);
                Err(error)
            }
        }
    }

    fn build_interface(&mut self, index: IfIndex, new: NewInterface) -> Result<(), InterfaceError> {
        let NewInterface { name, kind, mac, mtu, max_frame, tx } = new;
        let input_next = match &tx {
            Tx::Port(port) => self.set_input(index, port.as_ref(), mac)?,
            _ => Verdict::DROP,
        };
        let state = Arc::new(TxState::default());
        let mut parent = index;
        let mut port = None;
        let tx_name = format!("{name}-tx");
        let tx_node = match tx {
            Tx::Port(mut p) => {
                let (spec, queues) = self.device_tx(index, tx_name, p.as_mut(), &state, &name)?;
                port = Some((p, queues));
                self.graph.add(vec![spec])?[0]
            }
            Tx::Node(make) => self.graph.add(vec![make(index, tx_name)])?[0],
            Tx::Loop => {
                let node = LoopTx::new(index, self.data.interfaces.clone(), self.graph.interfaces().clone());
                self.graph.add(vec![NodeSpec::node(tx_name, node).traced(trace::frame)])?[0]
            }
            Tx::Parent(p) => {
                parent = p;
                self.interfaces.expect(p)?.tx
            }
        };
        let output = self.add_output(index, &name, tx_node, parent, &state);
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                if parent == index {
                    let _ = self.graph.remove(tx_node);
                }
                return Err(error);
            }
        };
        let link = port.as_mut().map_or(Link { up: true, speed: None }, |(p, _)| p.link());
        let device = match port {
            Some((port, queues)) => match self.place_queues(index, port, queues, &name, input_next) {
                Ok(device) => Some(device),
                Err(error) => {
                    let _ = self.graph.remove(output);
                    let _ = self.graph.remove(tx_node);
                    return Err(error);
                }
            },
            None => None,
        };
        let interface = Interface {
            link,
            mac,
            mtu: Mtu { l3: mtu, ip4: 0, ip6: 0, mpls: 0 },
            max_frame,
            parent,
            tx: tx_node,
            device,
            origin: Origin { name: name.clone(), mtu, max_frame, mac, ..Origin::default() },
            ..Interface::bare(index, name.clone(), kind, output)
        };
        self.interfaces.insert(interface);
        self.states.insert(index, state);
        self.records.update(index, |r| *r = IfRecord { mac, parent, mtu4: mtu as u16, mtu6: mtu as u16, ..IfRecord::default() });
        let counters = self.graph.interfaces().clone();
        counters.rename(self.graph.stats(), index.0, "", &name);
        counters.set_len(self.interfaces.end());
        self.graph.clear_interfaces(Some(index));
        Ok(())
    }

    /// The recipe of a device's tx node: a queue for each thread, opened now so that errors are told now; for threads that join
    /// later it is put there before.
    fn device_tx(
        &mut self,
        index: IfIndex,
        tx_name: String,
        port: &mut dyn Port,
        state: &Arc<TxState>,
        name: &str,
    ) -> Result<(NodeSpec, TxQueues), InterfaceError> {
        let queues = TxQueues::default();
        for thread in self.graph.fleet().threads() {
            let queue = port.open_tx(thread).map_err(|e| InterfaceError::Device { name: name.into(), error: e.to_string() })?;
            queues.borrow_mut().insert(thread, queue);
        }
        let (state, fresh) = (state.clone(), queues.clone());
        let make = move |cx: &MakeCx| DeviceTx::new(index, state.clone(), fresh.borrow_mut().remove(&cx.thread));
        Ok((NodeSpec::vector(tx_name, make).traced(trace::frame), queues))
    }

    fn add_output(
        &mut self,
        index: IfIndex,
        name: &str,
        tx: NodeId,
        parent: IfIndex,
        state: &Arc<TxState>,
    ) -> Result<NodeId, InterfaceError> {
        let arc = ArcSlot::new(index);
        let (point, state) = (arc.clone(), state.clone());
        let counters = (parent != index).then(|| self.graph.interfaces().clone());
        let make = move |_: &_| Output { interface: index, arc: point.clone(), counters: counters.clone(), state: state.clone() };
        let tx_name = self.graph.node_name(tx).to_owned();
        let output_name = format!("{name}-output");
        let spec =
            NodeSpec::vector(output_name.clone(), make).with_next(tx_name).on_arc("interface-output", arc).traced(trace::frame);
        let id = self.graph.add(vec![spec.passes()])?[0];
        let tx_name = self.graph.node_name(tx).to_owned();
        self.graph.set_arc_ends("interface-output", index, &output_name, &tx_name)?;
        Ok(id)
    }

    /// Where a device's packets go first: those without a link layer pass `ethernet-input` by.
    fn set_input(&mut self, index: IfIndex, port: &dyn Port, mac: MacAddr) -> Result<Verdict, InterfaceError> {
        if !mac.is_zero() {
            return Ok(DeviceNext::Ethernet.into());
        }
        let input = self.device_input(port.input_node())?;
        let Some(ip) = self.graph.node(crate::ip::bare::NODE) else { return Ok(Verdict::DROP) };
        self.graph.set_arc_ends("device-input", index, port.input_node(), crate::ip::bare::NODE)?;
        Ok(Verdict::slot(self.graph.edge(input, ip)?.index()))
    }

    /// The input node of a driver kind, declared when its first interface comes.
    pub(super) fn device_input(&mut self, name: &'static str) -> Result<NodeId, InterfaceError> {
        if let Some(id) = self.graph.node(name) {
            return Ok(id);
        }
        let arc = ArcPoint::new();
        let point = arc.clone();
        let spec =
            NodeSpec::input(name, move |_| DeviceInput::new(point.clone())).on_arc("device-input", arc).traced(trace::received);
        let id = self.graph.add(vec![spec])?[0];
        self.graph.add_arc_start("device-input", name)?;
        Ok(id)
    }

    /// Removes an interface and its sub-interfaces. Packets on their way to it are dropped and counted; its number is used
    /// again after a grace period.
    ///
    /// # Errors
    /// No such interface, or `local0`.
    pub fn delete_interface(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        let interface = self.interfaces.expect(index)?;
        if interface.kind == Kind::Local {
            return Err(InterfaceError::NotPossible("local0 cannot be deleted".into()));
        }
        let subs: Vec<IfIndex> = self.interfaces.subs(index).collect();
        for sub in subs {
            self.delete_interface(sub)?;
            // There may be thousands: the thread is not given back between them.
            self.graph.progress();
        }
        // Or the next interface with this number would lend to them.
        let borrowers: Vec<IfIndex> = self.interfaces.borrowers(index).collect();
        for borrower in borrowers {
            let _ = self.set_unnumbered(borrower, None);
        }
        self.set_interface_up(index, false)?;
        self.tell(&IfEvent::Deleted(index));
        self.graph.forget_interface(index);
        self.records.update(index, |r| *r = IfRecord::default());
        let Some(interface) = self.interfaces.remove(index) else { return Ok(()) };
        self.states.remove(&index);
        self.left_table(FamilyId::V4, interface.tables.0);
        self.left_table(FamilyId::V6, interface.tables.1);
        if let Some(device) = &interface.device {
            for (queue, place) in device.placement.iter().enumerate() {
                let number = queue as u16;
                self.graph.input::<DeviceInput, _>(device.input, place.thread, move |node| drop(node.unplace(index, number)));
            }
        }
        self.graph.remove(interface.output)?;
        if interface.parent == index {
            self.graph.remove(interface.tx)?;
        }
        self.graph.interfaces().rename(self.graph.stats(), index.0, &interface.name, "");
        self.interfaces.numbers.free(index.0);
        if let Kind::Sub(matching) = &interface.kind {
            self.publish_vlan(interface.parent, matching, None);
        }
        Ok(())
    }

    /// Makes a loopback interface; the lowest free instance where none is given.
    ///
    /// # Errors
    /// The instance is taken.
    pub fn create_loopback(&mut self, instance: Option<u32>, mac: Option<MacAddr>) -> Result<IfIndex, InterfaceError> {
        let instance = instance.unwrap_or_else(|| {
            let Interfaces { by_name, relations, .. } = &mut self.interfaces;
            relations.loopbacks.lowest(|n| by_name.contains_key(&format!("loop{n}")))
        });
        // VPP's own: de:ad:00:00 and the instance.
        let default = MacAddr([0xde, 0xad, 0, 0, (instance >> 8) as u8, instance as u8]);
        self.create_loop(Kind::LOOPBACK, format!("loop{instance}"), mac.unwrap_or(default))
    }

    /// Makes a BVI, an interface by which the router is in a bridge domain; the lowest free instance where none is given.
    ///
    /// # Errors
    /// The instance is taken.
    pub fn create_bvi(&mut self, instance: Option<u32>, mac: Option<MacAddr>) -> Result<IfIndex, InterfaceError> {
        let instance = instance.unwrap_or_else(|| {
            let Interfaces { by_name, relations, .. } = &mut self.interfaces;
            relations.bvis.lowest(|n| by_name.contains_key(&format!("bvi{n}")))
        });
        // VPP's own: b0:b0:00:00 and the instance.
        let default = MacAddr([0xb0, 0xb0, 0, 0, (instance >> 8) as u8, instance as u8]);
        self.create_loop(Kind::BVI, format!("bvi{instance}"), mac.unwrap_or(default))
    }

    fn create_loop(&mut self, kind: Kind, name: String, mac: MacAddr) -> Result<IfIndex, InterfaceError> {
        self.create_interface(NewInterface { name, kind, mac, mtu: 9000, max_frame: 9216, tx: Tx::Loop })
    }

    pub(crate) fn up_flag(up: bool) -> u16 {
        if up { if_flags::UP } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use quiver_buffer::{PageSize, RegionConfig};
    use quiver_graph::{RxBurst, RxQueue, RxState, ThreadPlan, TxBatch, TxQueue, Verdict};

    use super::*;
    use crate::RouterConfig;
    use crate::interface::InterfaceKind;

    /// A device with four queues on a NUMA node, which receives nothing and takes everything.
    struct Card(Option<usize>);

    impl RxQueue for Card {
        fn rx(&mut self, _: &mut RxBurst<'_, '_>) -> RxState {
            RxState::Up
        }
    }

    impl TxQueue for Card {
        fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
            batch.len()
        }
    }

    impl Port for Card {
        fn input_node(&self) -> &'static str {
            "card-input"
        }
        fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
            Ok((0..4).map(|_| -> Box<dyn RxQueue> { Box::new(Card(self.0)) }).collect())
        }
        fn open_tx(&mut self, _: usize) -> io::Result<Box<dyn TxQueue>> {
            Ok(Box::new(Card(self.0)))
        }
        fn link(&mut self) -> Link {
            Link { up: true, speed: Some(100_000_000_000) }
        }
        fn mac(&self) -> Option<[u8; 6]> {
            None
        }
        fn max_frame(&self) -> usize {
            1514
        }
        fn numa(&self) -> Option<usize> {
            self.0
        }
    }

    fn card(router: &mut Router, name: &str, numa: Option<usize>) -> Vec<usize> {
        let new = NewInterface {
            name: name.into(),
            kind: Kind::Device(&InterfaceKind { name: "card", called: "a card", device_type: "card" }),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            max_frame: 1514,
            tx: Tx::Port(Box::new(Card(numa))),
        };
        let index = router.create_interface(new).unwrap();
        router.rx_places(index).iter().map(|p| p.thread).collect()
    }

    #[test]
    fn a_device_that_opens_slowly_is_waited_for_by_its_command_and_not_by_the_router() {
        use crate::interface::ops::{NewName, create_port_elsewhere};
        use quiver_command::operation::{OpError, Outcome, Step, run_to_end};

        const CARD: InterfaceKind = InterfaceKind { name: "card", called: "a card", device_type: "card" };
        let mut h = crate::testing::Harness::new();
        let begin = |h: &mut crate::testing::Harness, opened: Result<Card, OpError>| {
            let (answer, answered) = std::sync::mpsc::channel::<()>();
            // The operating system, which takes as long as the test wants.
            let open = move || answered.recv().map_err(|_| OpError::unspecified("no answer")).and(opened);
            let made = |router: &mut Router, index| router.interfaces.get_mut(index).unwrap().tag = Some("made".into());
            create_port_elsewhere(&h.router, &CARD, NewName::given("name", "slow"), open, made).map(|outcome| {
                let Outcome::Job(mut job) = outcome else { panic!("opened by the caller") };
                assert!(job.exclusive(), "what comes next may build on it");
                assert!(matches!(job.step(&mut h.router, std::time::Duration::MAX), Step::Wait));
                h.run();
                assert!(h.router.interfaces.by_name("slow").is_none());
                answer.send(()).unwrap();
                run_to_end(&mut *job, &mut h.router, &mut String::new(), std::thread::sleep)
            })
        };
        let refused = begin(&mut h, Err(OpError::unspecified("no such device"))).unwrap();
        assert_eq!(refused.unwrap_err().message, "no such device");
        let made = begin(&mut h, Ok(Card(None))).unwrap().unwrap();
        let interface = h.router.interfaces.by_name("slow").unwrap();
        assert_eq!((made.interfaces[0].index(), interface.tag.as_deref()), (interface.index, Some("made")));
        assert!(begin(&mut h, Ok(Card(None))).is_err(), "the name is looked at before the device");
    }

    #[test]
    fn a_devices_numa_node_is_known_by_the_kernels_number_where_numbers_have_gaps() {
        let plan = |numa| ThreadPlan { numa, ..Default::default() };
        let buffers = RegionConfig { numa_nodes: 2, numa_numbers: vec![1, 4], page_size: PageSize::Kb4, ..Default::default() };
        let workers = vec![plan(0), plan(1)];
        let mut router = Router::new(&RouterConfig { buffers, workers, ..Default::default() }).unwrap();
        assert!(card(&mut router, "first", Some(1)).iter().all(|thread| *thread == 1));
        assert!(card(&mut router, "second", Some(4)).iter().all(|thread| *thread == 2));
        let mut elsewhere = card(&mut router, "elsewhere", Some(0));
        elsewhere.sort_unstable();
        elsewhere.dedup();
        assert_eq!(elsewhere, [1, 2], "no worker there: any will do");
    }

    #[test]
    fn queues_go_to_workers_of_the_devices_numa_node_and_buffers_come_from_the_workers() {
        let plan = |numa| ThreadPlan { numa, ..Default::default() };
        let mut router = Router::new(&RouterConfig {
            buffers: RegionConfig { buffers_per_numa: 4096, numa_nodes: 2, page_size: PageSize::Kb4, ..Default::default() },
            workers: vec![plan(0), plan(1), plan(0), plan(1)],
            ..Default::default()
        })
        .unwrap();
        let far = card(&mut router, "far", Some(1));
        assert!(far.iter().all(|t| [2, 4].contains(t)), "{far:?}");
        assert_eq!(far.iter().filter(|t| **t == 2).count(), 2, "shared out evenly");
        let near = card(&mut router, "near", Some(0));
        assert!(near.iter().all(|t| [1, 3].contains(t)), "{near:?}");
        let mut anywhere = card(&mut router, "anywhere", None);
        anywhere.sort_unstable();
        assert_eq!(anywhere, [1, 2, 3, 4]);
        let mut elsewhere = card(&mut router, "elsewhere", Some(7));
        elsewhere.sort_unstable();
        assert_eq!(elsewhere, [1, 2, 3, 4], "no worker there: any will do");
        // A worker's packets lie in the memory of its own node.
        let null = router.graph.node("null-node").unwrap();
        for thread in 1..=4 {
            router.graph.fleet().on(thread, move |w| {
                w.at_node(null, |cx| {
                    let packet = cx.alloc(60, IfIndex(1)).unwrap();
                    cx.emit(Verdict::slot(9), packet);
                })
            });
        }
        router.graph.fleet().each(|w| w.step());
        let taken: Vec<u32> = router.graph.pools().iter().map(|p| p.usage().cached).collect();
        assert!(taken.iter().all(|n| *n >= 512), "two caches of a bulk each on either node: {taken:?}");
    }
}
