//! Operations and commands.
//!
//! | file | commands |
//! |---|---|
//! | `configuration` | what `show configuration` says of the plugin |
//! | `setup` | plugin, interfaces, pools, forwarding, timeouts, limits |
//! | `mapping` | static, identity and load-balanced mappings |
//! | `session` | sessions: shown, ended |
//! | `tuning` | workers, segment sizes |
//! | `tables` | how full tables are |
//! | `show` | everything else that is shown |

mod configuration;
mod logging;
mod mapping;
mod reference;
mod session;
mod setup;
mod show;
mod tables;
mod tuning;

pub use mapping::{BackEnd, Mapping};
pub use session::{DeleteSession, SessionInfo, ShowSessions};
pub use setup::{Enable, SetInterface, SetPool, SetTimeouts};
pub use show::{ShowSummary, Summary};
pub use tuning::SetMss;

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Registry, retval};
use quiver_net::{IfIndex, Router};

use crate::control::NatError;

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "nat ipfix logging domain 7",
    "nat mss-clamping 1400",
    "nat44 add address 203.0.113.1 - 203.0.113.4",
    "nat44 add identity mapping 10.0.0.7",
    "nat44 add interface address host-eth1",
    "nat44 add load-balancing back-end protocol tcp external 203.0.113.1:80 local 10.0.0.8:80 probability 50",
    "nat44 add load-balancing static mapping protocol tcp external 203.0.113.1:80 local 10.0.0.7:80 probability 50 local 10.0.0.8:80 probability 50",
    "nat44 add static mapping tcp local 10.0.0.7 8080 external 203.0.113.1 80",
    "nat44 del session in 10.0.0.7:1234 tcp",
    "nat44 forwarding enable",
    "nat44 logging collector 192.0.2.9 port 514",
    "nat44 plugin enable sessions 100000",
    "nat44 tcp-non-syn drop",
    "set interface nat44 in host-eth2 out host-eth1",
    "set nat timeout udp 60 tcp-established 3600",
    "set nat workers 0-1",
    "set nat44 session limit 50000",
    "show nat44 sessions filter i2o saddr 10.0.0.7",
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).arguments(reference::ARGUMENTS).messages(reference::MESSAGES);
    registry.actions(&["nat44_session_delete", "nat44_sessions_clear"]);
    setup::register(registry);
    mapping::register(registry);
    session::register(registry);
    tuning::register(registry);
    logging::register(registry);
    show::register(registry);
    tables::register(registry);
    configuration::register(registry);
}

impl From<NatError> for OpError {
    fn from(error: NatError) -> Self {
        let (code, key) = match &error {
            NatError::Disabled => (retval::FEATURE_DISABLED, "nat44"),
            NatError::Enabled => (retval::VALUE_EXIST, "nat44 plugin"),
            NatError::NoTable(_) => (retval::NO_SUCH_FIB, "vrf"),
            NatError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            NatError::Exists(_) => (retval::VALUE_EXIST, "nat44"),
            NatError::NoEntry(_) => (retval::NO_SUCH_ENTRY, "nat44"),
            NatError::Invalid(_) => (retval::INVALID_VALUE, "nat44"),
            NatError::Memory => (retval::INVALID_MEMORY_SIZE, "sessions"),
            NatError::Graph(_) => (retval::CANNOT_ENABLE_DISABLE_FEATURE, "feature"),
        };
        let error_text = OpError::new(code, error.to_string()).key(key);
        match &error {
            NatError::Disabled => error_text.remedy("`nat44 plugin enable' comes first"),
            NatError::NoTable(id) => error_text.remedy(format!("`ip table add {id}' makes it")),
            _ => error_text,
        }
    }
}

pub(crate) fn resolve(router: &Router, name: &IfRef) -> Result<IfIndex, OpError> {
    quiver_net::interface::ops::resolve(router, name)
}

/// Protocols by the words of commands.
pub(crate) const PROTOCOLS: [(&str, u8); 3] = [("tcp", 6), ("udp", 17), ("icmp", 1)];

/// Name of a protocol, as it is shown.
pub(crate) fn protocol_name(proto: u8) -> String {
    match proto {
        6 => "TCP".into(),
        17 => "UDP".into(),
        1 => "ICMP".into(),
        other => format!("protocol {other}"),
    }
}

/// `<address>:<port>`.
pub(crate) fn endpoint(args: &mut Args<'_>, what: &str) -> Result<crate::session::Endpoint, OpError> {
    let socket: std::net::SocketAddrV4 = args.take(what)?;
    Ok(crate::session::Endpoint::new(socket.ip().to_bits(), socket.port()))
}

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
