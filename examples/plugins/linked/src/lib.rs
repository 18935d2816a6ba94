//! A plugin that drops IPv4 packets whose TTL is below a least one, and brings a kind of interface.
//!
//! ```text
//! startup.conf:  ttl-limit { least 2 }        what `set ttl-limit` takes where nothing is said
//! commands:      set ttl-limit <if> [least <n>] [disable]        show ttl-limit
//!                create reflector interface <name>                delete reflector interface <if>
//! messages:      ttl_limit_set, ttl_limit_dump
//! node:          ttl-limit, a feature of the arc ip4-unicast
//! ```

mod node;
mod ops;
mod reflector;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use quiver::Plugin;
use quiver_command::config::Section;
use quiver_graph::MAX_INTERFACES;
use quiver_net::{IfEvent, Router};

/// Least TTL by interface, 0 where nothing is dropped. Main writes, nodes read.
type Limits = Arc<[AtomicU8]>;

/// The plugin's state, a part of the router.
struct State {
    limits: Limits,
    /// What `set ttl-limit` takes where nothing is said.
    least: u8,
}

/// This plugin.
pub const fn plugin() -> Plugin {
    Plugin {
        schema: |schema| {
            let section = Section::new("ttl-limit").about("Packets with a low TTL");
            schema
                .section(section.value("least", "number").about("Least TTL where `set ttl-limit` does not say it").default_is("2"))
        },
        register: |registry| {
            ops::register(registry);
            reflector::register(registry);
        },
        api: ops::api,
        start: |router, config| {
            let least = config.section("ttl-limit").get("least").map(|value| value.number_in(1..=255_u8)).transpose();
            start(router, least.map_err(|error| error.to_string())?.unwrap_or(2))
        },
        ..Plugin::new(&["ttl_limit_plugin.so"], "Drops packets whose TTL is too low")
    }
}

fn start(router: &mut Router, least: u8) -> Result<(), String> {
    let limits: Limits = (0..MAX_INTERFACES).map(|_| AtomicU8::new(0)).collect();
    node::declare(&mut router.graph, &limits).map_err(|error| error.to_string())?;
    router.add_part(State { limits, least });
    router.listen(|router, event| {
        if let (IfEvent::Deleted(index), Some(state)) = (event, router.part::<State>()) {
            state.limits[index.0 as usize].store(0, Relaxed);
        }
    });
    Ok(())
}
