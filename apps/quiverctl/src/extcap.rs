//! The router's interfaces as capture interfaces of Wireshark and tshark (extcap): they start this program, under the name `quiver-extcap`,
//! from their folder of such programs, ask what there is to capture, and read packets from a pipe that they have made.
//!
//! ```text
//! quiver-extcap --extcap-interfaces                                          which interfaces are there
//! quiver-extcap --extcap-interface quiver-host-r0 --extcap-dlts              what frames they have
//! quiver-extcap --extcap-interface quiver-host-r0 --extcap-config            what can be chosen
//! quiver-extcap --extcap-interface quiver-host-r0 --capture --fifo F         captures into the pipe F
//! ```

use crate::{Failure, capture, connection::Connection, sockets};
use clap::Parser;
use quiver_command::session::frames::{Call, Status};
use std::path::PathBuf;

/// The name by which this program is an extcap program.
pub const NAME: &str = "quiver-extcap";
/// In front of an interface's name, so that it is known among those of the machine.
const PREFIX: &str = "quiver-";
/// All interfaces of the router.
const ALL: &str = "quiver";
/// In the place of a node, where packets are copied at the interface.
const NO_NODE: &str = "-";

/// What Wireshark asks for.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Request {
    /// List the interfaces
    #[arg(long)]
    extcap_interfaces: bool,
    /// List the kinds of frames of an interface
    #[arg(long)]
    extcap_dlts: bool,
    /// List what can be chosen for an interface
    #[arg(long)]
    extcap_config: bool,
    /// Capture
    #[arg(long)]
    capture: bool,
    /// The interface that is meant
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,
    /// Version of Wireshark
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,
    /// Filter expression; without --capture, it is only checked
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Pipe that packets are written to
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,
    /// Where packets are copied
    #[arg(long, value_name = "POINTS", default_value = "rx,tx", value_delimiter = ',', value_parser = ["rx", "tx", "drop"])]
    at: Vec<String>,
    /// Node of the graph in front of which they are copied instead
    #[arg(long, value_name = "NODE", default_value = NO_NODE)]
    node: String,
    /// Socket of the router
    #[arg(long, value_name = "SOCKET")]
    socket: Option<String>,
}

/// Does what is asked.
///
/// # Errors
/// There is no router, or it refuses.
pub fn run(request: &Request) -> Result<(), Failure> {
    let socket = request.socket.as_deref().filter(|socket| !socket.is_empty());
    if request.extcap_interfaces {
        println!("extcap {{version={}}}{{help=https://www.wireshark.org/docs/man-pages/extcap.html}}", env!("CARGO_PKG_VERSION"));
        println!("interface {{value={ALL}}}{{display=Quiver: all interfaces}}");
        // Without a router there are none, which is no error: Wireshark asks at each start.
        for name in ask(socket, interfaces) {
            println!("interface {{value={PREFIX}{name}}}{{display=Quiver: {name}}}");
        }
        return Ok(());
    }
    if request.extcap_dlts {
        println!("dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}");
        return Ok(());
    }
    if request.extcap_config {
        println!("arg {{number=0}}{{call=--at}}{{display=Packets}}{{type=selector}}{{default=rx,tx}}");
        for (value, display) in [("rx,tx", "received and sent"), ("rx", "received"), ("tx", "sent"), ("drop", "dropped")] {
            println!("value {{arg=0}}{{value={value}}}{{display={display}}}{{default={}}}", value == "rx,tx");
        }
        println!("arg {{number=1}}{{call=--socket}}{{display=Socket of the router}}{{type=string}}");
        println!("arg {{number=2}}{{call=--node}}{{display=Node of the graph}}{{type=selector}}{{default={NO_NODE}}}");
        println!("value {{arg=2}}{{value={NO_NODE}}}{{display=none: packets as chosen above}}{{default=true}}");
        for node in ask(socket, nodes) {
            println!("value {{arg=2}}{{value={node}}}{{display={node}}}{{default=false}}");
        }
        return Ok(());
    }
    let filter = request.extcap_capture_filter.as_deref().filter(|filter| !filter.trim().is_empty());
    if !request.capture {
        // Wireshark wants to know whether the filter is right: nothing is printed if it is.
        return filter.map_or(Ok(()), |filter| crate::filter::compile(filter).map(drop));
    }
    let missing = |what: &str| Failure::Command(format!("{NAME}: --capture needs {what}"));
    let interface = request.extcap_interface.as_deref().ok_or_else(|| missing("--extcap-interface"))?;
    let node = Some(request.node.clone()).filter(|node| !node.is_empty() && node != NO_NODE);
    let capture = capture::Request {
        interface: interface.strip_prefix(PREFIX).map(str::to_owned),
        at: if node.is_none() { request.at.clone() } else { Vec::new() },
        node: node.into_iter().collect(),
        count: None,
        snaplen: None,
        write: request.fifo.clone().ok_or_else(|| missing("--fifo"))?,
        filter: filter.map(str::to_owned).into_iter().collect(),
    };
    let mut connection = sockets::connect(socket)?;
    crate::interrupt::watch(&connection)?;
    capture::run(&mut connection, &capture)
}

/// What a router has; nothing without one.
fn ask(socket: Option<&str>, what: impl FnOnce(&mut Connection) -> Result<Vec<String>, Failure>) -> Vec<String> {
    sockets::connect(socket).map_err(Failure::from).and_then(|mut connection| what(&mut connection)).unwrap_or_default()
}

/// What the router answers to a command, as data.
fn data(connection: &mut Connection, command: &str) -> Result<Option<serde_json::Value>, Failure> {
    let reply = connection.call(Call { json: true, ..Call::command(command) }, |_| true)?;
    if reply.status == Status::Error {
        return Err(Failure::Command(reply.text));
    }
    Ok(reply.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok()))
}

/// Names of the router's interfaces.
fn interfaces(connection: &mut Connection) -> Result<Vec<String>, Failure> {
    let names = |data: &serde_json::Value| {
        let rows = data.as_array().or_else(|| data["interfaces"].as_array()).cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["name"].as_str().or(row["interface"].as_str()).map(str::to_owned)).collect()
    };
    Ok(data(connection, "show interface")?.as_ref().map(names).unwrap_or_default())
}

/// Names of the nodes that get packets from others.
fn nodes(connection: &mut Connection) -> Result<Vec<String>, Failure> {
    let names = |data: &serde_json::Value| {
        let gets = |node: &&serde_json::Value| node["previous"].as_array().is_some_and(|previous| !previous.is_empty());
        let name = |node: &serde_json::Value| node["name"].as_str().map(str::to_owned);
        data.as_array().map(|nodes| nodes.iter().filter(gets).filter_map(name).collect())
    };
    Ok(data(connection, "show vlib graph")?.as_ref().and_then(names).unwrap_or_default())
}
