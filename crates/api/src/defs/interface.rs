//! Messages of `interface.api`.

use super::*;

module! {
    interface "3.2.4"
    messages {
        client SwInterfaceSetFlags "sw_interface_set_flags" -> sw_interface_set_flags_reply { sw_if_index: InterfaceIndex, flags: IfStatusFlags }
        context SwInterfaceSetFlagsReply "sw_interface_set_flags_reply" { retval: i32 }
        client SwInterfaceSetPromisc "sw_interface_set_promisc" -> sw_interface_set_promisc_reply { sw_if_index: InterfaceIndex, promisc_on: bool }
        context SwInterfaceSetPromiscReply "sw_interface_set_promisc_reply" { retval: i32 }
        client HwInterfaceSetMtu "hw_interface_set_mtu" -> hw_interface_set_mtu_reply { sw_if_index: InterfaceIndex, mtu: u16 }
        context HwInterfaceSetMtuReply "hw_interface_set_mtu_reply" { retval: i32 }
        client SwInterfaceSetIpDirectedBroadcast "sw_interface_set_ip_directed_broadcast" -> sw_interface_set_ip_directed_broadcast_reply { sw_if_index: InterfaceIndex, enable: bool }
        context SwInterfaceSetIpDirectedBroadcastReply "sw_interface_set_ip_directed_broadcast_reply" { retval: i32 }
        client SwInterfaceSetMtu "sw_interface_set_mtu" -> sw_interface_set_mtu_reply { sw_if_index: InterfaceIndex, mtu: [u32; 4] }
        context SwInterfaceSetMtuReply "sw_interface_set_mtu_reply" { retval: i32 }
        client WantInterfaceEvents "want_interface_events" -> want_interface_events_reply ! sw_interface_event { enable_disable: u32, pid: u32 }
        context WantInterfaceEventsReply "want_interface_events_reply" { retval: i32 }
        plain SwInterfaceEvent "sw_interface_event" { client_index: u32, pid: u32, sw_if_index: InterfaceIndex, flags: IfStatusFlags, deleted: bool }
        client SwInterfaceDump "sw_interface_dump" => sw_interface_details { sw_if_index: InterfaceIndex => "4294967295", name_filter_valid: bool, name_filter: String }
        context SwInterfaceDetails "sw_interface_details" { sw_if_index: InterfaceIndex, sup_sw_if_index: u32, l2_address: MacAddress, flags: IfStatusFlags, r#type: IfType, link_duplex: LinkDuplex, link_speed: u32, link_mtu: u16, mtu: [u32; 4], sub_id: u32, sub_number_of_tags: u8, sub_outer_vlan_id: u16, sub_inner_vlan_id: u16, sub_if_flags: SubIfFlags, vtr_op: u32, vtr_push_dot1q: u32, vtr_tag1: u32, vtr_tag2: u32, outer_tag: u16, b_dmac: MacAddress, b_smac: MacAddress, b_vlanid: u16, i_sid: u32, interface_name: Text<64>, interface_dev_type: Text<64>, tag: Text<64> }
        client SwInterfaceAddDelAddress "sw_interface_add_del_address" -> sw_interface_add_del_address_reply { sw_if_index: InterfaceIndex, is_add: bool, del_all: bool, prefix: AddressWithPrefix }
        context SwInterfaceAddDelAddressReply "sw_interface_add_del_address_reply" { retval: i32 }
        client SwInterfaceSetUnnumbered "sw_interface_set_unnumbered" -> sw_interface_set_unnumbered_reply { sw_if_index: InterfaceIndex, unnumbered_sw_if_index: InterfaceIndex, is_add: bool }
        context SwInterfaceSetUnnumberedReply "sw_interface_set_unnumbered_reply" { retval: i32 }
        client SwInterfaceSetTable "sw_interface_set_table" -> sw_interface_set_table_reply { sw_if_index: InterfaceIndex, is_ipv6: bool, vrf_id: u32 }
        context SwInterfaceSetTableReply "sw_interface_set_table_reply" { retval: i32 }
        client SwInterfaceGetTable "sw_interface_get_table" -> sw_interface_get_table_reply { sw_if_index: InterfaceIndex, is_ipv6: bool }
        context SwInterfaceGetTableReply "sw_interface_get_table_reply" { retval: i32, vrf_id: u32 }
        client SwInterfaceClearStats "sw_interface_clear_stats" -> sw_interface_clear_stats_reply { sw_if_index: InterfaceIndex }
        context SwInterfaceClearStatsReply "sw_interface_clear_stats_reply" { retval: i32 }
        client PcapTraceOn "pcap_trace_on" -> pcap_trace_on_reply { capture_rx: bool, capture_tx: bool, capture_drop: bool, filter: bool, preallocate_data: bool, free_data: bool, max_packets: u32 => "1000", max_bytes_per_packet: u32 => "512", sw_if_index: InterfaceIndex, error: Text<128>, filename: Text<64> }
        context PcapTraceOnReply "pcap_trace_on_reply" { retval: i32 }
        client PcapTraceOff "pcap_trace_off" -> pcap_trace_off_reply {  }
        context PcapTraceOffReply "pcap_trace_off_reply" { retval: i32 }
        client SwInterfaceTagAddDel "sw_interface_tag_add_del" -> sw_interface_tag_add_del_reply { is_add: bool, sw_if_index: InterfaceIndex, tag: Text<64> }
        context SwInterfaceTagAddDelReply "sw_interface_tag_add_del_reply" { retval: i32 }
        client SwInterfaceSetMacAddress "sw_interface_set_mac_address" -> sw_interface_set_mac_address_reply { sw_if_index: InterfaceIndex, mac_address: MacAddress }
        context SwInterfaceSetMacAddressReply "sw_interface_set_mac_address_reply" { retval: i32 }
        client SwInterfaceGetMacAddress "sw_interface_get_mac_address" -> sw_interface_get_mac_address_reply { sw_if_index: InterfaceIndex }
        context SwInterfaceGetMacAddressReply "sw_interface_get_mac_address_reply" { retval: i32, mac_address: MacAddress }
        client SwInterfaceSetRxMode "sw_interface_set_rx_mode" -> sw_interface_set_rx_mode_reply { sw_if_index: InterfaceIndex, queue_id_valid: bool, queue_id: u32, mode: RxMode }
        context SwInterfaceSetRxModeReply "sw_interface_set_rx_mode_reply" { retval: i32 }
        client SwInterfaceSetRxPlacement "sw_interface_set_rx_placement" -> sw_interface_set_rx_placement_reply { sw_if_index: InterfaceIndex, queue_id: u32, worker_id: u32, is_main: bool }
        context SwInterfaceSetRxPlacementReply "sw_interface_set_rx_placement_reply" { retval: i32 }
        client SwInterfaceRxPlacementDump "sw_interface_rx_placement_dump" => sw_interface_rx_placement_details { sw_if_index: InterfaceIndex }
        client SwInterfaceRxPlacementDetails "sw_interface_rx_placement_details" { sw_if_index: InterfaceIndex, queue_id: u32, worker_id: u32, mode: RxMode }
        client CreateVlanSubif "create_vlan_subif" -> create_vlan_subif_reply { sw_if_index: InterfaceIndex, vlan_id: u32 }
        context CreateVlanSubifReply "create_vlan_subif_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client CreateSubif "create_subif" -> create_subif_reply { sw_if_index: InterfaceIndex, sub_id: u32, sub_if_flags: SubIfFlags, outer_vlan_id: u16, inner_vlan_id: u16 }
        context CreateSubifReply "create_subif_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client DeleteSubif "delete_subif" -> delete_subif_reply { sw_if_index: InterfaceIndex }
        context DeleteSubifReply "delete_subif_reply" { retval: i32 }
        client CreateLoopback "create_loopback" -> create_loopback_reply { mac_address: MacAddress }
        context CreateLoopbackReply "create_loopback_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client CreateLoopbackInstance "create_loopback_instance" -> create_loopback_instance_reply { mac_address: MacAddress, is_specified: bool, user_instance: u32 }
        context CreateLoopbackInstanceReply "create_loopback_instance_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client DeleteLoopback "delete_loopback" -> delete_loopback_reply { sw_if_index: InterfaceIndex }
        context DeleteLoopbackReply "delete_loopback_reply" { retval: i32 }
        client SwInterfaceAddressReplaceBegin "sw_interface_address_replace_begin" -> sw_interface_address_replace_begin_reply {  }
        context SwInterfaceAddressReplaceBeginReply "sw_interface_address_replace_begin_reply" { retval: i32 }
        client SwInterfaceAddressReplaceEnd "sw_interface_address_replace_end" -> sw_interface_address_replace_end_reply {  }
        context SwInterfaceAddressReplaceEndReply "sw_interface_address_replace_end_reply" { retval: i32 }
    }
}
