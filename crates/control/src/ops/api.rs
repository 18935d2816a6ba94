//! `api trace`, `show api clients`: the binary API seen from the outside.

use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::Router;
use quiver_net::api::{ClientInfo, Clients, Wish};
use quiver_net::files::{Elsewhere, Files, Use};
use serde::Serialize;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ChangeTrace>()
        .declare::<SaveTrace>()
        .declare::<ShowTrace>()
        .declare::<ShowClients>()
        .declare::<ShowWatchers>()
        .declare::<ShowBihash>();
}

fn no_api() -> OpError {
    OpError::new(retval::UNSUPPORTED, "this router has no binary API").remedy("see socksvr { } in startup.conf")
}

fn clients(router: &mut Router) -> Result<&mut Clients, OpError> {
    router.part_mut().ok_or_else(no_api)
}

request! {
    /// Shows which clients of the binary API are told about neighbors.
    pub read ShowWatchers "ip_neighbor_watchers_show" ["show ip neighbor-watcher"] {}
}

/// A wish to be told about neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatcherReply {
    /// Name of the client.
    pub client: String,
    /// What the client calls itself.
    pub pid: u32,
    /// Only this interface.
    pub interface: Option<String>,
    /// Only this address.
    pub address: Option<std::net::IpAddr>,
}

impl Text for WatcherReply {
    fn text(&self, out: &mut String, _: &View) {
        let Self { client, pid, interface, address } = self;
        let address = address.map_or_else(|| "any".to_owned(), |address| address.to_string());
        let _ = writeln!(out, "{client} pid:{pid} {} {address}", interface.as_deref().unwrap_or("any"));
    }
}

impl Execute<Router> for ShowWatchers {
    type Reply = Vec<WatcherReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<WatcherReply>>, OpError> {
        let wishes = clients(router)?.neighbor_wishes();
        let reply = |(client, wish): (String, Wish)| WatcherReply {
            client,
            pid: wish.pid,
            interface: wish.interface.map(|index| router.interfaces.name(index)),
            address: wish.address,
        };
        Ok(Outcome::Done(wishes.into_iter().map(reply).collect()))
    }
}

words! {
    /// What happens to the recording.
    pub enum TraceChange {
        /// Record.
        On = "on",
        /// Record no more; what is recorded stays.
        Off = "off",
        /// Forget what is recorded.
        Free = "free",
    }
}

request! {
    /// Starts or stops the recording of API messages, or discards what was recorded.
    pub change ChangeTrace "api_trace_set" ["api trace"] {
        /// Change.
        pub change: TraceChange = "on|off|free",
    }
}

impl Execute<Router> for ChangeTrace {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let trace = &mut clients(router)?.trace;
        match self.change {
            TraceChange::On => trace.switch(true),
            TraceChange::Off => trace.switch(false),
            TraceChange::Free => trace.clear(),
        }
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Writes recorded API messages to a file.
    pub change SaveTrace "api_trace_save" ["api trace save"] {
        /// Name of a file, or its path.
        pub file: String = "<file>",
    }
}

/// The answer of [`SaveTrace`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// How many messages.
    pub messages: usize,
    /// Where they are.
    pub file: PathBuf,
}

impl Execute<Router> for SaveTrace {
    type Reply = Saved;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Saved>, OpError> {
        let place = Files::place(router, &self.file, Use::Write)?;
        let clients = clients(router)?;
        let (mut text, mut messages) = (String::from("# seconds client message bytes\n"), 0);
        for message in clients.trace.messages() {
            let _ = write!(text, "{:.6} {:#x} {} ", message.time as f64 / 1e9, message.client, clients.name_of(&message.bytes));
            for byte in &message.bytes {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
            messages += 1;
        }
        let save = move || {
            place.save(text.as_bytes()).map_err(|error| place.cannot("write", &error))?;
            Ok(Saved { messages, file: place.path().to_owned() })
        };
        Ok(Outcome::job(Elsewhere::new(save, |_, saved| Ok(saved))))
    }
}

impl Text for Saved {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "API trace saved to {}", self.file.display());
    }
}

request! {
    /// Shows whether API messages are recorded.
    pub read ShowTrace "api_trace_show" ["show api trace-status"] {}
}

/// The answer of [`ShowTrace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TraceStatus {
    /// Whether they are.
    pub on: bool,
    /// How many are kept.
    pub messages: usize,
}

impl Execute<Router> for ShowTrace {
    type Reply = TraceStatus;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, TraceStatus>, OpError> {
        let trace = &clients(router)?.trace;
        Ok(Outcome::Done(TraceStatus { on: trace.is_on(), messages: trace.messages().count() }))
    }
}

impl Text for TraceStatus {
    fn text(&self, out: &mut String, _view: &View) {
        let on = if self.on { "enabled" } else { "disabled" };
        let _ = writeln!(out, "RX Trace is {on}");
    }
}

request! {
    /// Shows who is connected to the binary API.
    pub read ShowClients "api_clients_show" ["show api clients"] {}
}

/// The answer of [`ShowClients`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ClientList(pub Vec<ClientInfo>);

impl Execute<Router> for ShowClients {
    type Reply = ClientList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ClientList>, OpError> {
        Ok(Outcome::Done(ClientList(clients(router)?.list())))
    }
}

impl Text for ClientList {
    fn text(&self, out: &mut String, _view: &View) {
        if self.0.is_empty() {
            out.push_str("No API clients\n");
            return;
        }
        let left = |table: TextTable, (heading, width)| table.column_with(heading, Align::Left, width, Align::Left);
        let columns = [("Index", 12), ("Name", 24), ("Messages", 12), ("Events", 22), ("Lost", 0)];
        let table = columns.into_iter().fold(TextTable::new().trim(), left);
        table.heading(out);
        for client in &self.0 {
            let events = match (client.interface_events, client.neighbor_events) {
                (false, false) => "none",
                (true, false) => "interfaces",
                (false, true) => "neighbors",
                (true, true) => "interfaces, neighbors",
            };
            let index = format!("{:#x}", client.index);
            table.row(out, &[&index, &client.name, &client.requests, &events, &client.lost_events]);
        }
    }
}

request! {
    /// Accepted for VPP's scripts: this router has no bihash tables.
    pub read ShowBihash "bihash_show" ["show bihash"] {
    } ignores {
        /// There is no more to be shown.
        "detail|verbose",
    }
}

/// The answer of [`ShowBihash`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BihashList(pub Vec<String>);

impl Execute<Router> for ShowBihash {
    type Reply = BihashList;

    fn execute(self, _: &mut Router) -> Result<Outcome<Router, BihashList>, OpError> {
        Ok(Outcome::Done(BihashList(Vec::new())))
    }
}

impl Text for BihashList {
    fn text(&self, out: &mut String, _view: &View) {
        out.push_str("There are no tables of this kind; `show memory' tells what those of this router take\n");
    }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    use crate::ops::testing::{OwnFolder, error, run};

    #[test]
    fn a_router_without_its_daemon_says_so() {
        let mut h = Harness::new();
        let _folder = OwnFolder::of(&mut h.router, "no-api");
        for line in ["show api clients", "show api trace-status", "api trace on", "api trace save f"] {
            assert!(error(&mut h.router, line).contains("no binary API"), "{line}");
        }
        assert!(run(&mut h.router, "show bihash verbose").contains("no tables"));
    }

    #[test]
    fn the_trace_is_switched_forgotten_and_saved() {
        let mut h = Harness::new();
        let table = std::rc::Rc::new(quiver_net::api::Table::new(crate::api::handlers::all()));
        quiver_net::api::install(&mut h.router, &table, quiver_net::api::Trace::new(false, None));
        assert_eq!(run(&mut h.router, "show api trace-status"), "RX Trace is disabled\n");
        run(&mut h.router, "api trace on");
        let ping = table.catalog().named("control_ping").unwrap().id.to_be_bytes();
        h.router.part_mut::<quiver_net::api::Clients>().unwrap().trace.record(1_500_000_000, 0x8000_0001, &ping);
        assert_eq!(run(&mut h.router, "show api trace-status"), "RX Trace is enabled\n");
        let folder = OwnFolder::of(&mut h.router, "api-trace");
        let path = folder.0.join("messages");
        assert_eq!(run(&mut h.router, "api trace save messages"), format!("API trace saved to {}\n", path.display()));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("1.500000 0x80000001 control_ping {:02x}{:02x}\n", ping[0], ping[1])), "{text}");
        run(&mut h.router, "api trace free");
        assert_eq!(h.router.part::<quiver_net::api::Clients>().unwrap().trace.messages().count(), 0);
        assert!(error(&mut h.router, "api trace save ../etc/x").contains("illegal"));
        assert_eq!(run(&mut h.router, "show api clients"), "No API clients\n");
    }
}
