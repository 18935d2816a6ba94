//! `urpf`: the messages of VPP's plugin.

use quiver_api::defs::{AddressFamily, InterfaceIndex};
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Handlers, index_of, is_six, perform, reference};
use quiver_net::fib::ops::Family;
use quiver_net::ops::done;

use crate::ops::{CheckInfo, Direction, Mode, SetUrpf, shown};

module! {
    urpf "1.0.0"
    enums {
        UrpfMode "urpf_mode": u8 { URPF_API_MODE_OFF = 0, URPF_API_MODE_LOOSE = 1, URPF_API_MODE_STRICT = 2 }
    }
    messages {
        client UrpfUpdate "urpf_update" -> urpf_update_reply { is_input: bool => "true", mode: UrpfMode, af: AddressFamily, sw_if_index: InterfaceIndex }
        context UrpfUpdateReply "urpf_update_reply" { retval: i32 }
        client UrpfUpdateV2 "urpf_update_v2" -> urpf_update_v2_reply { is_input: bool => "true", mode: UrpfMode, af: AddressFamily, sw_if_index: InterfaceIndex, table_id: u32 => "4294967295" }
        context UrpfUpdateV2Reply "urpf_update_v2_reply" { retval: i32 }
        client UrpfInterfaceDump "urpf_interface_dump" => urpf_interface_details { sw_if_index: InterfaceIndex }
        context UrpfInterfaceDetails "urpf_interface_details" { sw_if_index: InterfaceIndex, is_input: bool, mode: UrpfMode, af: AddressFamily, table_id: u32 }
    }
}

/// All interfaces, and the table of the interface.
const ALL: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(urpf());
    handlers.act::<UrpfUpdate, UrpfUpdateReply>(|router, m| {
        let UrpfUpdate { is_input, mode, af, sw_if_index } = m;
        update(router, UrpfUpdateV2 { is_input, mode, af, sw_if_index, table_id: ALL })
    });
    handlers.act::<UrpfUpdateV2, UrpfUpdateV2Reply>(update);
    handlers.dump::<UrpfInterfaceDump>(|router, m, send| {
        let one = Some(IfIndex(m.sw_if_index.0)).filter(|one| one.0 != ALL);
        for check in shown(router, one).map(|shown| shown.checks).unwrap_or_default() {
            send(&details(&check));
        }
    });
}

fn update(router: &mut Router, m: UrpfUpdateV2) -> Result<(), OpError> {
    index_of(router, &m.sw_if_index)?;
    let request = SetUrpf {
        family: if is_six(&m.af) { Family::Ip6 } else { Family::Ip4 },
        direction: if m.is_input { Direction::Rx } else { Direction::Tx },
        mode: match m.mode {
            UrpfMode::URPF_API_MODE_OFF => Mode::Off,
            UrpfMode::URPF_API_MODE_LOOSE => Mode::Loose,
            UrpfMode::URPF_API_MODE_STRICT => Mode::Strict,
            _ => return Err(OpError::new(retval::INVALID_VALUE, "no such mode").key("mode")),
        },
        interface: reference(router, &m.sw_if_index)?,
        table: Some(m.table_id).filter(|table| *table != ALL),
    };
    done(perform::<SetUrpf>(router, request)?)
}

fn details(check: &CheckInfo) -> UrpfInterfaceDetails {
    UrpfInterfaceDetails {
        sw_if_index: InterfaceIndex(check.sw_if_index),
        is_input: check.direction == Direction::Rx,
        mode: if check.mode == Mode::Strict { UrpfMode::URPF_API_MODE_STRICT } else { UrpfMode::URPF_API_MODE_LOOSE },
        af: if check.family == Family::Ip6 { AddressFamily::ADDRESS_IP6 } else { AddressFamily::ADDRESS_IP4 },
        table_id: check.table,
    }
}
