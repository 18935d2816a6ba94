//! Messages of `vrrp.api`.

use super::*;

module! {
    vrrp "1.1.1"
    enums {
        VrrpVrState "vrrp_vr_state": u32 { VRRP_API_VR_STATE_INIT = 0, VRRP_API_VR_STATE_BACKUP = 1, VRRP_API_VR_STATE_MASTER = 2, VRRP_API_VR_STATE_INTF_DOWN = 3 }
    }
    enumflags {
        VrrpVrFlags "vrrp_vr_flags": u32 { VRRP_API_VR_PREEMPT = 1, VRRP_API_VR_ACCEPT = 2, VRRP_API_VR_UNICAST = 4, VRRP_API_VR_IPV6 = 8 }
    }
    types {
        VrrpVrKey "vrrp_vr_key" { sw_if_index: InterfaceIndex, vr_id: u8, is_ipv6: u8 }
        VrrpVrConf "vrrp_vr_conf" { sw_if_index: InterfaceIndex, vr_id: u8, priority: u8, interval: u16, flags: VrrpVrFlags }
        VrrpVrTracking "vrrp_vr_tracking" { interfaces_dec: u32, priority: u8 }
        VrrpVrRuntime "vrrp_vr_runtime" { state: VrrpVrState, master_adv_int: u16, skew: u16, master_down_int: u16, mac: MacAddress, tracking: VrrpVrTracking }
        VrrpVrTrackIf "vrrp_vr_track_if" { sw_if_index: InterfaceIndex, priority: u8 }
    }
    messages {
        client VrrpVrAddDel "vrrp_vr_add_del" -> vrrp_vr_add_del_reply { is_add: u8, sw_if_index: InterfaceIndex, vr_id: u8, priority: u8, interval: u16, flags: VrrpVrFlags, n_addrs: u8, addrs: Vec<Address> = n_addrs }
        context VrrpVrAddDelReply "vrrp_vr_add_del_reply" { retval: i32 }
        client VrrpVrUpdate "vrrp_vr_update" -> vrrp_vr_update_reply { vrrp_index: u32, sw_if_index: InterfaceIndex, vr_id: u8, priority: u8, interval: u16, flags: VrrpVrFlags, n_addrs: u8, addrs: Vec<Address> = n_addrs }
        context VrrpVrUpdateReply "vrrp_vr_update_reply" { retval: i32, vrrp_index: u32 }
        client VrrpVrDel "vrrp_vr_del" -> vrrp_vr_del_reply { vrrp_index: u32 }
        context VrrpVrDelReply "vrrp_vr_del_reply" { retval: i32 }
        client VrrpVrDump "vrrp_vr_dump" => vrrp_vr_details { sw_if_index: InterfaceIndex }
        context VrrpVrDetails "vrrp_vr_details" { config: VrrpVrConf, runtime: VrrpVrRuntime, n_addrs: u8, addrs: Vec<Address> = n_addrs }
        client VrrpVrStartStop "vrrp_vr_start_stop" -> vrrp_vr_start_stop_reply { sw_if_index: InterfaceIndex, vr_id: u8, is_ipv6: u8, is_start: u8 }
        context VrrpVrStartStopReply "vrrp_vr_start_stop_reply" { retval: i32 }
        client VrrpVrSetPeers "vrrp_vr_set_peers" -> vrrp_vr_set_peers_reply { sw_if_index: InterfaceIndex, vr_id: u8, is_ipv6: u8, n_addrs: u8, addrs: Vec<Address> = n_addrs }
        context VrrpVrSetPeersReply "vrrp_vr_set_peers_reply" { retval: i32 }
        client VrrpVrPeerDump "vrrp_vr_peer_dump" => vrrp_vr_peer_details { sw_if_index: InterfaceIndex, is_ipv6: u8, vr_id: u8 }
        client VrrpVrPeerDetails "vrrp_vr_peer_details" { sw_if_index: InterfaceIndex, vr_id: u8, is_ipv6: u8, n_peer_addrs: u8, peer_addrs: Vec<Address> = n_peer_addrs }
        client VrrpVrTrackIfAddDel "vrrp_vr_track_if_add_del" -> vrrp_vr_track_if_add_del_reply { sw_if_index: InterfaceIndex, is_ipv6: u8, vr_id: u8, is_add: u8, n_ifs: u8, ifs: Vec<VrrpVrTrackIf> = n_ifs }
        context VrrpVrTrackIfAddDelReply "vrrp_vr_track_if_add_del_reply" { retval: i32 }
        client VrrpVrTrackIfDump "vrrp_vr_track_if_dump" => vrrp_vr_track_if_details { sw_if_index: InterfaceIndex, is_ipv6: u8, vr_id: u8, dump_all: u8 }
        client VrrpVrTrackIfDetails "vrrp_vr_track_if_details" { sw_if_index: InterfaceIndex, vr_id: u8, is_ipv6: u8, n_ifs: u8, ifs: Vec<VrrpVrTrackIf> = n_ifs }
        client WantVrrpVrEvents "want_vrrp_vr_events" -> want_vrrp_vr_events_reply ! vrrp_vr_event { enable_disable: bool, pid: u32 }
        context WantVrrpVrEventsReply "want_vrrp_vr_events_reply" { retval: i32 }
        plain VrrpVrEvent "vrrp_vr_event" { client_index: u32, pid: u32, vr: VrrpVrKey, old_state: VrrpVrState, new_state: VrrpVrState }
    }
}
