//! Messages of `arping.api`.

use super::*;

module! {
    arping "1.0.0"
    messages {
        client Arping "arping" -> arping_reply { address: Address, sw_if_index: InterfaceIndex, is_garp: bool, repeat: u32 => "1", interval: f64 => "1.0" }
        context ArpingReply "arping_reply" { retval: i32, reply_count: u32 }
        client ArpingAcd "arping_acd" -> arping_acd_reply { address: Address, sw_if_index: InterfaceIndex, is_garp: bool, repeat: u32 => "1", interval: f64 => "1.0" }
        context ArpingAcdReply "arping_acd_reply" { retval: i32, reply_count: u32, mac_address: MacAddress }
    }
}
