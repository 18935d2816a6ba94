//! Messages of `ip6_nd.api`.

use super::*;

module! {
    ip6_nd "1.1.0"
    types {
        Ip6ndRaPrefix "ip6nd_ra_prefix" { prefix: Prefix, onlink_flag: bool, autonomous_flag: bool, val_lifetime: u32, pref_lifetime: u32, valid_lifetime_expires: f64, pref_lifetime_expires: f64, decrement_lifetime_flag: bool, no_advertise: bool }
        Ip6RaPrefixInfo "ip6_ra_prefix_info" { prefix: Prefix, flags: u8, valid_time: u32, preferred_time: u32 }
    }
    messages {
        client SwInterfaceIp6ndRaConfig "sw_interface_ip6nd_ra_config" -> sw_interface_ip6nd_ra_config_reply { sw_if_index: InterfaceIndex, suppress: u8, managed: u8, other: u8, ll_option: u8, send_unicast: u8, cease: u8, is_no: bool, default_router: u8, max_interval: u32, min_interval: u32, lifetime: u32, initial_count: u32, initial_interval: u32 }
        context SwInterfaceIp6ndRaConfigReply "sw_interface_ip6nd_ra_config_reply" { retval: i32 }
        client SwInterfaceIp6ndRaPrefix "sw_interface_ip6nd_ra_prefix" -> sw_interface_ip6nd_ra_prefix_reply { sw_if_index: InterfaceIndex, prefix: Prefix, use_default: bool, no_advertise: bool, off_link: bool, no_autoconfig: bool, no_onlink: bool, is_no: bool, val_lifetime: u32, pref_lifetime: u32 }
        context SwInterfaceIp6ndRaPrefixReply "sw_interface_ip6nd_ra_prefix_reply" { retval: i32 }
        client SwInterfaceIp6ndRaDump "sw_interface_ip6nd_ra_dump" => sw_interface_ip6nd_ra_details { sw_if_index: InterfaceIndex }
        context SwInterfaceIp6ndRaDetails "sw_interface_ip6nd_ra_details" { sw_if_index: InterfaceIndex, cur_hop_limit: u8, adv_managed_flag: bool, adv_other_flag: bool, adv_router_lifetime: u16, adv_neighbor_reachable_time: u32, adv_retransmit_interval: u32, adv_link_mtu: u32, send_radv: bool, cease_radv: bool, send_unicast: bool, adv_link_layer_address: bool, max_radv_interval: f64, min_radv_interval: f64, last_radv_time: f64, last_multicast_time: f64, next_multicast_time: f64, initial_adverts_count: u32, initial_adverts_interval: f64, initial_adverts_sent: bool, n_advertisements_sent: u32, n_solicitations_rcvd: u32, n_solicitations_dropped: u32, n_prefixes: u32, prefixes: Vec<Ip6ndRaPrefix> = n_prefixes }
        client Ip6ndProxyEnableDisable "ip6nd_proxy_enable_disable" -> ip6nd_proxy_enable_disable_reply { sw_if_index: InterfaceIndex, is_enable: bool }
        context Ip6ndProxyEnableDisableReply "ip6nd_proxy_enable_disable_reply" { retval: i32 }
        client Ip6ndProxyAddDel "ip6nd_proxy_add_del" -> ip6nd_proxy_add_del_reply { sw_if_index: InterfaceIndex, is_add: bool, ip: Ip6Address }
        context Ip6ndProxyAddDelReply "ip6nd_proxy_add_del_reply" { retval: i32 }
        client Ip6ndProxyDump "ip6nd_proxy_dump" => ip6nd_proxy_details {  }
        context Ip6ndProxyDetails "ip6nd_proxy_details" { sw_if_index: InterfaceIndex, ip: Ip6Address }
        client Ip6ndSendRouterSolicitation "ip6nd_send_router_solicitation" -> ip6nd_send_router_solicitation_reply { irt: u32, mrt: u32, mrc: u32, mrd: u32, sw_if_index: InterfaceIndex, stop: bool }
        context Ip6ndSendRouterSolicitationReply "ip6nd_send_router_solicitation_reply" { retval: i32 }
        client WantIp6RaEvents "want_ip6_ra_events" -> want_ip6_ra_events_reply ! ip6_ra_event { enable: bool, pid: u32 }
        context WantIp6RaEventsReply "want_ip6_ra_events_reply" { retval: i32 }
        plain Ip6RaEvent "ip6_ra_event" { client_index: u32, pid: u32, sw_if_index: InterfaceIndex, router_addr: Ip6Address, current_hop_limit: u8, flags: u8, router_lifetime_in_sec: u16, neighbor_reachable_time_in_msec: u32, time_in_msec_between_retransmitted_neighbor_solicitations: u32, n_prefixes: u32, prefixes: Vec<Ip6RaPrefixInfo> = n_prefixes }
    }
}
