//! Operations and commands.
//!
//! | file | commands |
//! |---|---|
//! | `bridge` | bridge domains, their ports and addresses for ARP |
//! | `bvi` | interfaces of the kind BVI |
//! | `configuration` | what `show configuration` says of them |
//! | `l2fib` | MAC addresses |
//! | `tag_rewrite` | tags that are taken off and put on |

pub mod bridge;
pub mod bvi;
mod configuration;
pub mod l2fib;
pub mod tag_rewrite;

use quiver_command::operation::Registry;

use crate::Router;

/// Adds this subject's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    bridge::register(registry);
    bvi::register(registry);
    l2fib::register(registry);
    tag_rewrite::register(registry);
    configuration::register(registry);
}
