//! Messages of `tapv2.api`.

use super::*;

module! {
    tapv2 "4.0.0"
    enums {
        TapFlags "tap_flags": u32 { TAP_API_FLAG_GSO = 1, TAP_API_FLAG_CSUM_OFFLOAD = 2, TAP_API_FLAG_PERSIST = 4, TAP_API_FLAG_ATTACH = 8, TAP_API_FLAG_TUN = 16, TAP_API_FLAG_GRO_COALESCE = 32, TAP_API_FLAG_PACKED = 64 compatible, TAP_API_FLAG_IN_ORDER = 128 compatible, TAP_API_FLAG_CONSISTENT_QP = 256 compatible }
    }
    messages {
        client TapCreateV3 "tap_create_v3" -> tap_create_v3_reply { id: u32 => "4294967295", use_random_mac: bool => "true", mac_address: MacAddress, num_rx_queues: u16 => "1", num_tx_queues: u16 => "1", tx_ring_sz: u16 => "256", rx_ring_sz: u16 => "256", host_mtu_set: bool, host_mtu_size: u32, host_mac_addr_set: bool, host_mac_addr: MacAddress, host_ip4_prefix_set: bool, host_ip4_prefix: Ip4AddressWithPrefix, host_ip6_prefix_set: bool, host_ip6_prefix: Ip6AddressWithPrefix, host_ip4_gw_set: bool, host_ip4_gw: Ip4Address, host_ip6_gw_set: bool, host_ip6_gw: Ip6Address, tap_flags: TapFlags, host_namespace_set: bool, host_namespace: Text<64>, host_if_name_set: bool, host_if_name: Text<64>, host_bridge_set: bool, host_bridge: Text<64>, tag: String }
        context TapCreateV3Reply "tap_create_v3_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client TapDeleteV2 "tap_delete_v2" -> tap_delete_v2_reply { sw_if_index: InterfaceIndex }
        context TapDeleteV2Reply "tap_delete_v2_reply" { retval: i32 }
        client TapCreateV2 "tap_create_v2" -> tap_create_v2_reply { id: u32 => "4294967295", use_random_mac: bool => "true", mac_address: MacAddress, num_rx_queues: u8 => "1", tx_ring_sz: u16 => "256", rx_ring_sz: u16 => "256", host_mtu_set: bool, host_mtu_size: u32, host_mac_addr_set: bool, host_mac_addr: MacAddress, host_ip4_prefix_set: bool, host_ip4_prefix: Ip4AddressWithPrefix, host_ip6_prefix_set: bool, host_ip6_prefix: Ip6AddressWithPrefix, host_ip4_gw_set: bool, host_ip4_gw: Ip4Address, host_ip6_gw_set: bool, host_ip6_gw: Ip6Address, tap_flags: TapFlags, host_namespace_set: bool, host_namespace: Text<64>, host_if_name_set: bool, host_if_name: Text<64>, host_bridge_set: bool, host_bridge: Text<64>, tag: String }
        context TapCreateV2Reply "tap_create_v2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client SwInterfaceTapV2Dump "sw_interface_tap_v2_dump" => sw_interface_tap_v2_details { sw_if_index: InterfaceIndex => "4294967295" }
        context SwInterfaceTapV2Details "sw_interface_tap_v2_details" { sw_if_index: u32, id: u32, tx_ring_sz: u16, rx_ring_sz: u16, host_mtu_size: u32, host_mac_addr: MacAddress, host_ip4_prefix: Ip4AddressWithPrefix, host_ip6_prefix: Ip6AddressWithPrefix, tap_flags: TapFlags, dev_name: Text<64>, host_if_name: Text<64>, host_namespace: Text<64>, host_bridge: Text<64> }
    }
}
