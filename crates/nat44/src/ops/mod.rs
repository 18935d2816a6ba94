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
mod mapping;
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

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.actions(&["nat44_session_delete", "nat44_sessions_clear"]);
    setup::register(registry);
    mapping::register(registry);
    session::register(registry);
    tuning::register(registry);
    show::register(registry);
    tables::register(registry);
    configuration::register(registry);
}

pub(crate) fn nat_error(error: &NatError) -> OpError {
    let (code, key) = match error {
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
    match error {
        NatError::Disabled => error_text.remedy("`nat44 plugin enable' comes first"),
        NatError::NoTable(id) => error_text.remedy(format!("`ip table add {id}' makes it")),
        _ => error_text,
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
