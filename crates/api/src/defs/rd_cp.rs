//! Messages of `rd_cp.api`.

use super::*;

module! {
    rd_cp "1.0.1"
    messages {
        client Ip6NdAddressAutoconfig "ip6_nd_address_autoconfig" -> ip6_nd_address_autoconfig_reply { sw_if_index: InterfaceIndex, enable: bool, install_default_routes: bool }
        context Ip6NdAddressAutoconfigReply "ip6_nd_address_autoconfig_reply" { retval: i32 }
    }
}
