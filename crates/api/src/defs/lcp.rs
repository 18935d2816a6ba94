//! Messages of `lcp.api`.

use super::*;

module! {
    lcp "1.0.0"
    enums {
        LcpItfHostType "lcp_itf_host_type": u8 { LCP_API_ITF_HOST_TAP = 0, LCP_API_ITF_HOST_TUN = 1 }
    }
    messages {
        client LcpDefaultNsSet "lcp_default_ns_set" -> lcp_default_ns_set_reply { netns: Text<32> }
        context LcpDefaultNsSetReply "lcp_default_ns_set_reply" { retval: i32 }
        client LcpDefaultNsGet "lcp_default_ns_get" -> lcp_default_ns_get_reply {  }
        context LcpDefaultNsGetReply "lcp_default_ns_get_reply" { netns: Text<32> }
        client LcpItfPairAddDel "lcp_itf_pair_add_del" -> lcp_itf_pair_add_del_reply { is_add: bool, sw_if_index: InterfaceIndex, host_if_name: Text<16>, host_if_type: LcpItfHostType, netns: Text<32> }
        context LcpItfPairAddDelReply "lcp_itf_pair_add_del_reply" { retval: i32 }
        client LcpItfPairAddDelV2 "lcp_itf_pair_add_del_v2" -> lcp_itf_pair_add_del_v2_reply { is_add: bool, sw_if_index: InterfaceIndex, host_if_name: Text<16>, host_if_type: LcpItfHostType, netns: Text<32> }
        context LcpItfPairAddDelV2Reply "lcp_itf_pair_add_del_v2_reply" { retval: i32, host_sw_if_index: InterfaceIndex }
        client LcpItfPairAddDelV3 "lcp_itf_pair_add_del_v3" -> lcp_itf_pair_add_del_v3_reply { is_add: bool, sw_if_index: InterfaceIndex, host_if_name: Text<16>, host_if_type: LcpItfHostType, netns: Text<32> }
        context LcpItfPairAddDelV3Reply "lcp_itf_pair_add_del_v3_reply" { retval: i32, vif_index: u32, host_sw_if_index: InterfaceIndex }
        client LcpItfPairGet "lcp_itf_pair_get" -> lcp_itf_pair_get_reply => lcp_itf_pair_details { cursor: u32 }
        context LcpItfPairGetReply "lcp_itf_pair_get_reply" { retval: i32, cursor: u32 }
        client LcpItfPairGetV2 "lcp_itf_pair_get_v2" -> lcp_itf_pair_get_v2_reply => lcp_itf_pair_details { cursor: u32, sw_if_index: InterfaceIndex }
        context LcpItfPairGetV2Reply "lcp_itf_pair_get_v2_reply" { retval: i32, cursor: u32 }
        context LcpItfPairDetails "lcp_itf_pair_details" { phy_sw_if_index: InterfaceIndex, host_sw_if_index: InterfaceIndex, vif_index: u32, host_if_name: Text<16>, host_if_type: LcpItfHostType, netns: Text<32> }
        client LcpEthertypeEnable "lcp_ethertype_enable" -> lcp_ethertype_enable_reply { ethertype: u16 }
        context LcpEthertypeEnableReply "lcp_ethertype_enable_reply" { retval: i32 }
        client LcpEthertypeGet "lcp_ethertype_get" -> lcp_ethertype_get_reply {  }
        context LcpEthertypeGetReply "lcp_ethertype_get_reply" { retval: i32, count: u16, ethertypes: Vec<u16> = count }
    }
}
