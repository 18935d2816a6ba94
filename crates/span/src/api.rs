//! `span`: the messages of VPP.

use quiver_api::defs::InterfaceIndex;
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::api::{Handlers, index_of, perform, reference};
use quiver_net::interface::ops::Direction;
use quiver_net::ops::done;

use crate::ops::{SetSpan, shown};

module! {
    span "2.0.0"
    enums {
        SpanState "span_state": u32 { SPAN_STATE_API_DISABLED = 0, SPAN_STATE_API_RX = 1, SPAN_STATE_API_TX = 2, SPAN_STATE_API_RX_TX = 3 }
    }
    messages {
        client SwInterfaceSpanEnableDisable "sw_interface_span_enable_disable" -> sw_interface_span_enable_disable_reply { sw_if_index_from: InterfaceIndex, sw_if_index_to: InterfaceIndex, state: SpanState, is_l2: bool }
        context SwInterfaceSpanEnableDisableReply "sw_interface_span_enable_disable_reply" { retval: i32 }
        client SwInterfaceSpanDump "sw_interface_span_dump" => sw_interface_span_details { is_l2: bool }
        context SwInterfaceSpanDetails "sw_interface_span_details" { sw_if_index_from: InterfaceIndex, sw_if_index_to: InterfaceIndex, state: SpanState, is_l2: bool }
    }
}

/// No destination.
const NONE: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(span());
    handlers.act::<SwInterfaceSpanEnableDisable, SwInterfaceSpanEnableDisableReply>(|router, m| {
        let state = match m.state {
            SpanState::SPAN_STATE_API_DISABLED => None,
            SpanState::SPAN_STATE_API_RX => Some(Direction::Rx),
            SpanState::SPAN_STATE_API_TX => Some(Direction::Tx),
            SpanState::SPAN_STATE_API_RX_TX => Some(Direction::Both),
            _ => return Err(OpError::new(retval::UNIMPLEMENTED, "no such state").key("state")),
        };
        index_of(router, &m.sw_if_index_from)?;
        let known = m.sw_if_index_to.0 != NONE;
        let request = SetSpan {
            interface: reference(router, &m.sw_if_index_from)?,
            l2: m.is_l2,
            disable: state.is_none(),
            destination: known.then(|| reference(router, &m.sw_if_index_to)).transpose()?,
            state: state.unwrap_or(Direction::Both),
        };
        done(perform::<SetSpan>(router, request)?)
    });
    handlers.dump::<SwInterfaceSpanDump>(|router, m, send| {
        for mirror in shown(router).unwrap_or_default() {
            let Some(state) = (if m.is_l2 { mirror.l2 } else { mirror.device }) else { continue };
            let state = match state {
                Direction::Rx => SpanState::SPAN_STATE_API_RX,
                Direction::Tx => SpanState::SPAN_STATE_API_TX,
                Direction::Both => SpanState::SPAN_STATE_API_RX_TX,
            };
            let (from, to) = (IfIndex(mirror.sw_if_index), IfIndex(mirror.destination_sw_if_index));
            send(&SwInterfaceSpanDetails {
                sw_if_index_from: InterfaceIndex(from.0),
                sw_if_index_to: InterfaceIndex(to.0),
                state,
                is_l2: m.is_l2,
            });
        }
    });
}
