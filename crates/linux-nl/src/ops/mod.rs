//! `show lcp netlink`, `show lcp drift`, `lcp resync`; `lcp fpm listen` and `show lcp fpm` in a file of their own.

mod fpm;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use quiver_command::configuration::{Stage, whole};
use quiver_command::document::Shape;
use quiver_command::operation::{Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::control::{Comparison, LinuxNl, Namespace, name};
use crate::reader::Command;
use crate::rib::{Differences, Refusal};
pub use fpm::{FpmAddress, FpmInfo, FpmNamespace, SetFpm, ShowFpm};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &["lcp fpm listen 127.0.0.1:2620 hold-time 60"];

/// Adds the operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES);
    registry.declare::<ShowNetlink>().declare::<ShowDrift>().declare::<Resync>().declare::<SetFpm>().declare::<ShowFpm>();
    registry.configuration(Stage::Services, |_| whole(fpm::settings)).shapes(Stage::Services, SHAPES).covers(&["lcp_fpm_listen"]);
}

/// Names of routing protocols as iproute2 has them (`/etc/iproute2/rt_protos`).
const PROTOCOLS: &[(u8, &str)] = &[
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (17, "mrouted"),
    (18, "keepalived"),
    (42, "babel"),
    (84, "ovn"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

fn protocol(number: u8) -> String {
    PROTOCOLS.iter().find(|(n, _)| *n == number).map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

fn part(router: &Router) -> Result<&LinuxNl, OpError> {
    router.part::<LinuxNl>().ok_or_else(|| OpError::new(retval::FEATURE_DISABLED, "the plugin linux_nl is not loaded"))
}

request! {
    /// Shows what is followed of Linux: sockets, routes by protocol, comparisons with the kernel.
    pub read ShowNetlink "lcp_netlink_show" ["show lcp netlink"] {}
}

/// The answer of [`ShowNetlink`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct NetlinkInfo {
    /// Namespaces.
    pub namespaces: Vec<NamespaceInfo>,
    /// Changes of routes made.
    pub changed_routes: u64,
    /// Changes that the router refused.
    pub refused_changes: u64,
    /// The last of these.
    pub last_refusal: Option<String>,
}

/// A namespace that is followed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NamespaceInfo {
    /// Its name; none: the router's own.
    pub namespace: Option<String>,
    /// `following`, `comparing`, or why it is not followed.
    pub state: String,
    /// Bytes that the kernel lets wait in the socket.
    pub receive_buffer: usize,
    /// Messages of the kernel.
    pub messages: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Times that the socket could not hold all.
    pub overruns: u64,
    /// Comparisons with the kernel, the first one at the start.
    pub comparisons: u64,
    /// Seconds that the last one took.
    pub comparison_seconds: f64,
    /// Changes sent to the main thread.
    pub changes: u64,
    /// Changed prefixes that wait.
    pub waiting: usize,
    /// Routes of the kernel by protocol.
    pub routes: BTreeMap<String, u64>,
    /// Prefixes that the router has of these.
    pub installed: u64,
    /// Routes that the router does not take, by reason.
    pub not_taken: BTreeMap<&'static str, u64>,
    /// Next-hop objects.
    pub next_hop_objects: usize,
    /// Neighbours.
    pub neighbors: usize,
    /// Addresses.
    pub addresses: usize,
}

impl Text for NetlinkInfo {
    fn text(&self, out: &mut String, _: &View) {
        for n in &self.namespaces {
            let _ = writeln!(out, "namespace {}: {}", n.namespace.as_deref().unwrap_or("(own)"), n.state);
            let (bytes, messages, overruns, malformed) = (n.receive_buffer, n.messages, n.overruns, n.malformed);
            let _ = writeln!(out, "  socket: {bytes} bytes, {messages} messages, {overruns} overruns, {malformed} malformed");
            let _ = writeln!(out, "  comparisons: {}, the last one took {:.3} s", n.comparisons, n.comparison_seconds);
            let routes: Vec<String> = n.routes.iter().map(|(protocol, count)| format!("{protocol} {count}")).collect();
            let _ = writeln!(out, "  routes of the kernel: {}", if routes.is_empty() { "none".into() } else { routes.join(", ") });
            let _ = writeln!(out, "  installed: {} prefixes, {} waiting, {} changes sent", n.installed, n.waiting, n.changes);
            if !n.not_taken.is_empty() {
                let reasons: Vec<String> = n.not_taken.iter().map(|(why, count)| format!("{why} {count}")).collect();
                let _ = writeln!(out, "  not taken: {}", reasons.join(", "));
            }
            let (objects, neighbors, addresses) = (n.next_hop_objects, n.neighbors, n.addresses);
            let _ = writeln!(out, "  next-hop objects {objects}, neighbours {neighbors}, addresses {addresses}");
        }
        if self.namespaces.is_empty() {
            let _ = writeln!(out, "no namespace is followed: there are no host interfaces");
        }
        if let Some(last) = &self.last_refusal {
            let _ = writeln!(out, "refused by the router: {} changes, the last one: {last}", self.refused_changes);
        }
    }
}

impl Execute<Router> for ShowNetlink {
    type Reply = NetlinkInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, NetlinkInfo>, OpError> {
        let own = part(router)?;
        let failed = |(namespace, why): (&Option<String>, &String)| NamespaceInfo {
            namespace: namespace.clone(),
            state: format!("not followed: {why}"),
            ..NamespaceInfo::default()
        };
        let mut namespaces: Vec<NamespaceInfo> = own.failed.iter().map(failed).collect();
        for (namespace, follower) in &own.readers {
            let f = follower.figures();
            let state = match &f.failed {
                Some(why) => format!("not followed: {why}"),
                None if f.is_comparing => "comparing".to_owned(),
                None => "following".to_owned(),
            };
            let mut not_taken: BTreeMap<&'static str, u64> =
                Refusal::ALL.iter().filter_map(|why| Some((why.name(), *f.refused.get(why)?))).collect();
            if f.special > 0 {
                not_taken.insert("for some packets only (announced)", f.special);
            }
            namespaces.push(NamespaceInfo {
                namespace: namespace.clone(),
                state,
                receive_buffer: f.receive_buffer,
                messages: f.messages,
                malformed: f.malformed,
                overruns: f.overruns,
                comparisons: f.comparisons,
                comparison_seconds: f.dump_time.as_secs_f64(),
                changes: f.changes,
                waiting: f.waiting,
                routes: f.by_protocol.iter().map(|(number, count)| (protocol(*number), *count)).collect(),
                installed: f.told,
                not_taken,
                next_hop_objects: f.objects,
                neighbors: f.neighbors,
                addresses: f.addresses,
            });
        }
        let (changed_routes, refused_changes) = (own.applied.routes, own.applied.refused);
        let last_refusal = own.applied.last.clone();
        Ok(Outcome::Done(NetlinkInfo { namespaces, changed_routes, refused_changes, last_refusal }))
    }
}

request! {
    /// Compares Linux' routes with the kernel, without waiting for the result.
    pub change Resync "lcp_resync" ["lcp resync"] {}
}

impl Execute<Router> for Resync {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        part(router)?.readers.values().for_each(|follower| follower.command(Command::Compare(None)));
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Compares the kernel's routes with the forwarding table, shows what differs, and repairs it.
    pub read ShowDrift "lcp_drift_show" ["show lcp drift"] {}
}

/// What a comparison found in a namespace.
#[derive(Debug, Clone, Serialize)]
pub struct Drift {
    /// Its name; none: the router's own.
    pub namespace: Option<String>,
    /// Routes that the kernel has and had not announced, and that had not been announced to go.
    pub kernel: Differences,
    /// Routes that the forwarding table had otherwise, or not.
    pub table: Differences,
}

/// The answer of [`ShowDrift`].
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Drifts(pub Vec<Drift>);

impl Text for Drifts {
    fn text(&self, out: &mut String, _: &View) {
        for drift in &self.0 {
            let (kernel, table) = (&drift.kernel, &drift.table);
            let all = kernel.missing + kernel.extra + table.missing;
            let state = if all == 0 { "no difference".to_owned() } else { format!("{all} differences, repaired") };
            let _ = writeln!(out, "namespace {}: {state}", name(&drift.namespace));
            if all > 0 {
                let (missing, extra, other) = (kernel.missing, kernel.extra, table.missing);
                let _ = writeln!(out, "  missing {missing}, extra {extra}, otherwise in the forwarding table {other}");
            }
            for example in kernel.examples.iter().chain(&table.examples) {
                let _ = writeln!(out, "  {example}");
            }
        }
    }
}

impl Execute<Router> for ShowDrift {
    type Reply = Drifts;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Drifts>, OpError> {
        part(router)?;
        let Some(own) = router.part_mut::<LinuxNl>() else { return Ok(Outcome::Done(Drifts::default())) };
        let number = own.number();
        own.compared.insert(number, Vec::new());
        own.readers.values().for_each(|follower| follower.command(Command::Compare(Some(number))));
        let asked = own.readers.iter().map(|(namespace, follower)| (namespace.clone(), follower.number)).collect();
        Ok(Outcome::job(Comparing { number, asked, cancelled: false }))
    }
}

/// Waits for the comparisons of namespaces.
struct Comparing {
    number: u64,
    /// Namespaces, and the readers that were asked there.
    asked: Vec<(Namespace, u64)>,
    cancelled: bool,
}

/// Between two looks at whether the readers have finished.
const LOOK: Duration = Duration::from_millis(10);

impl Job<Router, Drifts> for Comparing {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<Drifts> {
        let Some(own) = router.part_mut::<LinuxNl>() else { return Step::Done(Ok(Drifts::default())) };
        let done = own.compared.get(&self.number);
        let has_answered = |asked: &Namespace| done.is_some_and(|done| done.iter().any(|found| found.namespace == *asked));
        // A reader that ends meanwhile has nothing to compare any more, and one that follows it was not asked.
        let is_there = |(namespace, reader): &&(Namespace, u64)| own.readers.get(namespace).is_some_and(|r| r.number == *reader);
        if !self.cancelled && self.asked.iter().filter(is_there).any(|(namespace, _)| !has_answered(namespace)) {
            return Step::Sleep(LOOK);
        }
        let found = own.compared.remove(&self.number).unwrap_or_default().into_iter();
        let drift = |c: Comparison| Drift { namespace: c.namespace, kernel: c.differences, table: c.table };
        Step::Done(Ok(Drifts(found.map(drift).collect())))
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, _router: &mut Router) {
        self.cancelled = true;
    }
}

/// Where it stands in a document.
const SHAPES: &[Shape] = &[Shape::new("linux_cp/fpm", r#"{"*":"*"}"#, "lcp_fpm_listen", r#"{"*":"*"}"#)
    .doc("Routing daemons send their routes by themselves.")];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
