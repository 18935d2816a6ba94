//! Types of `ip_types.api`.

use super::*;

module! {
    ip_types "3.0.0"
    aliases {
        Ip4Address "ip4_address": [u8; 4];
        Ip6Address "ip6_address": [u8; 16];
        AddressWithPrefix "address_with_prefix": Prefix;
        Ip4AddressWithPrefix "ip4_address_with_prefix": Ip4Prefix;
        Ip6AddressWithPrefix "ip6_address_with_prefix": Ip6Prefix;
    }
    enums {
        AddressFamily "address_family": u8 { ADDRESS_IP4 = 0, ADDRESS_IP6 = 1 }
    }
    enumflags {
    }
    unions {
        AddressUnion "address_union" { ip4: Ip4Address, ip6: Ip6Address }
    }
    types {
        Address "address" { af: AddressFamily, un: AddressUnion }
        Prefix "prefix" { address: Address, len: u8 }
        Ip4Prefix "ip4_prefix" { address: Ip4Address, len: u8 }
        Ip6Prefix "ip6_prefix" { address: Ip6Address, len: u8 }
    }
    messages {
    }
}
