//! Messages of `punt.api`.

use super::*;

module! {
    punt "2.2.1"
    aliases {
    }
    enums {
        PuntType "punt_type": u32 { PUNT_API_TYPE_L4 = 0, PUNT_API_TYPE_IP_PROTO = 1, PUNT_API_TYPE_EXCEPTION = 2 }
    }
    enumflags {
    }
    unions {
        PuntUnion "punt_union" { exception: PuntException, l4: PuntL4, ip_proto: PuntIpProto }
    }
    types {
        PuntL4 "punt_l4" { af: AddressFamily, protocol: IpProto, port: u16 }
        PuntIpProto "punt_ip_proto" { af: AddressFamily, protocol: IpProto }
        PuntException "punt_exception" { id: u32 }
        Punt "punt" { r#type: PuntType, punt: PuntUnion }
    }
    messages {
        client SetPunt "set_punt" -> set_punt_reply { is_add: bool, punt: Punt }
        context SetPuntReply "set_punt_reply" { retval: i32 }
    }
}
