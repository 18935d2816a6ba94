//! Messages of `ip6_dad.api`.

use super::*;

module! {
    ip6_dad "1.0.0"
    enums {
        Ip6DadState "ip6_dad_state": u8 { IP6_DAD_STATE_IDLE = 0, IP6_DAD_STATE_TENTATIVE = 1, IP6_DAD_STATE_PREFERRED = 2, IP6_DAD_STATE_DUPLICATE = 3 }
    }
    messages {
        client Ip6DadEnableDisable "ip6_dad_enable_disable" -> ip6_dad_enable_disable_reply { enable: bool => "true", dad_transmits: u8 => "1", dad_retransmit_delay: f64 => "1.0" }
        context Ip6DadEnableDisableReply "ip6_dad_enable_disable_reply" { retval: i32 }
        client Ip6DadDump "ip6_dad_dump" => ip6_dad_details {  }
        context Ip6DadDetails "ip6_dad_details" { enabled: bool, dad_transmits: u8, dad_retransmit_delay: f64 }
        client WantIp6DadEvents "want_ip6_dad_events" -> want_ip6_dad_events_reply ! ip6_dad_event { enable_disable: bool, pid: u32 }
        context WantIp6DadEventsReply "want_ip6_dad_events_reply" { retval: i32 }
        plain Ip6DadEvent "ip6_dad_event" { client_index: u32, pid: u32, state: Ip6DadState, sw_if_index: InterfaceIndex, address: Ip6Address, dad_count: u8, dad_transmits: u8 }
    }
}
