//! Messages of `nat44_ed.api`.

use super::*;

module! {
    nat44_ed "5.5.0"
    enums {
        Nat44ConfigFlags "nat44_config_flags": u8 { NAT44_IS_ENDPOINT_INDEPENDENT = 0, NAT44_IS_ENDPOINT_DEPENDENT = 1, NAT44_IS_STATIC_MAPPING_ONLY = 2, NAT44_IS_CONNECTION_TRACKING = 4, NAT44_IS_OUT2IN_DPO = 8 }
    }
    types {
        Nat44LbAddrPort "nat44_lb_addr_port" { addr: Ip4Address, port: u16, probability: u8, vrf_id: u32 }
    }
    messages {
        client Nat44EdPluginEnableDisable "nat44_ed_plugin_enable_disable" -> nat44_ed_plugin_enable_disable_reply { inside_vrf: u32, outside_vrf: u32, sessions: u32, session_memory: u32, enable: bool, flags: Nat44ConfigFlags }
        context Nat44EdPluginEnableDisableReply "nat44_ed_plugin_enable_disable_reply" { retval: i32 }
        client Nat44ForwardingEnableDisable "nat44_forwarding_enable_disable" -> nat44_forwarding_enable_disable_reply { enable: bool }
        context Nat44ForwardingEnableDisableReply "nat44_forwarding_enable_disable_reply" { retval: i32 }
        client NatIpfixEnableDisable "nat_ipfix_enable_disable" -> nat_ipfix_enable_disable_reply { domain_id: u32, src_port: u16, enable: bool }
        context NatIpfixEnableDisableReply "nat_ipfix_enable_disable_reply" { retval: i32 }
        client NatSetTimeouts "nat_set_timeouts" -> nat_set_timeouts_reply { udp: u32, tcp_established: u32, tcp_transitory: u32, icmp: u32 }
        context NatSetTimeoutsReply "nat_set_timeouts_reply" { retval: i32 }
        client Nat44ShowRunningConfig "nat44_show_running_config" -> nat44_show_running_config_reply {  }
        context Nat44ShowRunningConfigReply "nat44_show_running_config_reply" { retval: i32, inside_vrf: u32, outside_vrf: u32, users: u32, sessions: u32, user_sessions: u32, user_buckets: u32, translation_buckets: u32, forwarding_enabled: bool, ipfix_logging_enabled: bool, timeouts: NatTimeouts, log_level: NatLogLevel, flags: Nat44ConfigFlags }
        client Nat44SetSessionLimit "nat44_set_session_limit" -> nat44_set_session_limit_reply { session_limit: u32, vrf_id: u32 }
        context Nat44SetSessionLimitReply "nat44_set_session_limit_reply" { retval: i32 }
        client NatSetWorkers "nat_set_workers" -> nat_set_workers_reply { worker_mask: u64 }
        context NatSetWorkersReply "nat_set_workers_reply" { retval: i32 }
        client NatWorkerDump "nat_worker_dump" => nat_worker_details {  }
        context NatWorkerDetails "nat_worker_details" { worker_index: u32, lcore_id: u32, name: Text<64> }
        client NatSetMssClamping "nat_set_mss_clamping" -> nat_set_mss_clamping_reply { mss_value: u16, enable: bool }
        context NatSetMssClampingReply "nat_set_mss_clamping_reply" { retval: i32 }
        client NatGetMssClamping "nat_get_mss_clamping" -> nat_get_mss_clamping_reply {  }
        context NatGetMssClampingReply "nat_get_mss_clamping_reply" { retval: i32, mss_value: u16, enable: bool }
        client Nat44AddDelInterfaceAddr "nat44_add_del_interface_addr" -> nat44_add_del_interface_addr_reply { is_add: bool, sw_if_index: InterfaceIndex, flags: NatConfigFlags }
        context Nat44AddDelInterfaceAddrReply "nat44_add_del_interface_addr_reply" { retval: i32 }
        client Nat44InterfaceAddrDump "nat44_interface_addr_dump" => nat44_interface_addr_details {  }
        context Nat44InterfaceAddrDetails "nat44_interface_addr_details" { sw_if_index: InterfaceIndex, flags: NatConfigFlags }
        client Nat44AddDelAddressRange "nat44_add_del_address_range" -> nat44_add_del_address_range_reply { first_ip_address: Ip4Address, last_ip_address: Ip4Address, vrf_id: u32, is_add: bool, flags: NatConfigFlags }
        context Nat44AddDelAddressRangeReply "nat44_add_del_address_range_reply" { retval: i32 }
        client Nat44AddressDump "nat44_address_dump" => nat44_address_details {  }
        context Nat44AddressDetails "nat44_address_details" { ip_address: Ip4Address, flags: NatConfigFlags, vrf_id: u32 }
        client Nat44InterfaceAddDelFeature "nat44_interface_add_del_feature" -> nat44_interface_add_del_feature_reply { is_add: bool, flags: NatConfigFlags, sw_if_index: InterfaceIndex }
        context Nat44InterfaceAddDelFeatureReply "nat44_interface_add_del_feature_reply" { retval: i32 }
        client Nat44InterfaceDump "nat44_interface_dump" => nat44_interface_details {  }
        context Nat44InterfaceDetails "nat44_interface_details" { flags: NatConfigFlags, sw_if_index: InterfaceIndex }
        client Nat44EdAddDelOutputInterface "nat44_ed_add_del_output_interface" -> nat44_ed_add_del_output_interface_reply { is_add: bool, sw_if_index: InterfaceIndex }
        context Nat44EdAddDelOutputInterfaceReply "nat44_ed_add_del_output_interface_reply" { retval: i32 }
        client Nat44EdOutputInterfaceGet "nat44_ed_output_interface_get" -> nat44_ed_output_interface_get_reply => nat44_ed_output_interface_details { cursor: u32 }
        context Nat44EdOutputInterfaceDetails "nat44_ed_output_interface_details" { sw_if_index: InterfaceIndex }
        context Nat44EdOutputInterfaceGetReply "nat44_ed_output_interface_get_reply" { retval: i32, cursor: u32 }
        client Nat44AddDelStaticMapping "nat44_add_del_static_mapping" -> nat44_add_del_static_mapping_reply { is_add: bool, flags: NatConfigFlags, local_ip_address: Ip4Address, external_ip_address: Ip4Address, protocol: u8, local_port: u16, external_port: u16, external_sw_if_index: InterfaceIndex, vrf_id: u32, tag: Text<64> }
        context Nat44AddDelStaticMappingReply "nat44_add_del_static_mapping_reply" { retval: i32 }
        client Nat44AddDelStaticMappingV2 "nat44_add_del_static_mapping_v2" -> nat44_add_del_static_mapping_v2_reply { is_add: bool, match_pool: bool, flags: NatConfigFlags, pool_ip_address: Ip4Address, local_ip_address: Ip4Address, external_ip_address: Ip4Address, protocol: u8, local_port: u16, external_port: u16, external_sw_if_index: InterfaceIndex, vrf_id: u32, tag: Text<64> }
        context Nat44AddDelStaticMappingV2Reply "nat44_add_del_static_mapping_v2_reply" { retval: i32 }
        client Nat44StaticMappingDump "nat44_static_mapping_dump" => nat44_static_mapping_details {  }
        context Nat44StaticMappingDetails "nat44_static_mapping_details" { flags: NatConfigFlags, local_ip_address: Ip4Address, external_ip_address: Ip4Address, protocol: u8, local_port: u16, external_port: u16, external_sw_if_index: InterfaceIndex, vrf_id: u32, tag: Text<64> }
        client Nat44AddDelIdentityMapping "nat44_add_del_identity_mapping" -> nat44_add_del_identity_mapping_reply { is_add: bool, flags: NatConfigFlags, ip_address: Ip4Address, protocol: u8, port: u16, sw_if_index: InterfaceIndex, vrf_id: u32, tag: Text<64> }
        context Nat44AddDelIdentityMappingReply "nat44_add_del_identity_mapping_reply" { retval: i32 }
        client Nat44IdentityMappingDump "nat44_identity_mapping_dump" => nat44_identity_mapping_details {  }
        context Nat44IdentityMappingDetails "nat44_identity_mapping_details" { flags: NatConfigFlags, ip_address: Ip4Address, protocol: u8, port: u16, sw_if_index: InterfaceIndex, vrf_id: u32, tag: Text<64> }
        client Nat44AddDelLbStaticMapping "nat44_add_del_lb_static_mapping" -> nat44_add_del_lb_static_mapping_reply { is_add: bool, flags: NatConfigFlags, external_addr: Ip4Address, external_port: u16, protocol: u8, affinity: u32, tag: Text<64>, local_num: u32, locals: Vec<Nat44LbAddrPort> = local_num }
        context Nat44AddDelLbStaticMappingReply "nat44_add_del_lb_static_mapping_reply" { retval: i32 }
        client Nat44LbStaticMappingAddDelLocal "nat44_lb_static_mapping_add_del_local" -> nat44_lb_static_mapping_add_del_local_reply { is_add: bool, external_addr: Ip4Address, external_port: u16, protocol: u8, local: Nat44LbAddrPort }
        context Nat44LbStaticMappingAddDelLocalReply "nat44_lb_static_mapping_add_del_local_reply" { retval: i32 }
        client Nat44LbStaticMappingDump "nat44_lb_static_mapping_dump" => nat44_lb_static_mapping_details {  }
        context Nat44LbStaticMappingDetails "nat44_lb_static_mapping_details" { external_addr: Ip4Address, external_port: u16, protocol: u8, flags: NatConfigFlags, affinity: u32, tag: Text<64>, local_num: u32, locals: Vec<Nat44LbAddrPort> = local_num }
        client Nat44DelSession "nat44_del_session" -> nat44_del_session_reply { address: Ip4Address, protocol: u8, port: u16, vrf_id: u32, flags: NatConfigFlags, ext_host_address: Ip4Address, ext_host_port: u16 }
        context Nat44DelSessionReply "nat44_del_session_reply" { retval: i32 }
        client Nat44UserDump "nat44_user_dump" => nat44_user_details {  }
        context Nat44UserDetails "nat44_user_details" { vrf_id: u32, ip_address: Ip4Address, nsessions: u32, nstaticsessions: u32 }
        client Nat44UserSessionDump "nat44_user_session_dump" => nat44_user_session_details { ip_address: Ip4Address, vrf_id: u32 }
        context Nat44UserSessionDetails "nat44_user_session_details" { outside_ip_address: Ip4Address, outside_port: u16, inside_ip_address: Ip4Address, inside_port: u16, protocol: u16, flags: NatConfigFlags, last_heard: u64, total_bytes: u64, total_pkts: u32, ext_host_address: Ip4Address, ext_host_port: u16, ext_host_nat_address: Ip4Address, ext_host_nat_port: u16 }
        client Nat44UserSessionV2Dump "nat44_user_session_v2_dump" => nat44_user_session_v2_details { ip_address: Ip4Address, vrf_id: u32 }
        context Nat44UserSessionV2Details "nat44_user_session_v2_details" { outside_ip_address: Ip4Address, outside_port: u16, inside_ip_address: Ip4Address, inside_port: u16, protocol: u16, flags: NatConfigFlags, last_heard: u64, total_bytes: u64, total_pkts: u32, ext_host_address: Ip4Address, ext_host_port: u16, ext_host_nat_address: Ip4Address, ext_host_nat_port: u16, is_timed_out: bool }
        client Nat44UserSessionV3Dump "nat44_user_session_v3_dump" => nat44_user_session_v3_details { ip_address: Ip4Address, vrf_id: u32 }
        context Nat44UserSessionV3Details "nat44_user_session_v3_details" { outside_ip_address: Ip4Address, outside_port: u16, inside_ip_address: Ip4Address, inside_port: u16, protocol: u16, flags: NatConfigFlags, last_heard: u64, time_since_last_heard: u64, total_bytes: u64, total_pkts: u32, ext_host_address: Ip4Address, ext_host_port: u16, ext_host_nat_address: Ip4Address, ext_host_nat_port: u16, is_timed_out: bool }
    }
}
