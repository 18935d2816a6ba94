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
        IpProto "ip_proto": u8 { IP_API_PROTO_HOPOPT = 0, IP_API_PROTO_ICMP = 1, IP_API_PROTO_IGMP = 2, IP_API_PROTO_TCP = 6, IP_API_PROTO_UDP = 17, IP_API_PROTO_GRE = 47, IP_API_PROTO_ESP = 50, IP_API_PROTO_AH = 51, IP_API_PROTO_ICMP6 = 58, IP_API_PROTO_EIGRP = 88, IP_API_PROTO_OSPF = 89, IP_API_PROTO_SCTP = 132, IP_API_PROTO_RESERVED = 255 }
    }
    unions {
        AddressUnion "address_union" { ip4: Ip4Address, ip6: Ip6Address }
    }
    types {
        Address "address" { af: AddressFamily, un: AddressUnion }
        Prefix "prefix" { address: Address, len: u8 }
        Mprefix "mprefix" { af: AddressFamily, grp_address_length: u16, grp_address: AddressUnion, src_address: AddressUnion }
        Ip4Prefix "ip4_prefix" { address: Ip4Address, len: u8 }
        Ip6Prefix "ip6_prefix" { address: Ip6Address, len: u8 }
    }
    messages {
    }
}
