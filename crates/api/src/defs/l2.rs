//! Messages of `l2.api`.

use super::*;

module! {
    l2 "3.3.0"
    enums {
        L2PortType "l2_port_type": u32 { L2_API_PORT_TYPE_NORMAL = 0, L2_API_PORT_TYPE_BVI = 1, L2_API_PORT_TYPE_UU_FWD = 2 }
        MacEventAction "mac_event_action": u32 { MAC_EVENT_ACTION_API_ADD = 0, MAC_EVENT_ACTION_API_DELETE = 1, MAC_EVENT_ACTION_API_MOVE = 2 }
        BdFlags "bd_flags": u32 { BRIDGE_API_FLAG_NONE = 0, BRIDGE_API_FLAG_LEARN = 1, BRIDGE_API_FLAG_FWD = 2, BRIDGE_API_FLAG_FLOOD = 4, BRIDGE_API_FLAG_UU_FLOOD = 8, BRIDGE_API_FLAG_ARP_TERM = 16, BRIDGE_API_FLAG_ARP_UFWD = 32 }
        L2IntfFeatFlags "l2_intf_feat_flags": u32 { L2_INTF_FEAT_NONE = 0, L2_INTF_FEAT_LEARN = 1, L2_INTF_FEAT_FWD = 2, L2_INTF_FEAT_FLOOD = 4, L2_INTF_FEAT_UU_FLOOD = 8, L2_INTF_FEAT_ARP_TERM = 16, L2_INTF_FEAT_ARP_UFWD = 32 }
    }
    types {
        MacEntry "mac_entry" { sw_if_index: InterfaceIndex, mac_addr: MacAddress, action: MacEventAction, flags: u8 }
        BridgeDomainSwIf "bridge_domain_sw_if" { context: u32, sw_if_index: InterfaceIndex, shg: u8 }
        BdIpMac "bd_ip_mac" { bd_id: u32, ip: Address, mac: MacAddress }
    }
    messages {
        client SwInterfaceSetL2Xconnect "sw_interface_set_l2_xconnect" -> sw_interface_set_l2_xconnect_reply { rx_sw_if_index: InterfaceIndex, tx_sw_if_index: InterfaceIndex, enable: bool => "true" }
        context SwInterfaceSetL2XconnectReply "sw_interface_set_l2_xconnect_reply" { retval: i32 }
        client L2XconnectDump "l2_xconnect_dump" => l2_xconnect_details {  }
        context L2XconnectDetails "l2_xconnect_details" { rx_sw_if_index: InterfaceIndex, tx_sw_if_index: InterfaceIndex }
        client SwInterfaceSetL2Bridge "sw_interface_set_l2_bridge" -> sw_interface_set_l2_bridge_reply { rx_sw_if_index: InterfaceIndex, bd_id: u32, port_type: L2PortType, shg: u8, enable: bool => "true" }
        context SwInterfaceSetL2BridgeReply "sw_interface_set_l2_bridge_reply" { retval: i32 }
        client BridgeDomainAddDel "bridge_domain_add_del" -> bridge_domain_add_del_reply { bd_id: u32, flood: bool, uu_flood: bool, forward: bool, learn: bool, arp_term: bool, arp_ufwd: bool, mac_age: u8, bd_tag: Text<64>, is_add: bool => "true" }
        context BridgeDomainAddDelReply "bridge_domain_add_del_reply" { retval: i32 }
        client BridgeDomainAddDelV2 "bridge_domain_add_del_v2" -> bridge_domain_add_del_v2_reply { bd_id: u32, flood: bool, uu_flood: bool, forward: bool, learn: bool, arp_term: bool, arp_ufwd: bool, mac_age: u8, bd_tag: Text<64>, is_add: bool => "true" }
        context BridgeDomainAddDelV2Reply "bridge_domain_add_del_v2_reply" { retval: i32, bd_id: u32 }
        client BridgeDomainDump "bridge_domain_dump" => bridge_domain_details { bd_id: u32 => "4294967295", sw_if_index: InterfaceIndex => "4294967295" }
        context BridgeDomainDetails "bridge_domain_details" { bd_id: u32, flood: bool, uu_flood: bool, forward: bool, learn: bool, arp_term: bool, arp_ufwd: bool, mac_age: u8, bd_tag: Text<64>, bvi_sw_if_index: InterfaceIndex, uu_fwd_sw_if_index: InterfaceIndex, n_sw_ifs: u32, sw_if_details: Vec<BridgeDomainSwIf> = n_sw_ifs }
        client BridgeDomainSetMacAge "bridge_domain_set_mac_age" -> bridge_domain_set_mac_age_reply { bd_id: u32, mac_age: u8 }
        context BridgeDomainSetMacAgeReply "bridge_domain_set_mac_age_reply" { retval: i32 }
        client BridgeDomainSetDefaultLearnLimit "bridge_domain_set_default_learn_limit" -> bridge_domain_set_default_learn_limit_reply { learn_limit: u32 }
        context BridgeDomainSetDefaultLearnLimitReply "bridge_domain_set_default_learn_limit_reply" { retval: i32 }
        client BridgeDomainSetLearnLimit "bridge_domain_set_learn_limit" -> bridge_domain_set_learn_limit_reply { bd_id: u32, learn_limit: u32 }
        context BridgeDomainSetLearnLimitReply "bridge_domain_set_learn_limit_reply" { retval: i32 }
        client BridgeFlags "bridge_flags" -> bridge_flags_reply { bd_id: u32, is_set: bool, flags: BdFlags }
        context BridgeFlagsReply "bridge_flags_reply" { retval: i32, resulting_feature_bitmap: u32 }
        client BdIpMacAddDel "bd_ip_mac_add_del" -> bd_ip_mac_add_del_reply { is_add: bool => "true", entry: BdIpMac }
        context BdIpMacAddDelReply "bd_ip_mac_add_del_reply" { retval: i32 }
        client BdIpMacFlush "bd_ip_mac_flush" -> bd_ip_mac_flush_reply { bd_id: u32 }
        context BdIpMacFlushReply "bd_ip_mac_flush_reply" { retval: i32 }
        client BdIpMacDump "bd_ip_mac_dump" => bd_ip_mac_details { bd_id: u32 }
        context BdIpMacDetails "bd_ip_mac_details" { entry: BdIpMac }
        client L2fibAddDel "l2fib_add_del" -> l2fib_add_del_reply { mac: MacAddress, bd_id: u32, sw_if_index: InterfaceIndex, is_add: bool => "true", static_mac: bool, filter_mac: bool, bvi_mac: bool }
        context L2fibAddDelReply "l2fib_add_del_reply" { retval: i32 }
        client L2FibTableDump "l2_fib_table_dump" => l2_fib_table_details { bd_id: u32 }
        context L2FibTableDetails "l2_fib_table_details" { bd_id: u32, mac: MacAddress, sw_if_index: InterfaceIndex, static_mac: bool, filter_mac: bool, bvi_mac: bool }
        client L2fibFlushAll "l2fib_flush_all" -> l2fib_flush_all_reply {  }
        context L2fibFlushAllReply "l2fib_flush_all_reply" { retval: i32 }
        client L2fibFlushBd "l2fib_flush_bd" -> l2fib_flush_bd_reply { bd_id: u32 }
        context L2fibFlushBdReply "l2fib_flush_bd_reply" { retval: i32 }
        client L2fibFlushInt "l2fib_flush_int" -> l2fib_flush_int_reply { sw_if_index: InterfaceIndex }
        context L2fibFlushIntReply "l2fib_flush_int_reply" { retval: i32 }
        client L2Flags "l2_flags" -> l2_flags_reply { sw_if_index: InterfaceIndex, is_set: bool, feature_bitmap: u32 }
        context L2FlagsReply "l2_flags_reply" { retval: i32, resulting_feature_bitmap: u32 }
        client L2FlagsGet "l2_flags_get" -> l2_flags_get_reply { sw_if_index: InterfaceIndex }
        context L2FlagsGetReply "l2_flags_get_reply" { retval: i32, input_feature_bitmap: u32, output_feature_bitmap: u32 }
        client L2FlagsSet "l2_flags_set" -> l2_flags_set_reply { sw_if_index: InterfaceIndex, is_set: bool, input_feature_bitmap: u32, output_feature_bitmap: u32 }
        context L2FlagsSetReply "l2_flags_set_reply" { retval: i32 }
        client L2InterfaceFeatFlagsGet "l2_interface_feat_flags_get" -> l2_interface_feat_flags_get_reply { sw_if_index: InterfaceIndex }
        context L2InterfaceFeatFlagsGetReply "l2_interface_feat_flags_get_reply" { retval: i32, flags: L2IntfFeatFlags }
        client L2InterfaceFeatFlagsSet "l2_interface_feat_flags_set" -> l2_interface_feat_flags_set_reply { sw_if_index: InterfaceIndex, is_set: bool, flags: L2IntfFeatFlags }
        context L2InterfaceFeatFlagsSetReply "l2_interface_feat_flags_set_reply" { retval: i32 }
        client BviCreate "bvi_create" -> bvi_create_reply { mac: MacAddress, user_instance: u32 => "4294967295" }
        context BviCreateReply "bvi_create_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client BviDelete "bvi_delete" -> bvi_delete_reply { sw_if_index: InterfaceIndex }
        context BviDeleteReply "bvi_delete_reply" { retval: i32 }
        client WantL2MacsEvents "want_l2_macs_events" -> want_l2_macs_events_reply ! l2_macs_event { learn_limit: u32 => "1000", scan_delay: u8 => "10", max_macs_in_event: u8 => "10", enable_disable: bool => "true", pid: u32 }
        context WantL2MacsEventsReply "want_l2_macs_events_reply" { retval: i32 }
        client WantL2MacsEvents2 "want_l2_macs_events2" -> want_l2_macs_events2_reply { max_macs_in_event: u8 => "10", enable_disable: bool => "true", pid: u32 }
        context WantL2MacsEvents2Reply "want_l2_macs_events2_reply" { retval: i32 }
        client L2fibSetScanDelay "l2fib_set_scan_delay" -> l2fib_set_scan_delay_reply { scan_delay: u16 => "10" }
        context L2fibSetScanDelayReply "l2fib_set_scan_delay_reply" { retval: i32 }
        client WantL2ArpTermEvents "want_l2_arp_term_events" -> want_l2_arp_term_events_reply ! l2_arp_term_event { enable: bool, pid: u32 }
        context WantL2ArpTermEventsReply "want_l2_arp_term_events_reply" { retval: i32 }
        plain L2ArpTermEvent "l2_arp_term_event" { client_index: u32, pid: u32, ip: Address, sw_if_index: InterfaceIndex, mac: MacAddress }
        plain L2MacsEvent "l2_macs_event" { client_index: u32, pid: u32, n_macs: u32, mac: Vec<MacEntry> = n_macs }
        client L2InterfaceVlanTagRewrite "l2_interface_vlan_tag_rewrite" -> l2_interface_vlan_tag_rewrite_reply { sw_if_index: InterfaceIndex, vtr_op: u32, push_dot1q: u32, tag1: u32, tag2: u32 }
        context L2InterfaceVlanTagRewriteReply "l2_interface_vlan_tag_rewrite_reply" { retval: i32 }
    }
}
