//! Settings: what is sampled where, and who collects it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use quiver_command::operation::{OpError, retval};
use quiver_graph::stats::MAX_THREADS;
use quiver_graph::{GraphError, IfIndex};
use quiver_net::interface::Kind;
use quiver_net::interface::ops::Direction;
use quiver_net::ip::FamilyId;
use quiver_net::local::datagram::{UdpPath, send_all};
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router, WorkerEvent};

use crate::datagram::Counters;
use crate::nodes::{self, EXPORT, INPUT, OUTPUT};
use crate::process;
use crate::sampler::{Destination, Sampler, Settings, Shared};

/// Who holds tables, in errors.
const HOLDER: &str = "the exporter of samples (sFlow)";
/// Port of sFlow, where datagrams come from and go to.
pub const PORT: u16 = 6343;

/// Who collects samples, and how they get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Collector.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Source of datagrams, and the agent's address.
    pub src: IpAddr,
    /// Table in which the collector is looked up.
    pub table: u32,
    /// Largest packet, bytes.
    pub path_mtu: u16,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// One frame in so many.
    pub rate: u32,
    /// Between two samples of counters, seconds; 0: none.
    pub polling: u32,
    /// Bytes of each frame.
    pub header: u32,
    /// Which frames of an interface.
    pub direction: Direction,
}

impl Default for Params {
    /// Those of VPP.
    fn default() -> Self {
        Self { rate: 10_000, polling: 20, header: 128, direction: Direction::Rx }
    }
}

/// The plugin's state on the main thread.
pub struct Sflow {
    params: Params,
    interfaces: BTreeSet<u32>,
    collector: Option<Collector>,
    threads: Vec<Shared>,
    /// When counters are sampled next, a timer time.
    pub(crate) next_counters: u64,
    /// Interfaces up to this number have had their turn.
    cursor: u32,
}

impl PluginState for Sflow {
    const OFF: &'static str = "the plugin sflow is off";
    const KEY: Option<&'static str> = Some("sflow");
}

impl Sflow {
    /// How samples are taken.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Interfaces that are sampled.
    pub fn interfaces(&self) -> impl Iterator<Item = IfIndex> {
        self.interfaces.iter().map(|index| IfIndex(*index))
    }

    /// Who collects samples.
    pub const fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref()
    }

    /// Some interfaces whose turn it is, and whether they are the last ones.
    pub(crate) fn next_interfaces(&mut self, most: usize) -> (Vec<IfIndex>, bool) {
        let some: Vec<IfIndex> = self.interfaces.range(self.cursor..).take(most).map(|index| IfIndex(*index)).collect();
        let is_last = some.len() < most;
        self.cursor = if is_last { 0 } else { some.last().map_or(0, |last| last.0 + 1) };
        (some, is_last)
    }

    /// When counters are sampled again.
    pub(crate) fn counters_after(&self, now: u64) -> u64 {
        let is_on = self.params.polling > 0 && self.collector.is_some() && !self.interfaces.is_empty();
        if is_on { now.saturating_add(u64::from(self.params.polling) * 1_000_000_000) } else { u64::MAX }
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let params = Params::default();
    let seed = router.graph.clock().ticks() ^ u64::from(std::process::id()).rotate_left(40);
    let settings = Settings { rate: params.rate, header: params.header as usize };
    let threads: Vec<Shared> = (0..MAX_THREADS).map(|thread| Shared::new(Sampler::new(thread, settings, seed))).collect();
    nodes::declare(router, &threads)?;
    let sflow = Sflow { params, interfaces: BTreeSet::new(), collector: None, threads, next_counters: u64::MAX, cursor: 0 };
    router.add_part(sflow);
    router.add_process(process::NAME, process::run);
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = *event {
            forget(router, index);
        }
    });
    router.listen_workers(on_worker);
    Ok(())
}

/// Calls `f` with the sampler of each thread, on that thread.
///
/// # Errors
/// The plugin is off.
pub fn on_each<R: Send + 'static>(
    router: &mut Router,
    f: impl Fn(usize, &mut Sampler) -> R + Send + Sync + 'static,
) -> Result<Vec<R>, OpError> {
    let threads = router.state::<Sflow>()?.threads.clone();
    Ok(router.graph.fleet().each(move |worker| {
        let thread = worker.thread();
        f(thread, &mut threads[thread % threads.len()].lock())
    }))
}

/// What a thread must know.
struct Wanted {
    settings: Settings,
    interfaces: usize,
    to: Option<Destination>,
    now: u64,
}

impl Wanted {
    fn new(router: &Router, state: &Sflow) -> Self {
        let to = state.collector.map(|collector| {
            let path = UdpPath {
                src: collector.src,
                dst: collector.address,
                src_port: PORT,
                dst_port: collector.port,
                // The table is held, so that it is there.
                fib: router.fib_of_table(FamilyId::of(&collector.address), collector.table).unwrap_or_default(),
                checksum: true,
            };
            Destination { path, path_mtu: collector.path_mtu }
        });
        Self {
            settings: Settings { rate: state.params.rate, header: state.params.header as usize },
            interfaces: state.interfaces.last().map_or(0, |last| *last as usize + 1),
            to,
            now: router.graph.clock().now(),
        }
    }

    fn give(&self, sampler: &mut Sampler) {
        sampler.set(self.settings, self.interfaces);
        sampler.set_destination(self.to, self.now);
    }
}

/// Has all threads know what holds now.
fn tell(router: &mut Router) -> Result<(), OpError> {
    let wanted = Wanted::new(router, router.state::<Sflow>()?);
    on_each(router, move |_, sampler| wanted.give(sampler))?;
    let now = router.graph.clock().timer_now();
    let state = router.state_mut::<Sflow>()?;
    // A first sample soon after each change: the collector hears of interfaces before their first interval is over.
    state.next_counters = if state.counters_after(now) == u64::MAX { u64::MAX } else { now };
    let next = state.next_counters;
    router.wake_process(process::NAME, next);
    Ok(())
}

/// Sets how samples are taken.
///
/// # Errors
/// The graph's.
pub fn set_params(router: &mut Router, params: Params) -> Result<(), OpError> {
    let state = router.state::<Sflow>()?;
    let (old, interfaces) = (state.params.direction, state.interfaces.iter().copied().collect::<Vec<_>>());
    router.state_mut::<Sflow>()?.params = params;
    tell(router)?;
    if old != params.direction {
        for index in interfaces {
            switch(router, IfIndex(index), Some(params.direction))?;
        }
    }
    Ok(())
}

/// Switches the features of an interface: those of a direction on, others off.
fn switch(router: &mut Router, index: IfIndex, direction: Option<Direction>) -> Result<(), OpError> {
    for ((arc, node), on) in [(INPUT, direction.is_some_and(Direction::rx)), (OUTPUT, direction.is_some_and(Direction::tx))] {
        router.graph.set_feature(arc, node, index, on).map_err(|error| graph_error(&error))?;
    }
    Ok(())
}

/// Begins or ends to sample an interface.
///
/// # Errors
/// It has no Ethernet frames, or is a sub-interface.
pub fn set_interface(router: &mut Router, index: IfIndex, on: bool) -> Result<(), OpError> {
    let interface = router.interfaces.expect(index)?;
    let name = interface.name.clone();
    let refuse = |text: String| OpError::new(retval::INVALID_SW_IF_INDEX, text).key("interface").value(&name);
    if matches!(interface.kind, Kind::Sub(_)) {
        let remedy = format!("name {}", router.interfaces.name(interface.parent));
        return Err(refuse(format!("{name} is a sub-interface, and frames are sampled of whole links")).remedy(remedy));
    }
    if matches!(interface.kind, Kind::Local) || !interface.has_link_layer() {
        return Err(refuse(format!("{name} has no Ethernet frames")));
    }
    let state = router.state_mut::<Sflow>()?;
    if state.interfaces.contains(&index.0) == on {
        let is = if on { "is sampled already" } else { "is not sampled" };
        return Err(OpError::new(retval::VALUE_EXIST, format!("{name} {is}")).key("interface").value(&name));
    }
    let direction = state.params.direction;
    if on {
        state.interfaces.insert(index.0)
    } else {
        state.interfaces.remove(&index.0)
    };
    tell(router)?;
    switch(router, index, on.then_some(direction))
}

/// An interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    if router.state_mut::<Sflow>().is_ok_and(|state| state.interfaces.remove(&index.0)) {
        // The features are declared, so that this cannot fail.
        let _ = switch(router, index, None);
    }
}

/// Sets who collects samples; none: nobody.
///
/// # Errors
/// No such table, or addresses that cannot be.
pub fn set_collector(router: &mut Router, new: Option<Collector>) -> Result<(), OpError> {
    let old = router.state::<Sflow>()?.collector;
    if old == new {
        return Ok(());
    }
    if let Some(collector) = &new {
        if collector.src.is_ipv4() != collector.address.is_ipv4() {
            let text = "source and collector must both be IPv4 or both IPv6";
            return Err(OpError::new(retval::INVALID_VALUE, text).key("src").value(collector.src));
        }
        let family = FamilyId::of(&collector.address);
        router.hold_table(family, collector.table, HOLDER)?;
    }
    router.state_mut::<Sflow>()?.collector = new;
    let told = tell(router);
    if let Some(collector) = old {
        router.release_table(FamilyId::of(&collector.address), collector.table, HOLDER);
    }
    told
}

/// Hands samples of counters to the thread that sends them.
pub(crate) fn send_counters(router: &mut Router, counters: Vec<Counters>) {
    let thread = router.staying_workers()[0];
    let (Ok(state), now) = (router.state::<Sflow>(), router.graph.clock().now()) else { return };
    let shared = state.threads[thread % state.threads.len()].clone();
    router.graph.fleet().cast(thread, move |_| {
        let mut sampler = shared.lock();
        counters.iter().for_each(|counters| sampler.counters(counters, now));
    });
}

/// A thread that joins is told what holds; one that leaves sends what it has.
fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let Ok(state) = router.state::<Sflow>() else { return };
    let (WorkerEvent::Joined(thread) | WorkerEvent::Leaving(thread)) = *event;
    let shared = state.threads[thread % state.threads.len()].clone();
    if matches!(event, WorkerEvent::Joined(_)) {
        let wanted = Wanted::new(router, state);
        router.graph.fleet().on(thread, move |_| wanted.give(&mut shared.lock()));
    } else if let Some(node) = router.graph.node(EXPORT) {
        router.graph.fleet().on(thread, move |worker| {
            worker.at_node(node, |cx| {
                let now = cx.now();
                shared.lock().flush(now);
                send_all(cx, &shared);
            })
        });
    }
}
