//! `acl`: the messages of VPP's plugin, but for those of MACIP lists.

use quiver_api::defs::{InterfaceIndex, IpProto, Prefix};
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Handlers, from_prefix, index_of, perform, prefix, reference};
use quiver_net::ops::done;

use crate::control::{self, Acls, List, Used};
use crate::ops::{DeleteAcl, Direction, SetInterface, SetSwitch, Switch};
use crate::rule::{Action, Flags, Ports, Rule};

module! {
    acl_types "1.0.0"
    enums {
        AclAction "acl_action": u8 { ACL_ACTION_API_DENY = 0, ACL_ACTION_API_PERMIT = 1, ACL_ACTION_API_PERMIT_REFLECT = 2 }
    }
    types {
        AclRule "acl_rule" { is_permit: AclAction, src_prefix: Prefix, dst_prefix: Prefix, proto: IpProto, srcport_or_icmptype_first: u16, srcport_or_icmptype_last: u16, dstport_or_icmpcode_first: u16, dstport_or_icmpcode_last: u16, tcp_flags_mask: u8, tcp_flags_value: u8 }
    }
    messages {
    }
}

module! {
    acl "2.0.1"
    messages {
        client AclPluginGetVersion "acl_plugin_get_version" -> acl_plugin_get_version_reply {  }
        context AclPluginGetVersionReply "acl_plugin_get_version_reply" { major: u32, minor: u32 }
        client AclPluginControlPing "acl_plugin_control_ping" -> acl_plugin_control_ping_reply {  }
        context AclPluginControlPingReply "acl_plugin_control_ping_reply" { retval: i32, client_index: u32, vpe_pid: u32 }
        client AclPluginGetConnTableMaxEntries "acl_plugin_get_conn_table_max_entries" -> acl_plugin_get_conn_table_max_entries_reply {  }
        context AclPluginGetConnTableMaxEntriesReply "acl_plugin_get_conn_table_max_entries_reply" { conn_table_max_entries: u64 }
        client AclAddReplace "acl_add_replace" -> acl_add_replace_reply { acl_index: u32, tag: Text<64>, count: u32, r: Vec<AclRule> = count }
        context AclAddReplaceReply "acl_add_replace_reply" { acl_index: u32, retval: i32 }
        client AclDel "acl_del" -> acl_del_reply { acl_index: u32 }
        context AclDelReply "acl_del_reply" { retval: i32 }
        client AclInterfaceAddDel "acl_interface_add_del" -> acl_interface_add_del_reply { is_add: bool => "true", is_input: bool, sw_if_index: InterfaceIndex, acl_index: u32 }
        context AclInterfaceAddDelReply "acl_interface_add_del_reply" { retval: i32 }
        client AclInterfaceSetAclList "acl_interface_set_acl_list" -> acl_interface_set_acl_list_reply { sw_if_index: InterfaceIndex, count: u8, n_input: u8, acls: Vec<u32> = count }
        context AclInterfaceSetAclListReply "acl_interface_set_acl_list_reply" { retval: i32 }
        client AclDump "acl_dump" => acl_details { acl_index: u32 }
        context AclDetails "acl_details" { acl_index: u32, tag: Text<64>, count: u32, r: Vec<AclRule> = count }
        client AclInterfaceListDump "acl_interface_list_dump" => acl_interface_list_details { sw_if_index: InterfaceIndex => "4294967295" }
        context AclInterfaceListDetails "acl_interface_list_details" { sw_if_index: InterfaceIndex, count: u8, n_input: u8, acls: Vec<u32> = count }
        client AclInterfaceSetEtypeWhitelist "acl_interface_set_etype_whitelist" -> acl_interface_set_etype_whitelist_reply { sw_if_index: InterfaceIndex, count: u8, n_input: u8, whitelist: Vec<u16> = count }
        context AclInterfaceSetEtypeWhitelistReply "acl_interface_set_etype_whitelist_reply" { retval: i32 }
        client AclInterfaceEtypeWhitelistDump "acl_interface_etype_whitelist_dump" => acl_interface_etype_whitelist_details { sw_if_index: InterfaceIndex }
        context AclInterfaceEtypeWhitelistDetails "acl_interface_etype_whitelist_details" { sw_if_index: InterfaceIndex, count: u8, n_input: u8, whitelist: Vec<u16> = count }
        client AclStatsIntfCountersEnable "acl_stats_intf_counters_enable" -> acl_stats_intf_counters_enable_reply { enable: bool }
        context AclStatsIntfCountersEnableReply "acl_stats_intf_counters_enable_reply" { retval: i32 }
        client AclPluginUseHashLookupSet "acl_plugin_use_hash_lookup_set" -> acl_plugin_use_hash_lookup_set_reply { enable: bool }
        context AclPluginUseHashLookupSetReply "acl_plugin_use_hash_lookup_set_reply" { retval: i32 }
        client AclPluginUseHashLookupGet "acl_plugin_use_hash_lookup_get" -> acl_plugin_use_hash_lookup_get_reply {  }
        context AclPluginUseHashLookupGetReply "acl_plugin_use_hash_lookup_get_reply" { enable: bool }
    }
}

/// No number: a new list, or all of them.
const NONE: u32 = u32::MAX;
/// The version of VPP's plugin.
const VERSION: (u32, u32) = (1, 4);

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(acl_types());
    handlers.module(acl());
    handlers.get::<AclPluginGetVersion, AclPluginGetVersionReply>(|_, _| {
        Ok(AclPluginGetVersionReply { major: VERSION.0, minor: VERSION.1 })
    });
    handlers.get::<AclPluginControlPing, AclPluginControlPingReply>(|_, _| {
        Ok(AclPluginControlPingReply { retval: 0, client_index: 0, vpe_pid: std::process::id() })
    });
    handlers.get::<AclPluginGetConnTableMaxEntries, AclPluginGetConnTableMaxEntriesReply>(|router, _| {
        let conn_table_max_entries = router.state::<Acls>()?.settings().sessions.into();
        Ok(AclPluginGetConnTableMaxEntriesReply { conn_table_max_entries })
    });
    lists(handlers);
    interfaces(handlers);
    handlers.act::<AclStatsIntfCountersEnable, AclStatsIntfCountersEnableReply>(|router, m| {
        done(perform::<SetSwitch>(router, SetSwitch { switch: Switch::Counters, on: m.enable.into() })?)
    });
    // There is one lookup structure here, so this changes nothing.
    handlers.act::<AclPluginUseHashLookupSet, AclPluginUseHashLookupSetReply>(|router, _| router.state::<Acls>().map(drop));
    handlers.get::<AclPluginUseHashLookupGet, AclPluginUseHashLookupGetReply>(|_, _| {
        Ok(AclPluginUseHashLookupGetReply { enable: true })
    });
}

fn lists(handlers: &mut Handlers) {
    handlers.reply::<AclAddReplace, AclAddReplaceReply>(|router, m| {
        let number = Some(m.acl_index).filter(|number| *number != NONE);
        let rules = m.r.iter().enumerate().map(|(at, rule)| decode(at, rule)).collect::<Result<Vec<_>, _>>()?;
        let acl_index = control::add_replace(router, number, &m.tag.0, rules, true)?;
        Ok(AclAddReplaceReply { acl_index, retval: 0 })
    });
    handlers.act::<AclDel, AclDelReply>(|router, m| done(perform::<DeleteAcl>(router, DeleteAcl { index: m.acl_index })?));
    handlers.dump::<AclDump>(|router, m, send| {
        let Ok(state) = router.state::<Acls>() else { return };
        for (number, list) in state.lists().filter(|(number, _)| m.acl_index == NONE || m.acl_index == *number) {
            send(&details(number, list));
        }
    });
}

fn interfaces(handlers: &mut Handlers) {
    handlers.act::<AclInterfaceAddDel, AclInterfaceAddDelReply>(|router, m| {
        index_of(router, &m.sw_if_index)?;
        let direction = if m.is_input { Direction::Input } else { Direction::Output };
        let interface = reference(router, &m.sw_if_index)?;
        done(perform::<SetInterface>(router, SetInterface { interface, direction, acl: m.acl_index, remove: !m.is_add })?)
    });
    handlers.act::<AclInterfaceSetAclList, AclInterfaceSetAclListReply>(|router, m| {
        let interface = index_of(router, &m.sw_if_index)?;
        let ether_types = router.state::<Acls>()?.used_by(interface).ether_types;
        control::set(router, interface, split(&m.acls, m.n_input)?, ether_types)
    });
    handlers.dump::<AclInterfaceListDump>(|router, m, send| {
        for (interface, used) in shown(router, &m.sw_if_index) {
            let (n_input, acls) = join(&used.lists);
            send(&AclInterfaceListDetails { sw_if_index: InterfaceIndex(interface.0), count: 0, n_input, acls });
        }
    });
    handlers.act::<AclInterfaceSetEtypeWhitelist, AclInterfaceSetEtypeWhitelistReply>(|router, m| {
        let interface = index_of(router, &m.sw_if_index)?;
        let lists = router.state::<Acls>()?.used_by(interface).lists;
        control::set(router, interface, lists, split(&m.whitelist, m.n_input)?)
    });
    handlers.dump::<AclInterfaceEtypeWhitelistDump>(|router, m, send| {
        for (interface, used) in shown(router, &m.sw_if_index) {
            let (n_input, whitelist) = join(&used.ether_types);
            let sw_if_index = InterfaceIndex(interface.0);
            send(&AclInterfaceEtypeWhitelistDetails { sw_if_index, count: 0, n_input, whitelist });
        }
    });
}

/// Those of an interface, or of all of them: without lists too, as VPP shows them.
fn shown(router: &Router, one: &InterfaceIndex) -> Vec<(IfIndex, Used)> {
    let Ok(state) = router.state::<Acls>() else { return Vec::new() };
    let all = router.interfaces.iter().map(|interface| interface.index);
    all.filter(|index| one.0 == NONE || one.0 == index.0).map(|index| (index, state.used_by(index))).collect()
}

/// What comes in first, then what leaves.
fn split<T: Clone>(both: &[T], input: u8) -> Result<[Vec<T>; 2], OpError> {
    let (rx, tx) = both.split_at_checked(input.into()).ok_or_else(|| {
        OpError::new(retval::INVALID_VALUE, format!("n_input is {input}, and count {}", both.len())).key("n_input").value(input)
    })?;
    Ok([rx.to_vec(), tx.to_vec()])
}

fn join<T: Clone>([rx, tx]: &[Vec<T>; 2]) -> (u8, Vec<T>) {
    (rx.len() as u8, [rx.as_slice(), tx].concat())
}

fn decode(at: usize, rule: &AclRule) -> Result<Rule, OpError> {
    let action = match rule.is_permit {
        AclAction::ACL_ACTION_API_DENY => Action::Deny,
        AclAction::ACL_ACTION_API_PERMIT => Action::Permit,
        AclAction::ACL_ACTION_API_PERMIT_REFLECT => Action::Reflect,
        _ => return Err(OpError::new(retval::INVALID_VALUE, format!("rule {at}: no such action")).key("is_permit")),
    };
    let mut decoded = Rule {
        action,
        src: from_prefix(&rule.src_prefix)?.masked(),
        dst: from_prefix(&rule.dst_prefix)?.masked(),
        proto: rule.proto.0,
        sport: Ports { first: rule.srcport_or_icmptype_first, last: rule.srcport_or_icmptype_last },
        dport: Ports { first: rule.dstport_or_icmpcode_first, last: rule.dstport_or_icmpcode_last },
        tcp_flags: Flags { value: rule.tcp_flags_value, mask: rule.tcp_flags_mask },
    };
    if decoded.proto == 0 {
        // The message says: ports and flags are ignored then.
        (decoded.sport, decoded.dport, decoded.tcp_flags) = Default::default();
    }
    Ok(decoded)
}

fn details(number: u32, list: &List) -> AclDetails {
    let encode = |rule: &Rule| AclRule {
        is_permit: match rule.action {
            Action::Deny => AclAction::ACL_ACTION_API_DENY,
            Action::Permit => AclAction::ACL_ACTION_API_PERMIT,
            Action::Reflect => AclAction::ACL_ACTION_API_PERMIT_REFLECT,
        },
        src_prefix: prefix(rule.src.addr(), rule.src.len()),
        dst_prefix: prefix(rule.dst.addr(), rule.dst.len()),
        proto: IpProto(rule.proto),
        srcport_or_icmptype_first: rule.sport.first,
        srcport_or_icmptype_last: rule.sport.last,
        dstport_or_icmpcode_first: rule.dport.first,
        dstport_or_icmpcode_last: rule.dport.last,
        tcp_flags_mask: rule.tcp_flags.mask,
        tcp_flags_value: rule.tcp_flags.value,
    };
    AclDetails { acl_index: number, tag: Text(list.tag.clone()), count: 0, r: list.rules.iter().map(encode).collect() }
}
