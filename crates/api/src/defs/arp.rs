//! Messages of `arp.api`.

use super::*;

module! {
    arp "1.0.0"
    types {
        ProxyArp "proxy_arp" { table_id: u32, low: Ip4Address, hi: Ip4Address }
    }
    messages {
        client ProxyArpAddDel "proxy_arp_add_del" -> proxy_arp_add_del_reply { is_add: bool, proxy: ProxyArp }
        context ProxyArpAddDelReply "proxy_arp_add_del_reply" { retval: i32 }
        client ProxyArpDump "proxy_arp_dump" => proxy_arp_details {  }
        context ProxyArpDetails "proxy_arp_details" { proxy: ProxyArp }
        client ProxyArpIntfcEnableDisable "proxy_arp_intfc_enable_disable" -> proxy_arp_intfc_enable_disable_reply { sw_if_index: InterfaceIndex, enable: bool }
        context ProxyArpIntfcEnableDisableReply "proxy_arp_intfc_enable_disable_reply" { retval: i32 }
        client ProxyArpIntfcDump "proxy_arp_intfc_dump" => proxy_arp_intfc_details {  }
        context ProxyArpIntfcDetails "proxy_arp_intfc_details" { sw_if_index: u32 }
    }
}
