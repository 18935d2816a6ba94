//! Messages of `af_xdp.api`.

use super::*;

module! {
    af_xdp "1.0.0"
    enums {
        AfXdpMode "af_xdp_mode": u32 { AF_XDP_API_MODE_AUTO = 0, AF_XDP_API_MODE_COPY = 1, AF_XDP_API_MODE_ZERO_COPY = 2 }
    }
    enumflags {
        AfXdpFlag "af_xdp_flag": u8 { AF_XDP_API_FLAGS_NO_SYSCALL_LOCK = 1, AF_XDP_API_FLAGS_MAC_REUSE = 2 compatible }
    }
    messages {
        client AfXdpCreateV3 "af_xdp_create_v3" -> af_xdp_create_v3_reply { host_if: Text<64>, name: Text<64>, rxq_num: u16 => "1", rxq_size: u16 => "0", txq_size: u16 => "0", mode: AfXdpMode => "0", flags: AfXdpFlag => "0", prog: Text<256>, netns: Text<64> }
        context AfXdpCreateV3Reply "af_xdp_create_v3_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client AfXdpDelete "af_xdp_delete" -> af_xdp_delete_reply { sw_if_index: InterfaceIndex }
        context AfXdpDeleteReply "af_xdp_delete_reply" { retval: i32 }
    }
}
