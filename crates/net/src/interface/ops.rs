//! Interfaces: making, changing and showing them.
//!
//! | file | commands |
//! |---|---|
//! | `create` | loopbacks, sub-interfaces, host interfaces |
//! | `change` | state, MTU, MAC address, name, tag, promiscuous mode, features, layer 2 |
//! | `slices` | what makes or removes thousands |
//! | `show` | `show interface`, `show hardware-interfaces`, `show mode`, features of an interface |

pub(crate) mod change;
mod create;
pub mod placement;
mod show;
mod slices;

pub use show::{ClearInterfaces, chosen};

pub use change::{Change, MtuKind, SetInterface};
pub use create::{
    CreateLoopback, CreateSub, Created, CreatedInterface, DeleteInterface, Matching, NewName, create_port_elsewhere,
    create_port_interface,
};

use crate::{IfIndex, Interface, InterfaceError, Router};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Registry, retval};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.values("if", |router| router.interfaces.iter().map(|i| i.name.clone()).collect());
    create::register(registry);
    change::register(registry);
    show::register(registry);
    placement::register(registry);
    super::configuration::register(registry);
}

quiver_command::words! {
    /// Which packets of an interface are meant.
    pub enum Direction {
        /// Those that come in.
        Rx = "rx",
        /// Those that leave.
        Tx = "tx",
        /// Both.
        Both = "both",
    }
}

impl Direction {
    /// Those that come in are among them.
    pub const fn rx(self) -> bool {
        matches!(self, Self::Rx | Self::Both)
    }

    /// Those that leave are among them.
    pub const fn tx(self) -> bool {
        matches!(self, Self::Tx | Self::Both)
    }
}

/// The interface that a request names.
///
/// # Errors
/// There is none of that name or number; the error names it and the nearest name.
pub fn resolve(router: &Router, name: &IfRef) -> Result<IfIndex, OpError> {
    router.interfaces.find(name.as_str()).map_err(|_| {
        let error = OpError::new(retval::INVALID_SW_IF_INDEX, format!("unknown interface `{name}'"));
        let error = error.key("interface").value(name);
        let names: Vec<&str> = router.interfaces.iter().map(|i| i.name.as_str()).collect();
        match quiver_command::grammar::nearest(name.as_str(), names) {
            Some(near) => error.remedy(format!("did you mean `{near}'?")),
            None => error.remedy("`show interface' lists all"),
        }
    })
}

/// What `of` tells of the interface named, or of all that are of its kind; `kind` names that in the error.
///
/// # Errors
/// There is no such interface, or it is of another kind.
pub fn of_kind<T>(
    router: &Router,
    name: Option<&IfRef>,
    kind: &str,
    of: impl Fn(&Interface) -> Option<T>,
) -> Result<Vec<T>, OpError> {
    let Some(name) = name else { return Ok(router.interfaces.iter().filter_map(of).collect()) };
    let index = resolve(router, name)?;
    let interface = router.interfaces.expect(index)?;
    let wrong = || OpError::new(retval::INVALID_INTERFACE, format!("{} is not {kind} interface", interface.name));
    Ok(vec![of(interface).ok_or_else(|| wrong().key("interface").value(name))?])
}

/// An interface error as an operation's error.
impl From<InterfaceError> for OpError {
    fn from(error: InterfaceError) -> Self {
        let (code, key) = match &error {
            InterfaceError::UnknownName(_) | InterfaceError::UnknownIndex(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            InterfaceError::Exists(_) => (retval::IF_ALREADY_EXISTS, "interface"),
            InterfaceError::Full => (retval::LIMIT_EXCEEDED, "interfaces"),
            InterfaceError::NotPossible(_) => (retval::INVALID_INTERFACE, "interface"),
            InterfaceError::Range { what, .. } => (retval::INVALID_VALUE, *what),
            InterfaceError::Graph(error) => return crate::ops::graph_error(error),
            InterfaceError::Device { .. } => (retval::SYSCALL_ERROR_1, "interface"),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}
