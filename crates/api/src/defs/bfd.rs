//! Messages of `bfd.api`.

use super::*;

module! {
    bfd "2.0.0"
    enums {
        BfdState "bfd_state": u32 { BFD_STATE_API_ADMIN_DOWN = 0, BFD_STATE_API_DOWN = 1, BFD_STATE_API_INIT = 2, BFD_STATE_API_UP = 3 }
    }
    messages {
        client BfdUdpAdd "bfd_udp_add" -> bfd_udp_add_reply { sw_if_index: InterfaceIndex, desired_min_tx: u32, required_min_rx: u32, local_addr: Address, peer_addr: Address, detect_mult: u8, is_authenticated: bool, bfd_key_id: u8, conf_key_id: u32 }
        context BfdUdpAddReply "bfd_udp_add_reply" { retval: i32 }
        client BfdUdpUpd "bfd_udp_upd" -> bfd_udp_upd_reply { sw_if_index: InterfaceIndex, desired_min_tx: u32, required_min_rx: u32, local_addr: Address, peer_addr: Address, detect_mult: u8, is_authenticated: bool, bfd_key_id: u8, conf_key_id: u32 }
        context BfdUdpUpdReply "bfd_udp_upd_reply" { retval: i32, stats_index: u32 }
        client BfdUdpMod "bfd_udp_mod" -> bfd_udp_mod_reply { sw_if_index: InterfaceIndex, desired_min_tx: u32, required_min_rx: u32, local_addr: Address, peer_addr: Address, detect_mult: u8 }
        context BfdUdpModReply "bfd_udp_mod_reply" { retval: i32 }
        client BfdUdpDel "bfd_udp_del" -> bfd_udp_del_reply { sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address }
        context BfdUdpDelReply "bfd_udp_del_reply" { retval: i32 }
        client BfdUdpSessionDump "bfd_udp_session_dump" => bfd_udp_session_details {  }
        context BfdUdpSessionDetails "bfd_udp_session_details" { sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address, state: BfdState, is_authenticated: bool, bfd_key_id: u8, conf_key_id: u32, required_min_rx: u32, desired_min_tx: u32, detect_mult: u8 }
        client BfdUdpSessionSetFlags "bfd_udp_session_set_flags" -> bfd_udp_session_set_flags_reply { sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address, flags: IfStatusFlags }
        context BfdUdpSessionSetFlagsReply "bfd_udp_session_set_flags_reply" { retval: i32 }
        client WantBfdEvents "want_bfd_events" -> want_bfd_events_reply ! bfd_udp_session_event { enable_disable: bool, pid: u32 }
        context WantBfdEventsReply "want_bfd_events_reply" { retval: i32 }
        client BfdAuthSetKey "bfd_auth_set_key" -> bfd_auth_set_key_reply { conf_key_id: u32, key_len: u8, auth_type: u8, key: [u8; 20] }
        context BfdAuthSetKeyReply "bfd_auth_set_key_reply" { retval: i32 }
        client BfdAuthDelKey "bfd_auth_del_key" -> bfd_auth_del_key_reply { conf_key_id: u32 }
        context BfdAuthDelKeyReply "bfd_auth_del_key_reply" { retval: i32 }
        client BfdAuthKeysDump "bfd_auth_keys_dump" => bfd_auth_keys_details {  }
        context BfdAuthKeysDetails "bfd_auth_keys_details" { conf_key_id: u32, use_count: u32, auth_type: u8 }
        client BfdUdpAuthActivate "bfd_udp_auth_activate" -> bfd_udp_auth_activate_reply { sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address, is_delayed: bool, bfd_key_id: u8, conf_key_id: u32 }
        context BfdUdpAuthActivateReply "bfd_udp_auth_activate_reply" { retval: i32 }
        client BfdUdpAuthDeactivate "bfd_udp_auth_deactivate" -> bfd_udp_auth_deactivate_reply { sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address, is_delayed: bool }
        context BfdUdpAuthDeactivateReply "bfd_udp_auth_deactivate_reply" { retval: i32 }
        client BfdUdpSetEchoSource "bfd_udp_set_echo_source" -> bfd_udp_set_echo_source_reply { sw_if_index: InterfaceIndex }
        context BfdUdpSetEchoSourceReply "bfd_udp_set_echo_source_reply" { retval: i32 }
        client BfdUdpDelEchoSource "bfd_udp_del_echo_source" -> bfd_udp_del_echo_source_reply {  }
        context BfdUdpDelEchoSourceReply "bfd_udp_del_echo_source_reply" { retval: i32 }
        client BfdUdpGetEchoSource "bfd_udp_get_echo_source" -> bfd_udp_get_echo_source_reply {  }
        context BfdUdpGetEchoSourceReply "bfd_udp_get_echo_source_reply" { retval: i32, sw_if_index: InterfaceIndex, is_set: bool, have_usable_ip4: bool, ip4_addr: Ip4Address, have_usable_ip6: bool, ip6_addr: Ip6Address }
        client BfdUdpEnableMultihop "bfd_udp_enable_multihop" -> bfd_udp_enable_multihop_reply {  }
        context BfdUdpEnableMultihopReply "bfd_udp_enable_multihop_reply" { retval: i32 }
        client BfdUdpSetTos "bfd_udp_set_tos" -> bfd_udp_set_tos_reply { tos: u8 }
        context BfdUdpSetTosReply "bfd_udp_set_tos_reply" { retval: i32 }
        client BfdUdpGetTos "bfd_udp_get_tos" -> bfd_udp_get_tos_reply {  }
        context BfdUdpGetTosReply "bfd_udp_get_tos_reply" { retval: i32, tos: u8 }
        plain BfdUdpSessionEvent "bfd_udp_session_event" { client_index: u32, pid: u32, sw_if_index: InterfaceIndex, local_addr: Address, peer_addr: Address, state: BfdState, is_authenticated: bool, bfd_key_id: u8, conf_key_id: u32, required_min_rx: u32, desired_min_tx: u32, detect_mult: u8 }
    }
}
