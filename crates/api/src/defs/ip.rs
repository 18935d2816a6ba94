//! Messages of `ip.api`.

use super::*;

module! {
    ip "3.2.0"
    enums {
        IpReassType "ip_reass_type": u32 { IP_REASS_TYPE_FULL = 0, IP_REASS_TYPE_SHALLOW_VIRTUAL = 1 }
    }
    enumflags {
        IpFlowHashConfig "ip_flow_hash_config": u32 { IP_API_FLOW_HASH_SRC_IP = 1, IP_API_FLOW_HASH_DST_IP = 2, IP_API_FLOW_HASH_SRC_PORT = 4, IP_API_FLOW_HASH_DST_PORT = 8, IP_API_FLOW_HASH_PROTO = 16, IP_API_FLOW_HASH_REVERSE = 32, IP_API_FLOW_HASH_SYMETRIC = 64, IP_API_FLOW_HASH_FLOW_LABEL = 128 }
        IpFlowHashConfigV2 "ip_flow_hash_config_v2": u32 { IP_API_V2_FLOW_HASH_SRC_IP = 1, IP_API_V2_FLOW_HASH_DST_IP = 2, IP_API_V2_FLOW_HASH_SRC_PORT = 4, IP_API_V2_FLOW_HASH_DST_PORT = 8, IP_API_V2_FLOW_HASH_PROTO = 16, IP_API_V2_FLOW_HASH_REVERSE = 32, IP_API_V2_FLOW_HASH_SYMETRIC = 64, IP_API_V2_FLOW_HASH_FLOW_LABEL = 128, IP_API_V2_FLOW_HASH_GTPV1_TEID = 256 }
    }
    types {
        IpTable "ip_table" { table_id: u32, is_ip6: bool, name: Text<64> }
        IpRoute "ip_route" { table_id: u32, stats_index: u32, prefix: Prefix, n_paths: u8, paths: Vec<FibPath> = n_paths }
        IpRouteV2 "ip_route_v2" { table_id: u32, stats_index: u32, prefix: Prefix, n_paths: u8, src: u8, paths: Vec<FibPath> = n_paths }
        PuntRedirect "punt_redirect" { rx_sw_if_index: InterfaceIndex, tx_sw_if_index: InterfaceIndex, nh: Address }
        PuntRedirectV2 "punt_redirect_v2" { rx_sw_if_index: InterfaceIndex => "4294967295", af: AddressFamily, n_paths: u32, paths: Vec<FibPath> = n_paths }
        IpMroute "ip_mroute" { table_id: u32, entry_flags: MfibEntryFlags, rpf_id: u32, prefix: Mprefix, n_paths: u8, paths: Vec<MfibPath> = n_paths }
        IpPathMtu "ip_path_mtu" { client_index: u32, context: u32, table_id: u32, nh: Address, path_mtu: u16 }
    }
    messages {
        client IpTableAddDel "ip_table_add_del" -> ip_table_add_del_reply { is_add: bool => "true", table: IpTable }
        context IpTableAddDelReply "ip_table_add_del_reply" { retval: i32 }
        client IpTableAddDelV2 "ip_table_add_del_v2" -> ip_table_add_del_v2_reply { table: IpTable, create_mfib: bool => "true", is_add: bool => "true" }
        context IpTableAddDelV2Reply "ip_table_add_del_v2_reply" { retval: i32 }
        client IpTableAllocate "ip_table_allocate" -> ip_table_allocate_reply { table: IpTable }
        context IpTableAllocateReply "ip_table_allocate_reply" { retval: i32, table: IpTable }
        client IpTableDump "ip_table_dump" => ip_table_details {  }
        context IpTableDetails "ip_table_details" { table: IpTable }
        client IpTableFlush "ip_table_flush" -> ip_table_flush_reply { table: IpTable }
        context IpTableFlushReply "ip_table_flush_reply" { retval: i32 }
        client IpRouteAddDel "ip_route_add_del" -> ip_route_add_del_reply { is_add: bool => "true", is_multipath: bool, route: IpRoute }
        context IpRouteAddDelReply "ip_route_add_del_reply" { retval: i32, stats_index: u32 }
        client IpRouteAddDelV2 "ip_route_add_del_v2" -> ip_route_add_del_v2_reply { is_add: bool => "true", is_multipath: bool, route: IpRouteV2 }
        context IpRouteAddDelV2Reply "ip_route_add_del_v2_reply" { retval: i32, stats_index: u32 }
        client IpRouteDump "ip_route_dump" => ip_route_details { table: IpTable }
        context IpRouteDetails "ip_route_details" { route: IpRoute }
        client IpRouteV2Dump "ip_route_v2_dump" => ip_route_v2_details { src: u8, table: IpTable }
        context IpRouteV2Details "ip_route_v2_details" { route: IpRouteV2 }
        client IpRouteLookup "ip_route_lookup" -> ip_route_lookup_reply { table_id: u32, exact: u8, prefix: Prefix }
        context IpRouteLookupReply "ip_route_lookup_reply" { retval: i32, route: IpRoute }
        client IpRouteLookupV2 "ip_route_lookup_v2" -> ip_route_lookup_v2_reply { table_id: u32, exact: u8, prefix: Prefix }
        context IpRouteLookupV2Reply "ip_route_lookup_v2_reply" { retval: i32, route: IpRouteV2 }
        client IpMtableDump "ip_mtable_dump" => ip_mtable_details {  }
        context IpMtableDetails "ip_mtable_details" { table: IpTable }
        client IpMrouteAddDel "ip_mroute_add_del" -> ip_mroute_add_del_reply { is_add: bool => "true", is_multipath: bool, route: IpMroute }
        context IpMrouteAddDelReply "ip_mroute_add_del_reply" { retval: i32, stats_index: u32 }
        client IpMrouteDump "ip_mroute_dump" => ip_mroute_details { table: IpTable }
        context IpMrouteDetails "ip_mroute_details" { route: IpMroute }
        client SetIpFlowHash "set_ip_flow_hash" -> set_ip_flow_hash_reply { vrf_id: u32, is_ipv6: bool, src: bool, dst: bool, sport: bool, dport: bool, proto: bool, reverse: bool, symmetric: bool }
        context SetIpFlowHashReply "set_ip_flow_hash_reply" { retval: i32 }
        client SetIpFlowHashV2 "set_ip_flow_hash_v2" -> set_ip_flow_hash_v2_reply { table_id: u32, af: AddressFamily, flow_hash_config: IpFlowHashConfig }
        context SetIpFlowHashV2Reply "set_ip_flow_hash_v2_reply" { retval: i32 }
        client SetIpFlowHashV3 "set_ip_flow_hash_v3" -> set_ip_flow_hash_v3_reply { table_id: u32, af: AddressFamily, flow_hash_config: IpFlowHashConfigV2 }
        context SetIpFlowHashV3Reply "set_ip_flow_hash_v3_reply" { retval: i32 }
        client SetIpFlowHashRouterId "set_ip_flow_hash_router_id" -> set_ip_flow_hash_router_id_reply { router_id: u32 }
        context SetIpFlowHashRouterIdReply "set_ip_flow_hash_router_id_reply" { retval: i32 }
        client IpAddressDump "ip_address_dump" => ip_address_details { sw_if_index: InterfaceIndex, is_ipv6: bool }
        context IpAddressDetails "ip_address_details" { sw_if_index: InterfaceIndex, prefix: AddressWithPrefix }
        client IpUnnumberedDump "ip_unnumbered_dump" => ip_unnumbered_details { sw_if_index: InterfaceIndex => "4294967295" }
        context IpUnnumberedDetails "ip_unnumbered_details" { sw_if_index: InterfaceIndex, ip_sw_if_index: InterfaceIndex }
        client IpDump "ip_dump" => ip_details { is_ipv6: bool }
        context IpDetails "ip_details" { sw_if_index: InterfaceIndex, is_ipv6: bool }
        client IpPuntRedirect "ip_punt_redirect" -> ip_punt_redirect_reply { punt: PuntRedirect, is_add: bool => "true" }
        context IpPuntRedirectReply "ip_punt_redirect_reply" { retval: i32 }
        client IpPuntRedirectDump "ip_punt_redirect_dump" => ip_punt_redirect_details { sw_if_index: InterfaceIndex, is_ipv6: bool }
        context IpPuntRedirectDetails "ip_punt_redirect_details" { punt: PuntRedirect }
        client AddDelIpPuntRedirectV2 "add_del_ip_punt_redirect_v2" -> add_del_ip_punt_redirect_v2_reply { is_add: bool => "true", punt: PuntRedirectV2 }
        context AddDelIpPuntRedirectV2Reply "add_del_ip_punt_redirect_v2_reply" { retval: i32 }
        client IpPuntRedirectV2Dump "ip_punt_redirect_v2_dump" => ip_punt_redirect_v2_details { sw_if_index: InterfaceIndex, af: AddressFamily }
        context IpPuntRedirectV2Details "ip_punt_redirect_v2_details" { punt: PuntRedirectV2 }
        client SwInterfaceIp6EnableDisable "sw_interface_ip6_enable_disable" -> sw_interface_ip6_enable_disable_reply { sw_if_index: InterfaceIndex, enable: bool }
        context SwInterfaceIp6EnableDisableReply "sw_interface_ip6_enable_disable_reply" { retval: i32 }
        client SwInterfaceIp6GetLinkLocalAddress "sw_interface_ip6_get_link_local_address" -> sw_interface_ip6_get_link_local_address_reply { sw_if_index: InterfaceIndex }
        context SwInterfaceIp6GetLinkLocalAddressReply "sw_interface_ip6_get_link_local_address_reply" { retval: i32, ip: Ip6Address }
        client IpTableReplaceBegin "ip_table_replace_begin" -> ip_table_replace_begin_reply { table: IpTable }
        context IpTableReplaceBeginReply "ip_table_replace_begin_reply" { retval: i32 }
        client IpTableReplaceEnd "ip_table_replace_end" -> ip_table_replace_end_reply { table: IpTable }
        context IpTableReplaceEndReply "ip_table_replace_end_reply" { retval: i32 }
        client SwInterfaceIp6SetLinkLocalAddress "sw_interface_ip6_set_link_local_address" -> sw_interface_ip6_set_link_local_address_reply { sw_if_index: InterfaceIndex, ip: Ip6Address }
        context SwInterfaceIp6SetLinkLocalAddressReply "sw_interface_ip6_set_link_local_address_reply" { retval: i32 }
        client IpReassemblySet "ip_reassembly_set" -> ip_reassembly_set_reply { timeout_ms: u32, max_reassemblies: u32, max_reassembly_length: u32, expire_walk_interval_ms: u32, is_ip6: bool, r#type: IpReassType }
        context IpReassemblySetReply "ip_reassembly_set_reply" { retval: i32 }
        client IpReassemblyGet "ip_reassembly_get" -> ip_reassembly_get_reply { is_ip6: bool, r#type: IpReassType }
        context IpReassemblyGetReply "ip_reassembly_get_reply" { retval: i32, timeout_ms: u32, max_reassemblies: u32, max_reassembly_length: u32, expire_walk_interval_ms: u32, is_ip6: bool }
        client IpReassemblyEnableDisable "ip_reassembly_enable_disable" -> ip_reassembly_enable_disable_reply { sw_if_index: InterfaceIndex, enable_ip4: bool, enable_ip6: bool, r#type: IpReassType }
        context IpReassemblyEnableDisableReply "ip_reassembly_enable_disable_reply" { retval: i32 }
        client IpLocalReassEnableDisable "ip_local_reass_enable_disable" -> ip_local_reass_enable_disable_reply { enable_ip4: bool, enable_ip6: bool }
        context IpLocalReassEnableDisableReply "ip_local_reass_enable_disable_reply" { retval: i32 }
        client IpLocalReassGet "ip_local_reass_get" -> ip_local_reass_get_reply {  }
        context IpLocalReassGetReply "ip_local_reass_get_reply" { retval: i32, ip4_is_enabled: bool, ip6_is_enabled: bool }
        client IpPathMtuUpdate "ip_path_mtu_update" -> ip_path_mtu_update_reply { pmtu: IpPathMtu }
        context IpPathMtuUpdateReply "ip_path_mtu_update_reply" { retval: i32 }
        client IpPathMtuGet "ip_path_mtu_get" -> ip_path_mtu_get_reply => ip_path_mtu_details { cursor: u32 }
        context IpPathMtuGetReply "ip_path_mtu_get_reply" { retval: i32, cursor: u32 }
        context IpPathMtuDetails "ip_path_mtu_details" { pmtu: IpPathMtu }
        client IpPathMtuReplaceBegin "ip_path_mtu_replace_begin" -> ip_path_mtu_replace_begin_reply {  }
        context IpPathMtuReplaceBeginReply "ip_path_mtu_replace_begin_reply" { retval: i32 }
        client IpPathMtuReplaceEnd "ip_path_mtu_replace_end" -> ip_path_mtu_replace_end_reply {  }
        context IpPathMtuReplaceEndReply "ip_path_mtu_replace_end_reply" { retval: i32 }
    }
}
