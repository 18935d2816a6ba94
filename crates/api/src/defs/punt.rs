//! Messages of `punt.api`.

use super::*;

module! {
    punt "2.2.1"
    enums {
        PuntType "punt_type": u32 { PUNT_API_TYPE_L4 = 0, PUNT_API_TYPE_IP_PROTO = 1, PUNT_API_TYPE_EXCEPTION = 2 }
    }
    unions {
        PuntUnion "punt_union" { exception: PuntException, l4: PuntL4, ip_proto: PuntIpProto }
    }
    types {
        PuntL4 "punt_l4" { af: AddressFamily, protocol: IpProto, port: u16 }
        PuntIpProto "punt_ip_proto" { af: AddressFamily, protocol: IpProto }
        PuntException "punt_exception" { id: u32 }
        Punt "punt" { r#type: PuntType, punt: PuntUnion }
        PuntReason "punt_reason" { id: u32, name: String }
    }
    messages {
        client SetPunt "set_punt" -> set_punt_reply { is_add: bool, punt: Punt }
        context SetPuntReply "set_punt_reply" { retval: i32 }
        client PuntSocketRegister "punt_socket_register" -> punt_socket_register_reply { header_version: u32, punt: Punt, pathname: Text<108> }
        context PuntSocketRegisterReply "punt_socket_register_reply" { retval: i32, pathname: Text<108> }
        client PuntSocketDump "punt_socket_dump" => punt_socket_details { r#type: PuntType }
        context PuntSocketDetails "punt_socket_details" { punt: Punt, pathname: Text<108> }
        client PuntSocketDeregister "punt_socket_deregister" -> punt_socket_deregister_reply { punt: Punt }
        context PuntSocketDeregisterReply "punt_socket_deregister_reply" { retval: i32 }
        client PuntReasonDump "punt_reason_dump" => punt_reason_details { reason: PuntReason }
        context PuntReasonDetails "punt_reason_details" { reason: PuntReason }
    }
}
