//! Messages of `af_packet.api`.

use super::*;

module! {
    af_packet "2.0.0"
    enums {
        AfPacketMode "af_packet_mode": u32 { AF_PACKET_API_MODE_ETHERNET = 1, AF_PACKET_API_MODE_IP = 2 }
        AfPacketFlags "af_packet_flags": u32 { AF_PACKET_API_FLAG_QDISC_BYPASS = 1, AF_PACKET_API_FLAG_CKSUM_GSO = 2, AF_PACKET_API_FLAG_VERSION_2 = 8 compatible }
    }
    messages {
        client AfPacketCreate "af_packet_create" -> af_packet_create_reply { hw_addr: MacAddress, use_random_hw_addr: bool, host_if_name: Text<64> }
        context AfPacketCreateReply "af_packet_create_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client AfPacketCreateV2 "af_packet_create_v2" -> af_packet_create_v2_reply { hw_addr: MacAddress, use_random_hw_addr: bool, host_if_name: Text<64>, rx_frame_size: u32, tx_frame_size: u32, rx_frames_per_block: u32, tx_frames_per_block: u32, flags: u32, num_rx_queues: u16 => "1" }
        context AfPacketCreateV2Reply "af_packet_create_v2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client AfPacketCreateV3 "af_packet_create_v3" -> af_packet_create_v3_reply { mode: AfPacketMode, hw_addr: MacAddress, use_random_hw_addr: bool, host_if_name: Text<64>, rx_frame_size: u32, tx_frame_size: u32, rx_frames_per_block: u32, tx_frames_per_block: u32, flags: AfPacketFlags, num_rx_queues: u16 => "1", num_tx_queues: u16 => "1" }
        context AfPacketCreateV3Reply "af_packet_create_v3_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client AfPacketDelete "af_packet_delete" -> af_packet_delete_reply { host_if_name: Text<64> }
        context AfPacketDeleteReply "af_packet_delete_reply" { retval: i32 }
        client AfPacketDump "af_packet_dump" => af_packet_details {  }
        context AfPacketDetails "af_packet_details" { sw_if_index: InterfaceIndex, host_if_name: Text<64> }
    }
}
