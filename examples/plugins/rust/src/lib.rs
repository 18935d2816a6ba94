//! A plugin in Rust, as a shared object: counts packets and bytes by IP protocol, and drops a protocol where one is told to.
//!
//! ```text
//! plugins { plugin proto_count { option refuse=132 } }       a protocol that is dropped from the start
//!
//! set proto-count eth0
//! set proto-count eth0 refuse 47
//! show proto-count
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use quiver_plugin::{Batch, Error, Host, Level, Node, Plugin};
use serde::{Deserialize, Serialize};

/// Protocol that is dropped, by interface; [`NONE`] where none is.
type Refused = Arc<[AtomicU16]>;

const NONE: u16 = u16::MAX;
const INTERFACES: usize = 4096;

struct Count {
    host: Host,
    /// Interfaces that are looked at, and the protocol that is refused there.
    on: RefCell<BTreeMap<u32, Option<u8>>>,
    refused: Refused,
    /// What is refused where nothing is said.
    always: Option<u8>,
}

impl Plugin for Count {
    fn start(host: Host, options: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Options {
            refuse: Option<String>,
        }
        let options: Options = serde_json::from_str(options).map_err(|error| format!("option: {error}"))?;
        let always =
            options.refuse.map(|text| text.parse().map_err(|_| format!("option refuse={text}: no protocol"))).transpose()?;
        host.log(Level::Debug, "counting");
        let refused = (0..INTERFACES).map(|_| AtomicU16::new(NONE)).collect();
        Ok(Self { host, on: RefCell::default(), refused, always })
    }

    fn configuration(&self) -> String {
        let on = self.on.borrow();
        let entry = |(index, refuse): (&u32, &Option<u8>)| {
            let interface = self.host.interface_name(*index)?;
            let undo = serde_json::json!({"interface": interface, "disable": true});
            Some(serde_json::json!({
                "operation": "proto_count_set", "request": {"interface": interface, "refuse": refuse}, "undo": undo }))
        };
        serde_json::Value::Array(on.iter().filter_map(entry).collect()).to_string()
    }

    fn interface_gone(&self, interface: u32) {
        self.on.borrow_mut().remove(&interface);
        self.refuse(interface, None);
    }
}

/// `set proto-count`.
#[derive(Deserialize)]
struct Set {
    interface: String,
    refuse: Option<u8>,
    disable: bool,
}

#[derive(Serialize)]
struct Counted {
    protocol: u32,
    packets: u64,
    bytes: u64,
}

impl Count {
    fn refuse(&self, interface: u32, protocol: Option<u8>) {
        if let Some(refused) = self.refused.get(interface as usize) {
            refused.store(protocol.map_or(NONE, u16::from), Relaxed);
        }
    }

    fn set(&self, request: &str) -> Result<String, Error> {
        let Set { interface, refuse, disable } =
            serde_json::from_str(request).map_err(|error| Error::invalid(error.to_string()))?;
        let index =
            self.host.interface(&interface).ok_or_else(|| Error { code: -2, text: format!("unknown interface `{interface}'") })?;
        if !self.host.feature("ip4-unicast", "proto-count", index, !disable) {
            return Err("the feature cannot be switched".into());
        }
        match disable {
            true => drop(self.on.borrow_mut().remove(&index)),
            false => drop(self.on.borrow_mut().insert(index, refuse)),
        }
        self.refuse(index, if disable { None } else { refuse.or(self.always) });
        Ok(String::new())
    }

    fn show(&self, _request: &str) -> Result<String, Error> {
        let counted = |protocol| {
            let (packets, bytes) = self.host.sum(0, protocol);
            Counted { protocol, packets, bytes }
        };
        let all: Vec<Counted> = (0..256).map(counted).filter(|counted| counted.packets > 0).collect();
        serde_json::to_string(&all).map_err(|error| error.to_string().into())
    }
}

/// The node, with what one thread has counted of a vector.
struct Counter {
    refused: Refused,
    /// Packets and bytes by protocol.
    counted: [(u64, u64); 256],
}

impl Node for Counter {
    type Plugin = Count;

    fn open(plugin: &Count, _thread: u32) -> Self {
        Self { refused: Arc::clone(&plugin.refused), counted: [(0, 0); 256] }
    }

    fn run(&mut self, batch: &mut Batch<'_>) {
        let mut seen = Vec::with_capacity(4);
        for packet in 0..batch.len() {
            let window = batch.window(packet);
            let (protocol, bytes) = (window[9], u64::from(u16::from_be_bytes([window[2], window[3]])));
            let counted = &mut self.counted[usize::from(protocol)];
            if counted.0 == 0 {
                seen.push(protocol);
            }
            *counted = (counted.0 + 1, counted.1 + bytes);
            let refused = self.refused.get(batch.rx_interface(packet) as usize);
            if refused.is_some_and(|refused| refused.load(Relaxed) == u16::from(protocol)) {
                batch.drop(packet, 0);
            }
        }
        for protocol in seen {
            let (packets, bytes) = std::mem::take(&mut self.counted[usize::from(protocol)]);
            batch.add(0, protocol.into(), packets, bytes);
        }
    }
}

quiver_plugin::export! {
    plugin Count { name: c"proto-count", version: c"1.0", about: c"Counts packets by IP protocol" }
    nodes {
        Counter {
            name: c"proto-count",
            next: [c"ip4-lookup"],
            reasons: [{ c"protocol refused", c"`set proto-count` or startup.conf refuses the packet's protocol.", info: 0 }]
        },
    }
    features { { arc: c"ip4-unicast", node: c"proto-count", before: [], after: [] } }
    counters { { name: c"/proto-count/protocols", combined: 1, capacity: 256 } }
    operations {
        set: cr#"{"name": "proto_count_set", "access": "change", "about": "Counts the packets of an interface by IP protocol, and refuses one",
            "commands": ["set proto-count"], "arguments": [
            {"field": "interface", "kind": "interface", "syntax": "<if>", "about": "Interface", "required": true},
            {"field": "refuse", "kind": "number", "syntax": "refuse <n>", "about": "Protocol that is dropped", "range": [0, 255]},
            {"field": "disable", "kind": "flag", "syntax": "disable", "about": "No longer"}]}"#,
        show: cr#"{"name": "proto_count_show", "access": "read", "about": "Shows packets by IP protocol", "commands": ["show proto-count"]}"#,
    }
}
