//! `policer`: the messages of VPP's plugin.

use quiver_api::defs::InterfaceIndex;
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::api::{Handlers, index_of, perform, reference};
use quiver_net::fib::ops::Family;
use quiver_net::ops::done;

use crate::control::{Config, Round};
use crate::meter::{Kind as Algorithm, Rates, Unit};
use crate::ops::{
    AddPolicer, ApplyPolicer, BindPolicer, DeletePolicer, PolicerInfo, ResetPolicer, SetPuntPolicer, UpdatePolicer, shown,
};
use crate::policer::Action;

module! {
    policer_types "0.0.0"
    enums {
        Sse2QosRateType "sse2_qos_rate_type": u8 { SSE2_QOS_RATE_API_KBPS = 0, SSE2_QOS_RATE_API_PPS = 1, SSE2_QOS_RATE_API_INVALID = 2 }
        Sse2QosRoundType "sse2_qos_round_type": u8 { SSE2_QOS_ROUND_API_TO_CLOSEST = 0, SSE2_QOS_ROUND_API_TO_UP = 1, SSE2_QOS_ROUND_API_TO_DOWN = 2, SSE2_QOS_ROUND_API_INVALID = 3 }
        Sse2QosPolicerType "sse2_qos_policer_type": u8 { SSE2_QOS_POLICER_TYPE_API_1R2C = 0, SSE2_QOS_POLICER_TYPE_API_1R3C_RFC_2697 = 1, SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_2698 = 2, SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_4115 = 3, SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_MEF5CF1 = 4, SSE2_QOS_POLICER_TYPE_API_MAX = 5 }
        Sse2QosActionType "sse2_qos_action_type": u8 { SSE2_QOS_ACTION_API_DROP = 0, SSE2_QOS_ACTION_API_TRANSMIT = 1, SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT = 2 }
    }
    types {
        Sse2QosAction "sse2_qos_action" { r#type: Sse2QosActionType, dscp: u8 }
        PolicerConfig "policer_config" { cir: u32, eir: u32, cb: u64, eb: u64, rate_type: Sse2QosRateType, round_type: Sse2QosRoundType, r#type: Sse2QosPolicerType, color_aware: bool, conform_action: Sse2QosAction, exceed_action: Sse2QosAction, violate_action: Sse2QosAction }
    }
    messages {
    }
}

module! {
    policer "3.0.0"
    messages {
        client PolicerBind "policer_bind" -> policer_bind_reply { name: Text<64>, worker_index: u32, bind_enable: bool }
        context PolicerBindReply "policer_bind_reply" { retval: i32 }
        client PolicerBindV2 "policer_bind_v2" -> policer_bind_v2_reply { policer_index: u32, worker_index: u32, bind_enable: bool }
        context PolicerBindV2Reply "policer_bind_v2_reply" { retval: i32 }
        client PolicerInput "policer_input" -> policer_input_reply { name: Text<64>, sw_if_index: InterfaceIndex, apply: bool }
        context PolicerInputReply "policer_input_reply" { retval: i32 }
        client PolicerInputV2 "policer_input_v2" -> policer_input_v2_reply { policer_index: u32, sw_if_index: InterfaceIndex, apply: bool }
        context PolicerInputV2Reply "policer_input_v2_reply" { retval: i32 }
        client PolicerOutput "policer_output" -> policer_output_reply { name: Text<64>, sw_if_index: InterfaceIndex, apply: bool }
        context PolicerOutputReply "policer_output_reply" { retval: i32 }
        client PolicerOutputV2 "policer_output_v2" -> policer_output_v2_reply { policer_index: u32, sw_if_index: InterfaceIndex, apply: bool }
        context PolicerOutputV2Reply "policer_output_v2_reply" { retval: i32 }
        client PolicerAddDel "policer_add_del" -> policer_add_del_reply { is_add: bool, name: Text<64>, cir: u32, eir: u32, cb: u64, eb: u64, rate_type: Sse2QosRateType, round_type: Sse2QosRoundType, r#type: Sse2QosPolicerType, color_aware: bool, conform_action: Sse2QosAction, exceed_action: Sse2QosAction, violate_action: Sse2QosAction }
        client PolicerAdd "policer_add" -> policer_add_reply { name: Text<64>, infos: PolicerConfig }
        client PolicerDel "policer_del" -> policer_del_reply { policer_index: u32 }
        context PolicerDelReply "policer_del_reply" { retval: i32 }
        client PolicerUpdate "policer_update" -> policer_update_reply { policer_index: u32, infos: PolicerConfig }
        context PolicerUpdateReply "policer_update_reply" { retval: i32 }
        client PolicerReset "policer_reset" -> policer_reset_reply { policer_index: u32 }
        context PolicerResetReply "policer_reset_reply" { retval: i32 }
        context PolicerAddDelReply "policer_add_del_reply" { retval: i32, policer_index: u32 }
        context PolicerAddReply "policer_add_reply" { retval: i32, policer_index: u32 }
        client PolicerDump "policer_dump" => policer_details { match_name_valid: bool, match_name: Text<64> }
        client PolicerDumpV2 "policer_dump_v2" => policer_details { policer_index: u32 }
        context PolicerDetails "policer_details" { name: Text<64>, cir: u32, eir: u32, cb: u64, eb: u64, rate_type: Sse2QosRateType, round_type: Sse2QosRoundType, r#type: Sse2QosPolicerType, conform_action: Sse2QosAction, exceed_action: Sse2QosAction, violate_action: Sse2QosAction, single_rate: bool, color_aware: bool, scale: u32, cir_tokens_per_period: u32, pir_tokens_per_period: u32, current_limit: u32, current_bucket: u32, extended_limit: u32, extended_bucket: u32, last_update_time: u64 }
        client IpPuntPolice "ip_punt_police" -> ip_punt_police_reply { policer_index: u32, is_add: bool => "true", is_ip6: bool }
        context IpPuntPoliceReply "ip_punt_police_reply" { retval: i32 }
    }
}

/// No policer, or all.
const NONE: u32 = u32::MAX;

fn wrong(key: &'static str) -> OpError {
    OpError::new(retval::INVALID_VALUE, format!("no such {key}")).key(key)
}

fn action(key: &'static str, action: &Sse2QosAction) -> Result<Action, OpError> {
    match action.r#type {
        Sse2QosActionType::SSE2_QOS_ACTION_API_DROP => Ok(Action::Drop),
        Sse2QosActionType::SSE2_QOS_ACTION_API_TRANSMIT => Ok(Action::Transmit),
        Sse2QosActionType::SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT if action.dscp < 64 => Ok(Action::Mark(action.dscp)),
        _ => Err(wrong(key)),
    }
}

fn config(infos: &PolicerConfig) -> Result<Config, OpError> {
    let PolicerConfig { cir, eir, cb, eb, color_aware, .. } = *infos;
    let kind = match infos.r#type {
        Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_1R2C => Algorithm::OneRate,
        Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_1R3C_RFC_2697 => Algorithm::Rfc2697,
        Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_2698 => Algorithm::Rfc2698,
        Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_4115 => Algorithm::Rfc4115,
        Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_MEF5CF1 => Algorithm::Mef5Cf1,
        _ => return Err(wrong("type")),
    };
    let unit = match infos.rate_type {
        Sse2QosRateType::SSE2_QOS_RATE_API_KBPS => Unit::Kbps,
        Sse2QosRateType::SSE2_QOS_RATE_API_PPS => Unit::Pps,
        _ => return Err(wrong("rate_type")),
    };
    let round = match infos.round_type {
        Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_CLOSEST => Round::Closest,
        Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_UP => Round::Up,
        Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_DOWN => Round::Down,
        _ => return Err(wrong("round_type")),
    };
    let actions = [
        action("conform_action", &infos.conform_action)?,
        action("exceed_action", &infos.exceed_action)?,
        action("violate_action", &infos.violate_action)?,
    ];
    Ok(Config { rates: Rates { kind, unit, cir, eir, cb, eb }, round, color_aware, actions })
}

fn add_policer(router: &mut Router, name: &str, infos: &PolicerConfig) -> Result<u32, OpError> {
    let request = AddPolicer::of(name.to_owned(), &config(infos)?);
    Ok(done(perform::<AddPolicer>(router, request)?)?.policer)
}

fn bind(router: &mut Router, name: Option<String>, index: Option<u32>, worker: u32, on: bool) -> Result<(), OpError> {
    done(perform::<BindPolicer>(router, BindPolicer { unbind: !on, name, index, worker: on.then_some(worker) })?)
}

/// Which policer on which interface, and how.
struct Apply {
    output: bool,
    name: Option<String>,
    index: Option<u32>,
    sw_if_index: InterfaceIndex,
    on: bool,
}

fn apply(router: &mut Router, wanted: Apply) -> Result<(), OpError> {
    let Apply { output, name, index, sw_if_index, on } = wanted;
    index_of(router, &sw_if_index)?;
    let interface = reference(router, &sw_if_index)?;
    done(perform::<ApplyPolicer>(router, ApplyPolicer { output, unapply: !on, name, index, interface })?)
}

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(policer_types());
    handlers.module(policer());
    handlers.reply::<PolicerAdd, PolicerAddReply>(|router, m| {
        let policer_index = add_policer(router, m.name.as_str(), &m.infos)?;
        Ok(PolicerAddReply { retval: 0, policer_index })
    });
    handlers.reply::<PolicerAddDel, PolicerAddDelReply>(add_del);
    handlers.act::<PolicerDel, PolicerDelReply>(|router, m| {
        done(perform::<DeletePolicer>(router, DeletePolicer { name: None, index: Some(m.policer_index) })?)
    });
    handlers.act::<PolicerUpdate, PolicerUpdateReply>(|router, m| {
        let request = UpdatePolicer::of(None, Some(m.policer_index), &config(&m.infos)?);
        done(perform::<UpdatePolicer>(router, request)?)
    });
    handlers.act::<PolicerReset, PolicerResetReply>(|router, m| {
        done(perform::<ResetPolicer>(router, ResetPolicer { name: None, index: Some(m.policer_index) })?)
    });
    uses(handlers);
    handlers.dump::<PolicerDump>(|router, m, send| {
        for info in shown(router, None).map(|shown| shown.policers).unwrap_or_default() {
            if !m.match_name_valid || info.request.name == m.match_name.as_str() {
                send(&details(&info));
            }
        }
    });
    handlers.dump::<PolicerDumpV2>(|router, m, send| {
        let one = Some(m.policer_index).filter(|index| *index != NONE);
        shown(router, one).map(|shown| shown.policers).unwrap_or_default().iter().for_each(|info| send(&details(info)));
    });
}

/// The messages by which policers are used.
fn uses(handlers: &mut Handlers) {
    handlers.act::<PolicerBind, PolicerBindReply>(|router, m| {
        bind(router, Some(m.name.as_str().to_owned()), None, m.worker_index, m.bind_enable)
    });
    handlers.act::<PolicerBindV2, PolicerBindV2Reply>(|router, m| {
        bind(router, None, Some(m.policer_index), m.worker_index, m.bind_enable)
    });
    handlers.act::<PolicerInput, PolicerInputReply>(|router, m| {
        let name = Some(m.name.as_str().to_owned());
        apply(router, Apply { output: false, name, index: None, sw_if_index: m.sw_if_index, on: m.apply })
    });
    handlers.act::<PolicerInputV2, PolicerInputV2Reply>(|router, m| {
        let index = Some(m.policer_index);
        apply(router, Apply { output: false, name: None, index, sw_if_index: m.sw_if_index, on: m.apply })
    });
    handlers.act::<PolicerOutput, PolicerOutputReply>(|router, m| {
        let name = Some(m.name.as_str().to_owned());
        apply(router, Apply { output: true, name, index: None, sw_if_index: m.sw_if_index, on: m.apply })
    });
    handlers.act::<PolicerOutputV2, PolicerOutputV2Reply>(|router, m| {
        let index = Some(m.policer_index);
        apply(router, Apply { output: true, name: None, index, sw_if_index: m.sw_if_index, on: m.apply })
    });
    handlers.act::<IpPuntPolice, IpPuntPoliceReply>(|router, m| {
        let family = if m.is_ip6 { Family::Ip6 } else { Family::Ip4 };
        let index = m.is_add.then_some(m.policer_index);
        done(perform::<SetPuntPolicer>(router, SetPuntPolicer { family, remove: !m.is_add, name: None, index })?)
    });
}

fn add_del(router: &mut Router, m: PolicerAddDel) -> Result<PolicerAddDelReply, OpError> {
    let name = m.name.as_str();
    if !m.is_add {
        let request = DeletePolicer { name: Some(name.to_owned()), index: None };
        done(perform::<DeletePolicer>(router, request)?)?;
        return Ok(PolicerAddDelReply { retval: 0, policer_index: NONE });
    }
    let PolicerAddDel { cir, eir, cb, eb, color_aware, .. } = m;
    let (rate_type, round_type, r#type) = (m.rate_type, m.round_type, m.r#type);
    let (conform_action, exceed_action, violate_action) = (m.conform_action, m.exceed_action, m.violate_action);
    let infos = PolicerConfig {
        cir,
        eir,
        cb,
        eb,
        rate_type,
        round_type,
        r#type,
        color_aware,
        conform_action,
        exceed_action,
        violate_action,
    };
    let policer_index = add_policer(router, name, &infos)?;
    Ok(PolicerAddDelReply { retval: 0, policer_index })
}

fn details(info: &PolicerInfo) -> PolicerDetails {
    let AddPolicer { cir, eir, cb, eb, color_aware, .. } = info.request;
    let [conform_action, exceed_action, violate_action] =
        [info.request.conform_action, info.request.exceed_action, info.request.violate_action].map(|act| match act.0 {
            Action::Drop => Sse2QosAction { r#type: Sse2QosActionType::SSE2_QOS_ACTION_API_DROP, dscp: 0 },
            Action::Transmit => Sse2QosAction { r#type: Sse2QosActionType::SSE2_QOS_ACTION_API_TRANSMIT, dscp: 0 },
            Action::Mark(dscp) => Sse2QosAction { r#type: Sse2QosActionType::SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT, dscp },
        });
    let buckets = &info.buckets;
    PolicerDetails {
        name: Text(info.request.name.clone()),
        cir,
        eir,
        cb,
        eb,
        rate_type: match info.request.rate {
            Unit::Kbps => Sse2QosRateType::SSE2_QOS_RATE_API_KBPS,
            Unit::Pps => Sse2QosRateType::SSE2_QOS_RATE_API_PPS,
        },
        round_type: match info.request.round {
            Round::Closest => Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_CLOSEST,
            Round::Up => Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_UP,
            Round::Down => Sse2QosRoundType::SSE2_QOS_ROUND_API_TO_DOWN,
        },
        r#type: match info.request.kind {
            Algorithm::OneRate => Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_1R2C,
            Algorithm::Rfc2697 => Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_1R3C_RFC_2697,
            Algorithm::Rfc2698 => Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_2698,
            Algorithm::Rfc4115 => Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_4115,
            Algorithm::Mef5Cf1 => Sse2QosPolicerType::SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_MEF5CF1,
        },
        conform_action,
        exceed_action,
        violate_action,
        single_rate: info.single_rate,
        color_aware,
        scale: buckets.scale,
        cir_tokens_per_period: buckets.per_period[0],
        pir_tokens_per_period: buckets.per_period[1],
        current_limit: buckets.limits[0],
        current_bucket: buckets.buckets[0],
        extended_limit: buckets.limits[1],
        extended_bucket: buckets.buckets[1],
        last_update_time: buckets.last,
    }
}
