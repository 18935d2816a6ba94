//! Settings: what is recorded where, and who collects it.

use std::collections::BTreeMap;

use quiver_command::operation::{OpError, retval};
use quiver_graph::stats::MAX_THREADS;
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_ipfix::exporter::{self, PORT, User};
use quiver_ipfix::{Destination, Times};
use quiver_net::interface::Kind;
use quiver_net::interface::ops::Direction;
use quiver_net::local::datagram::send_all;
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router, WorkerEvent};

use crate::flows::{Flows, Params, Shared};
use crate::key::{Variant, Way};
use crate::nodes::{self, EXPORT, Links};
use crate::ops::Which;
use crate::template::Template;

/// The plugin's state on the main thread.
pub struct Flowprobe {
    params: Params,
    features: BTreeMap<u32, (Which, Direction)>,
    threads: Vec<Shared>,
    links: Published<Links>,
}

impl PluginState for Flowprobe {
    const OFF: &'static str = "the plugin of flow records is off";
    const KEY: Option<&'static str> = Some("flowprobe");
}

impl Flowprobe {
    /// How flows are recorded.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Interfaces that record.
    pub fn features(&self) -> impl Iterator<Item = (IfIndex, Which, Direction)> {
        self.features.iter().map(|(index, (which, direction))| (IfIndex(*index), *which, *direction))
    }

    /// Templates of the records that there may be.
    fn templates(&self) -> Vec<Template> {
        let variants = |which| match which {
            Which::Ip4 => &[Variant::Ip4][..],
            Which::Ip6 => &[Variant::Ip6],
            Which::L2 if self.params.record.l3() || self.params.record.l4() => &[Variant::L2, Variant::L2Ip4, Variant::L2Ip6],
            Which::L2 => &[Variant::L2],
        };
        let all = self.features.values().flat_map(|(which, _)| variants(*which));
        all.filter_map(|variant| Template::new(*variant, self.params.record)).collect()
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let threads: Vec<Shared> = (0..MAX_THREADS).map(|thread| Shared::new(Flows::new(thread))).collect();
    let links = Published::new(Links::new());
    nodes::declare(router, &threads, &links)?;
    router.add_part(Flowprobe { params: Params::default(), features: BTreeMap::new(), threads, links });
    exporter::join(router, User { changed: tell, flush });
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = *event {
            forget(router, index);
        }
    });
    router.listen_workers(on_worker);
    Ok(())
}

/// Calls `f` with the flows of each thread, on that thread.
///
/// # Errors
/// The plugin is off.
pub fn on_each<R: Send + 'static>(
    router: &mut Router,
    f: impl Fn(usize, &mut Flows) -> R + Send + Sync + 'static,
) -> Result<Vec<R>, OpError> {
    let threads = router.state::<Flowprobe>()?.threads.clone();
    Ok(router.graph.fleet().each(move |worker| {
        let thread = worker.thread();
        f(thread, &mut threads[thread % threads.len()].lock())
    }))
}

/// What a thread must know.
struct Wanted {
    params: Params,
    templates: Vec<Template>,
    to: Option<Destination>,
    on: bool,
    domain: quiver_tables::qsbr::Domain,
    now: u64,
}

impl Wanted {
    fn new(router: &Router, state: &Flowprobe) -> Self {
        Self {
            params: state.params,
            templates: state.templates(),
            to: exporter::current(router).map(|exporter| exporter.destination(router, PORT)),
            on: !state.features.is_empty(),
            domain: router.graph.domain().clone(),
            now: router.graph.clock().now(),
        }
    }

    fn give(&self, flows: &mut Flows) -> bool {
        flows.set_params(self.params, self.now);
        flows.set_destination(self.to, self.now);
        !self.on || flows.prepare(&self.domain, &self.templates, self.now).is_ok()
    }
}

/// Has all threads send what they have.
fn flush(router: &mut Router) {
    // It joined, so that the plugin is on.
    let _ = on_each(router, |_, flows| flows.stream.flush());
}

/// Has all threads know what holds now.
fn tell(router: &mut Router) -> Result<(), OpError> {
    let wanted = Wanted::new(router, router.state::<Flowprobe>()?);
    let told = on_each(router, move |_, flows| wanted.give(flows))?;
    if told.contains(&false) {
        return Err(OpError::new(retval::TABLE_TOO_BIG, "no memory for the tables of flows").key("flowprobe"));
    }
    Ok(())
}

/// Sets how flows are recorded.
///
/// # Errors
/// Timeouts that cannot be, or nothing would be recorded of interfaces that record.
pub fn set_params(router: &mut Router, params: Params) -> Result<(), OpError> {
    let state = router.state_mut::<Flowprobe>()?;
    if params.passive > 0 && params.active > params.passive {
        let text = format!("the passive timeout of {} s is shorter than the active one of {} s", params.passive, params.active);
        return Err(OpError::new(retval::INVALID_VALUE, text).key("passive").value(params.passive));
    }
    if params.record.is_empty() && !state.features.is_empty() {
        let text = format!("flows of {} interfaces are recorded, and a record must contain something", state.features.len());
        return Err(OpError::new(retval::INVALID_VALUE, text).key("record").remedy("name `l2', `l3' or `l4'"));
    }
    state.params = params;
    tell(router)
}

/// Begins or ends to record flows of an interface.
///
/// # Errors
/// It records otherwise, there is nothing to record, or it has no frames.
pub fn set_feature(router: &mut Router, index: IfIndex, which: Which, direction: Direction, on: bool) -> Result<(), OpError> {
    let interface = router.interfaces.expect(index)?;
    let (name, has_link_layer) = (interface.name.clone(), interface.has_link_layer());
    let parent = matches!(interface.kind, Kind::Sub(_)).then_some(interface.parent);
    let error = |code, text: String| OpError::new(code, text).key("interface").value(&name);
    let state = router.state::<Flowprobe>()?;
    let now = state.features.get(&index.0).copied();
    if !on {
        return match now {
            Some((other, _)) if other != which => {
                let text = format!("{name} records {} flows, not those of {}", other.word(), which.word());
                Err(error(retval::CANNOT_ENABLE_DISABLE_FEATURE, text))
            }
            Some((_, direction)) => {
                switch(router, index, which, direction, false)?;
                router.state_mut::<Flowprobe>()?.features.remove(&index.0);
                publish(router)
            }
            None => Err(error(retval::CANNOT_ENABLE_DISABLE_FEATURE, format!("{name} records no flows"))),
        };
    }
    if now == Some((which, direction)) {
        return Ok(());
    }
    if let Some((which, direction)) = now {
        let text = format!("{name} records {} flows already, {}", which.word(), direction.word());
        let remedy = format!("`flowprobe feature add-del {name} {} {} disable' ends that", which.word(), direction.word());
        return Err(error(retval::CANNOT_ENABLE_DISABLE_FEATURE, text).remedy(remedy));
    }
    if state.params.record.is_empty() {
        let text = "nothing is said yet of what to record".to_owned();
        return Err(error(retval::CANNOT_ENABLE_DISABLE_FEATURE, text).remedy("`flowprobe params record l3 l4' says it"));
    }
    if which == Which::L2 && !has_link_layer {
        return Err(error(retval::INVALID_INTERFACE, format!("{name} carries IP packets without Ethernet headers")));
    }
    if let Some(parent) = parent.filter(|_| which == Which::L2) {
        let text = format!("{name} is a sub-interface, and frames are recorded of whole links");
        return Err(error(retval::INVALID_INTERFACE, text).remedy(format!("name {}", router.interfaces.name(parent))));
    }
    router.state_mut::<Flowprobe>()?.features.insert(index.0, (which, direction));
    let done = tell(router).and_then(|()| publish(router)).and_then(|()| switch(router, index, which, direction, true));
    if done.is_err() {
        router.state_mut::<Flowprobe>()?.features.remove(&index.0);
    }
    done
}

fn switch(router: &mut Router, index: IfIndex, which: Which, direction: Direction, on: bool) -> Result<(), OpError> {
    let ways = [(Way::Rx, direction.rx()), (Way::Tx, direction.tx())];
    for (way, _) in ways.into_iter().filter(|(_, meant)| *meant) {
        let (arcs, node) = nodes::feature(which, way);
        for (at, arc) in arcs.iter().enumerate() {
            let node = if at == 0 { node.to_owned() } else { format!("{node}-multicast") };
            router.graph.set_feature(arc, &node, index, on).map_err(|error| graph_error(&error))?;
        }
    }
    Ok(())
}

/// An interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    let known = router.state::<Flowprobe>().ok().and_then(|state| state.features.get(&index.0).copied());
    if let Some((which, direction)) = known {
        // The features are declared, so that this cannot fail.
        let _ = switch(router, index, which, direction, false);
        if let Ok(state) = router.state_mut::<Flowprobe>() {
            state.features.remove(&index.0);
        }
        let _ = publish(router);
    }
}

/// Has nodes know the link headers of interfaces.
fn publish(router: &Router) -> Result<(), OpError> {
    const ETHERNET: usize = 14;
    const TAG: usize = 4;
    let state = router.state::<Flowprobe>()?;
    let mut links = Links::new();
    for (index, ..) in state.features() {
        let interface = router.interfaces.get(index).filter(|interface| interface.has_link_layer());
        let at = index.0 as usize;
        links.resize(links.len().max(at + 1), 0);
        links[at] = interface.map_or(0, |interface| (ETHERNET + TAG * interface.tags().len()) as u8);
    }
    state.links.publish(links);
    Ok(())
}

/// A thread that joins is told what holds; one that leaves exports what it has.
fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let Ok(state) = router.state::<Flowprobe>() else { return };
    let threads = &state.threads;
    match *event {
        WorkerEvent::Joined(thread) => {
            let (wanted, shared) = (Wanted::new(router, state), threads[thread % threads.len()].clone());
            let given = router.graph.fleet().on(thread, move |_| wanted.give(&mut shared.lock()));
            if given == Some(false) {
                tracing::warn!(target: "flowprobe", "no memory for the flows of thread {thread}: it records none");
            }
        }
        WorkerEvent::Leaving(thread) => {
            let shared = threads[thread % threads.len()].clone();
            let Some(node) = router.graph.node(EXPORT) else { return };
            router.graph.fleet().on(thread, move |worker| {
                worker.at_node(node, |cx| {
                    shared.lock().end(Times::of(cx.now()));
                    send_all(cx, &shared);
                })
            });
        }
    }
}
