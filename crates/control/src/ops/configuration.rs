//! `show configuration`, `write`, `save`: the running configuration, as commands or requests that make it again; and the daemon's own
//! part of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quiver_command::change_log::Record;
use quiver_command::configuration::{Configuration, Entry, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::operation::{Chain, Job, OpError, Outcome, Registry, Step, Text, View, retval};
use quiver_command::request;
use quiver_command::request::{Declared, Execute};
use quiver_command::script::{Define, DefineRequest, ScriptState, Undefine, UndefineRequest};
use quiver_net::Router;
use quiver_net::files::{Elsewhere, Files, Use};
use quiver_net::interface::ops::placement::{Mode, SetDefaultMode};
use serde::Serialize;

use super::logging::{SetLogging, SetLoggingClass};
use super::memif::DeleteSocket;
use super::workers::SetWorkers;
use crate::journal::Journal;
use crate::log::Level;
use crate::system::{Scripts, System};

/// Operations of the daemon and of `net` that change something, but no configuration: they clear, show, send, or run others.
const ACTIONS: &[&str] = &[
    "api_trace_save",
    "api_trace_set",
    "clock_adjust",
    "errors_clear",
    "events_clear",
    "events_save",
    "events_switch",
    "exec",
    "exec_lines",
    "interfaces_clear",
    "ip_neighbor_flush",
    "l2fib_flush",
    "log_clear",
    "pcap_trace_off",
    "pcap_trace_on",
    "perfmon_start",
    "perfmon_stop",
    "pg_capture",
    "pg_link_state_set",
    "pg_stream_configure",
    "pg_stream_new",
    "pg_stream_state",
    "ping",
    "runtime_clear",
    "session_clear",
    "trace_add",
    "trace_clear",
    "trace_filter_set",
    "trace_timestamp_set",
];

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ShowConfiguration>()
        .declare::<WriteConfiguration>()
        .declare::<WriteCheckpoint>()
        .declare::<SaveConfiguration>()
        .declare::<ShowState>()
        .actions(&["configuration_write", "configuration_checkpoint", "configuration_save"])
        .actions(ACTIONS)
        .covers(&["log_class_set", "log_set", "workers_set", "rx_mode_default_set", "macro_define", "macro_undefine"])
        .covers(&["memif_socket_create", "memif_socket_delete", "memif_create", "host_interface_create", "tap_create"])
        .covers(&["af_xdp_create", "pcap_interface_create"])
        .configuration(Stage::System, |_| whole(logging))
        .configuration(Stage::System, |_| whole(threads))
        .configuration(Stage::System, |_| whole(macros))
        .configuration(Stage::Sockets, |_| whole(sockets))
        .shapes(Stage::System, SYSTEM)
        .shapes(Stage::Sockets, SOCKETS)
        .shapes(Stage::Interfaces, DEVICES);
}

request! {
    /// Shows the running configuration as commands that make it again, and to programs as requests.
    pub read ShowConfiguration "configuration_show" ["show configuration"] {}
}

impl Execute<Router> for ShowConfiguration {
    type Reply = Configuration<Router>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Configuration<Router>>, OpError> {
        Ok(System::of(router)?.registry.get().collect().outcome())
    }
}

request! {
    /// Writes the running configuration to the state folder, in the place of all that was recorded, and forgets what could not be made again at start.
    pub change WriteConfiguration "configuration_write" ["write"] {}
}

impl Execute<Router> for WriteConfiguration {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        checkpoint(router, true).map(Outcome::job)
    }
}

/// The journal of a router that has one.
fn journal(router: &Router) -> Result<Rc<Journal>, OpError> {
    let none = || {
        let error = OpError::new(retval::UNSUPPORTED, "the configuration of this router does not last");
        error.remedy("say where it is to be kept in startup.conf: unix { state-dir DIR }")
    };
    router.part::<Rc<Journal>>().cloned().ok_or_else(none)
}

/// Name of the operation that writes a checkpoint. The router asks for it itself; there is no command.
pub const CHECKPOINT: &str = <WriteCheckpoint as Declared>::NAME;

request! {
    /// Writes the running configuration to the state folder, in the place of the records that it has.
    pub change WriteCheckpoint "configuration_checkpoint" [] {}
}

impl Execute<Router> for WriteCheckpoint {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        checkpoint(router, false).map(Outcome::job)
    }
}

/// Collects the configuration, hands it to the journal and waits for the disk.
pub(super) type Checkpoint = Chain<Router, Configuration<Router>, ()>;

/// The checkpoint of a router that has a journal. `forget`: so is what could not be made again.
pub(super) fn checkpoint(router: &Router, forget: bool) -> Result<Checkpoint, OpError> {
    let journal = journal(router)?;
    journal.check_holding()?;
    let collect = System::of(router)?.registry.get().collect();
    Ok(Chain::new(collect, move |_, configuration| {
        let sequence = journal.checkpoint(&configuration, forget);
        Ok(Stored { journal, sequence })
    }))
}

/// Waits until the journal is on the disk. Other operations may run while it waits.
struct Stored {
    journal: Rc<Journal>,
    sequence: u64,
}

impl Job<Router, ()> for Stored {
    fn step(&mut self, _: &mut Router, _: Duration) -> Step<()> {
        match self.journal.poll_stored(self.sequence, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Step::Done(result),
            Poll::Pending => Step::Wait,
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.journal.poll_stored(self.sequence, context).map(drop)
    }

    fn exclusive(&self) -> bool {
        false
    }

    fn cancel(&mut self, _: &mut Router) {}
}

request! {
    /// Saves the running configuration as a file of commands, which `exec` and `startup-config` run.
    pub change SaveConfiguration "configuration_save" ["save"] {
        /// File.
        pub file: PathBuf = "<file>",
    }
}

impl Execute<Router> for SaveConfiguration {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let place = Files::place(router, &self.file, Use::Write)?;
        // While another thread writes others may run.
        let collect = System::of(router)?.registry.get().collect();
        Ok(Outcome::job(Chain::new(collect, move |_, configuration: Configuration<Router>| {
            let mut text = String::new();
            configuration.text(&mut text, &View::TEXT);
            let write = move || place.save(text.as_bytes()).map_err(|error| place.cannot("write", &error));
            Ok(Elsewhere::new(write, |_, ()| Ok(())))
        })))
    }
}

request! {
    /// Shows where the configuration is kept, how much was recorded, and what could not be made again at start.
    pub read ShowState "configuration_state_show" ["show configuration state"] {}
}

/// The answer of [`ShowState`].
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// The folder; absent where the configuration does not last.
    pub folder: Option<String>,
    /// Why nothing can be stored.
    pub trouble: Option<String>,
    /// Operations recorded since the start.
    pub recorded: u64,
    /// What could not be made again.
    pub failed: Vec<Record>,
}

impl Execute<Router> for ShowState {
    type Reply = State;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, State>, OpError> {
        let none = State { folder: None, trouble: None, recorded: 0, failed: Vec::new() };
        Ok(Outcome::Done(router.part::<Rc<Journal>>().map_or(none, |journal| State {
            folder: Some(journal.folder().to_owned()),
            trouble: journal.trouble(),
            recorded: journal.sequence(),
            failed: journal.failed(),
        })))
    }
}

impl Text for State {
    fn text(&self, out: &mut String, _: &View) {
        let Some(folder) = &self.folder else { return out.push_str("the configuration does not last: no state-dir\n") };
        let _ = writeln!(out, "kept in {folder}, {} operations recorded since the start", self.recorded);
        if let Some(trouble) = &self.trouble {
            let _ = writeln!(out, "nothing can be stored: {trouble}");
        }
        for failed in &self.failed {
            let _ = writeln!(out, "could not be made again: {} {}", failed.operation, failed.request.get());
        }
    }
}

/// What operations have set that differs from `startup.conf`.
#[derive(Debug, Default)]
pub struct Said {
    /// Lines of the log.
    pub log_size: Setting<usize>,
    /// Seconds for which a class is not heard.
    pub log_unthrottle: Setting<u32>,
    /// Threshold and lines a second of classes of the log.
    pub log_classes: BTreeMap<String, (Setting<Level>, Setting<u32>)>,
    /// Sockets of memif interfaces by number.
    pub memif_sockets: BTreeMap<u32, Entry>,
}

/// A value that an operation has set, and the one before the first such operation: where they are the same nothing is configured.
#[derive(Debug, Clone, Copy)]
pub struct Setting<T>(Option<(T, T)>);

impl<T> Default for Setting<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + PartialEq> Setting<T> {
    /// Notes a new value. `now`: the one that holds until then.
    pub fn set(&mut self, value: T, now: T) {
        self.0 = Some((value, self.0.map_or(now, |(_, before)| before)));
    }

    /// The value and the one before, where they differ.
    pub fn get(self) -> Option<(T, T)> {
        self.0.filter(|(value, before)| value != before)
    }
}

impl Said {
    /// What a router's operations have set.
    pub fn of(router: &mut Router) -> &mut Self {
        router.part_or_default()
    }
}

fn logging(router: &Router, out: &mut Configuration<Router>) {
    let Some(said) = router.part::<Said>() else { return };
    if let Some((size, before)) = said.log_size.get() {
        let set = |size| SetLogging { size: Some(size), unthrottle: None };
        out.push(&set(size)).undo(&set(before)).replaced();
    }
    if let Some((seconds, before)) = said.log_unthrottle.get() {
        let set = |seconds| SetLogging { size: None, unthrottle: Some(seconds) };
        out.push(&set(seconds)).undo(&set(before)).replaced();
    }
    for (class, (level, rate_limit)) in &said.log_classes {
        let level =
            level.get().map(|(level, before)| (SetLoggingClass::level(class, level), SetLoggingClass::level(class, before)));
        let limit = rate_limit.get();
        let limit = limit.map(|(lines, before)| (SetLoggingClass::limit(class, lines), SetLoggingClass::limit(class, before)));
        for (set, undo) in level.into_iter().chain(limit) {
            out.push(&set).undo(&undo).replaced();
        }
    }
}

/// Workers where there are more or fewer than at start, and how queues of new interfaces are waited for.
fn threads(router: &Router, out: &mut Configuration<Router>) {
    let Some(system) = router.part::<System>() else { return };
    let workers: Vec<_> = router.graph.thread_info().into_iter().filter(|thread| thread.thread > 0).collect();
    if workers.len() != system.workers {
        let joined = workers.iter().skip(system.workers).map(|worker| worker.cpu);
        let corelist = joined.collect::<Option<Vec<u32>>>().unwrap_or_default();
        let undo = SetWorkers { count: system.workers, corelist: Vec::new() };
        out.push(&SetWorkers { count: workers.len(), corelist }).undo(&undo).replaced();
    }
    if router.rx_default() != system.startup.rx_mode {
        let set = |mode| SetDefaultMode { mode: Mode::of(mode) };
        out.push(&set(router.rx_default())).undo(&set(system.startup.rx_mode)).replaced();
    }
}

fn macros(router: &Router, out: &mut Configuration<Router>) {
    for (name, value) in router.part::<ScriptState>().iter().flat_map(|state| state.macros.iter()) {
        let request = DefineRequest { name: name.to_owned(), value: value.to_owned() };
        let pushed = out.push_as::<Define<Scripts>>(&request, format!("define {name} {value}"));
        let undo = UndefineRequest { name: name.to_owned() };
        pushed.undo_as::<Router, Undefine<Scripts>>(&undo).replaced();
    }
}

/// What memif interfaces build on: their socket.
pub(super) fn socket_of(id: u32) -> String {
    format!("memif socket {id}")
}

fn sockets(router: &Router, out: &mut Configuration<Router>) {
    for (id, socket) in router.part::<Said>().iter().flat_map(|said| &said.memif_sockets) {
        out.push_entry(socket.clone()).undo(&DeleteSocket { id: *id }).makes(socket_of(*id));
    }
}

/// What concerns no interface.
const SYSTEM: &[Shape] = &[
    Shape::new("logging/size", r#""{size#}""#, "log_set", r#"{"size":"{size#}","unthrottle":null}"#)
        .doc("Lines of the log that are remembered."),
    Shape::new("logging/unthrottle", r#""{seconds#}""#, "log_set", r#"{"size":null,"unthrottle":"{seconds#}"}"#)
        .doc("Seconds for which a class that said too much is not heard."),
    Shape::new(
        "logging/classes/{class}/level",
        r#""{level}""#,
        "log_class_set",
        r#"{"class":"{class}","level":"{level}","rate_limit":null}"#,
    )
    .doc("From which level on a class is logged.")
    .types(&[("level", r#"{"type":"string"}"#)]),
    Shape::new(
        "logging/classes/{class}/rate_limit",
        r#""{lines#}""#,
        "log_class_set",
        r#"{"class":"{class}","level":null,"rate_limit":"{lines#}"}"#,
    )
    .doc("Lines a second of a class."),
    Shape::new("workers", r#"{"count":"{count#}","*":"*"}"#, "workers_set", r#"{"count":"{count#}","*":"*"}"#)
        .doc("Worker threads, where there are others than at start.")
        .types(&[("corelist", r#"{"type":"array","items":{"type":"integer","minimum":0}}"#)]),
    Shape::new("rx_mode", r#""{mode}""#, "rx_mode_default_set", r#"{"mode":"{mode}"}"#)
        .doc("How queues of new interfaces are waited for."),
    Shape::new("macros/{name}", r#""{value}""#, "macro_define", r#"{"name":"{name}","value":"{value}"}"#)
        .doc("A name that commands may have in place of a text.")
        .types(&[("value", r#"{"type":"string"}"#)]),
];

/// Sockets that interfaces are made on.
const SOCKETS: &[Shape] = &[Shape::new("memif_sockets/{id#}", r#"{"*":"*"}"#, "memif_socket_create", r#"{"id":"{id#}","*":"*"}"#)
    .doc("A socket of memif interfaces, under its number.")];

/// Interfaces of devices.
const DEVICES: &[Shape] = &[
    Shape::new(
        "interfaces/memif{socket_id#}%{id#}/memif",
        r#"{"*":"*"}"#,
        "memif_create",
        r#"{"socket_id":"{socket_id#}","id":"{id#}","*":"*"}"#,
    )
    .doc("A memif interface; its name is memif, the number of its socket, a slash and its number."),
    Shape::new("interfaces/tap{id#}/tap", r#"{"*":"*"}"#, "tap_create", r#"{"id":"{id#}","if_name":null,"*":"*"}"#)
        .doc("A TAP interface; its name is tap and a number."),
    Shape::new(
        "interfaces/{interface}/tap",
        r#"{"id":"{id#}","*":"*"}"#,
        "tap_create",
        r#"{"id":"{id#}","if_name":"{interface}","*":"*"}"#,
    )
    .doc("A TAP interface with a name of its own."),
    Shape::new("interfaces/host-{name}/host_interface", r#"{"*":"*"}"#, "host_interface_create", r#"{"name":"{name}","*":"*"}"#)
        .doc("An interface of Linux, by AF_PACKET; its name is host- and that of the Linux interface."),
    Shape::new("interfaces/{interface}/af_xdp", r#"{"*":"*"}"#, "af_xdp_create", r#"{"name":"{interface}","*":"*"}"#)
        .doc("An interface of Linux, by AF_XDP."),
    Shape::new("interfaces/{interface}/pcap", r#"{"*":"*"}"#, "pcap_interface_create", r#"{"name":"{interface}","*":"*"}"#)
        .doc("An interface of capture files.")
        .types(&[("timing", "{}"), ("rounds", "{}")]),
];

#[cfg(test)]
mod tests {
    use quiver_net::ops::testing::{configuration, execute};
    use quiver_net::testing::Harness;

    use super::super::testing::registry;

    /// What two routers with the same configuration must show alike.
    const SHOWN: &[&str] = &[
        "show interface address",
        "show interface tag",
        "show mode",
        "show ip table",
        "show ip6 table",
        "show ip pmtu",
        "show macro",
    ];

    /// Runs commands on a router of its own.
    fn router(lines: &str) -> Harness {
        let (registry, mut h) = (registry(), Harness::new());
        for line in lines.lines().map(str::trim) {
            execute(&registry, &mut h.router, line).unwrap_or_else(|error| panic!("{line}: {error}\n{lines}"));
        }
        h
    }

    /// Tables of routes, without the numbers of what is shared.
    fn routes(h: &Harness) -> Vec<String> {
        use quiver_net::ip::FamilyId::{V4, V6};
        let mut all = Vec::new();
        for family in [V4, V6] {
            for table in h.router.tables(family) {
                for route in h.router.routes(family, table.id, None, usize::MAX).unwrap() {
                    let sources: Vec<_> = route.sources.iter().map(|said| (said.source, &said.paths)).collect();
                    all.push(format!("{family:?} {} {} {:?} {sources:?}", table.id, table.name, route.prefix));
                }
            }
        }
        all
    }

    /// The configuration of a router makes a router with the same one, and the same state.
    fn made_again(h: &mut Harness) -> String {
        let registry = registry();
        let said = configuration(&registry, &h.router);
        let mut again = router(&said);
        assert_eq!(configuration(&registry, &again.router), said);
        for show in SHOWN {
            let of = |h: &mut Harness| execute(&registry, &mut h.router, show).unwrap();
            assert_eq!(of(&mut again), of(h), "{show}\n{said}");
        }
        // By name: sub-interfaces are made last, so numbers may differ.
        let of = |h: &Harness| {
            let all = h.router.interfaces.iter().map(|i| (i.name.clone(), (i.mac, i.mtu, i.admin_up)));
            all.collect::<std::collections::BTreeMap<_, _>>()
        };
        assert_eq!(of(&again), of(h), "{said}");
        assert_eq!(routes(&again), routes(h), "{said}");
        said
    }

    #[test]
    fn what_is_said_about_operations_names_those_there_are() {
        let registry = registry();
        let all: Vec<&str> = registry.operations().collect();
        for name in registry.acting().iter().chain(registry.covered()) {
            assert!(all.contains(name), "{name}");
        }
        assert!(registry.acting().is_disjoint(registry.covered()));
    }

    #[test]
    fn an_empty_router_has_no_configuration() {
        assert_eq!(made_again(&mut Harness::new()), "");
    }

    #[test]
    fn what_was_configured_is_said_in_an_order_that_makes_it_again() {
        let said = made_again(&mut router(
            "create packet-generator interface pg0
             set interface ip address pg0 10.0.0.1/24
             set interface ip address pg0 2001:db8::1/64
             set interface state pg0 up
             create packet-generator interface pg3 hw-addr 2:0:0:0:0:7
             set interface mac address pg3 2:0:0:0:0:8
             create loopback interface
             create loopback interface mac 2:0:0:0:0:9
             create sub-interfaces pg0 7
             create sub-interfaces pg0 8 dot1ad 9 inner-dot1q any
             ip table add 5 name blue
             ip6 table add 5
             set interface ip table loop1 5
             set interface ip address loop1 192.0.2.1/32
             set interface unnumbered pg0.7 use loop0
             set interface mtu 1400 pg0
             set interface mtu ip6 1300 pg0
             set interface tag pg0 to the  cellar
             set interface promiscuous on pg0
             set interface ip directed-broadcast pg0 enable
             set interface l2 xconnect pg3 pg0.8
             set ip flow-hash table 5 src dst
             ip route add 10.9.0.0/16 table 5 via 10.0.0.2 pg0 weight 2 via 10.0.0.3 pg0 preference 1
             ip route add source api 10.9.0.0/16 via drop
             ip route add 10.9.0.0/16 via 10.0.0.9 next-hop-table 5 resolve-via-attached
             ip route add 2001:db8:9::/48 via lookup in table 5
             ip route add 2001:db8:a::/48 via lookup in table 5 src-lookup
             ip route add 2001:db8:b::/48 via rx-ip6 loop0
             ip route add 10.8.0.1 via loop0
             create packet-generator interface pg9
             ip route add 10.7.0.0/16 via pg9 via 10.0.0.2 pg0
             ip route add 10.6.0.0/16 via pg9
             delete packet-generator interface pg9
             set ip pmtu 10.0.0.2 900
             set interface feature pg0 worker-handoff arc device-input disable
             define LINK pg0",
        ));
        let expected = "\
define LINK pg0
create packet-generator interface pg0
create packet-generator interface pg3 hw-addr 02:00:00:00:00:07
create loopback interface instance 0
create loopback interface mac 02:00:00:00:00:09 instance 1
create sub-interfaces pg0 7
create sub-interfaces pg0 8 dot1ad 9 inner-dot1q any
ip table 5 name blue
set ip flow-hash table 5 src dst
ip6 table 5
set interface mtu packet 1400 pg0
set interface mtu ip6 1300 pg0
set interface promiscuous on pg0
set interface ip directed-broadcast pg0 enable
set interface tag pg0 to the  cellar
set interface mac address pg3 02:00:00:00:00:08
set interface l2 xconnect pg3 pg0.8
set interface ip table loop1 5
";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains("\nip route add 10.6.0.0/16 via gone\n"), "{said}");
    }

    #[test]
    fn interfaces_have_their_names_again_whoever_had_them_before() {
        let said = made_again(&mut router(
            "create loopback interface instance 0
             create loopback interface instance 1
             create sub-interfaces loop0 5
             set interface name loop0 free
             set interface name loop1 loop0
             set interface name free loop1
             create loopback interface instance 2
             set interface name loop2 a
             create sub-interfaces a 5
             set interface name a.5 s
             create loopback interface instance 3
             set interface name loop3 a.5",
        ));
        assert!(said.contains("set interface name loop0 loop1~\n"), "{said}");
    }
}
