//! Messages of `ip_neighbor.api`.

use super::*;

module! {
    ip_neighbor "1.0.1"
    enums {
        IpNeighborFlags "ip_neighbor_flags": u8 { IP_API_NEIGHBOR_FLAG_NONE = 0, IP_API_NEIGHBOR_FLAG_STATIC = 1, IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY = 2 }
        IpNeighborEventFlags "ip_neighbor_event_flags": u32 { IP_NEIGHBOR_API_EVENT_FLAG_ADDED = 1, IP_NEIGHBOR_API_EVENT_FLAG_REMOVED = 2 }
    }
    types {
        IpNeighbor "ip_neighbor" { sw_if_index: InterfaceIndex, flags: IpNeighborFlags, mac_address: MacAddress, ip_address: Address }
    }
    messages {
        client IpNeighborAddDel "ip_neighbor_add_del" -> ip_neighbor_add_del_reply { is_add: bool, neighbor: IpNeighbor }
        context IpNeighborAddDelReply "ip_neighbor_add_del_reply" { retval: i32, stats_index: u32 }
        client IpNeighborDump "ip_neighbor_dump" => ip_neighbor_details { sw_if_index: InterfaceIndex => "4294967295", af: AddressFamily }
        context IpNeighborDetails "ip_neighbor_details" { age: f64, neighbor: IpNeighbor }
        client IpNeighborConfig "ip_neighbor_config" -> ip_neighbor_config_reply { af: AddressFamily, max_number: u32, max_age: u32, recycle: bool }
        context IpNeighborConfigReply "ip_neighbor_config_reply" { retval: i32 }
        client IpNeighborConfigGet "ip_neighbor_config_get" -> ip_neighbor_config_get_reply { af: AddressFamily }
        context IpNeighborConfigGetReply "ip_neighbor_config_get_reply" { retval: i32, af: AddressFamily, max_number: u32, max_age: u32, recycle: bool }
        client IpNeighborFlush "ip_neighbor_flush" -> ip_neighbor_flush_reply { af: AddressFamily, sw_if_index: InterfaceIndex => "4294967295" }
        context IpNeighborFlushReply "ip_neighbor_flush_reply" { retval: i32 }
        client WantIpNeighborEvents "want_ip_neighbor_events" -> want_ip_neighbor_events_reply ! ip_neighbor_event { enable: bool, pid: u32, ip: Address, sw_if_index: InterfaceIndex => "4294967295" }
        context WantIpNeighborEventsReply "want_ip_neighbor_events_reply" { retval: i32 }
        plain IpNeighborEvent "ip_neighbor_event" { client_index: u32, pid: u32, neighbor: IpNeighbor }
        client WantIpNeighborEventsV2 "want_ip_neighbor_events_v2" -> want_ip_neighbor_events_v2_reply ! ip_neighbor_event_v2 { enable: bool, pid: u32, ip: Address, sw_if_index: InterfaceIndex => "4294967295" }
        context WantIpNeighborEventsV2Reply "want_ip_neighbor_events_v2_reply" { retval: i32 }
        plain IpNeighborEventV2 "ip_neighbor_event_v2" { client_index: u32, pid: u32, flags: IpNeighborEventFlags, neighbor: IpNeighbor }
        client IpNeighborReplaceBegin "ip_neighbor_replace_begin" -> ip_neighbor_replace_begin_reply {  }
        context IpNeighborReplaceBeginReply "ip_neighbor_replace_begin_reply" { retval: i32 }
        client IpNeighborReplaceEnd "ip_neighbor_replace_end" -> ip_neighbor_replace_end_reply {  }
        context IpNeighborReplaceEndReply "ip_neighbor_replace_end_reply" { retval: i32 }
    }
}
