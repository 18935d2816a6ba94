//! Messages of `memif.api`.

use super::*;

module! {
    memif "3.1.0"
    enums {
        MemifRole "memif_role": u32 { MEMIF_ROLE_API_MASTER = 0, MEMIF_ROLE_API_SLAVE = 1 }
        MemifMode "memif_mode": u32 { MEMIF_MODE_API_ETHERNET = 0, MEMIF_MODE_API_IP = 1, MEMIF_MODE_API_PUNT_INJECT = 2 }
    }
    messages {
        client MemifSocketFilenameAddDel "memif_socket_filename_add_del" -> memif_socket_filename_add_del_reply { is_add: bool, socket_id: u32, socket_filename: Text<108> }
        context MemifSocketFilenameAddDelReply "memif_socket_filename_add_del_reply" { retval: i32 }
        client MemifSocketFilenameAddDelV2 "memif_socket_filename_add_del_v2" -> memif_socket_filename_add_del_v2_reply { is_add: bool, socket_id: u32 => "4294967295", socket_filename: String }
        context MemifSocketFilenameAddDelV2Reply "memif_socket_filename_add_del_v2_reply" { retval: i32, socket_id: u32 }
        client MemifSocketFilenameDump "memif_socket_filename_dump" => memif_socket_filename_details {  }
        context MemifSocketFilenameDetails "memif_socket_filename_details" { socket_id: u32, socket_filename: Text<108> }
        client MemifCreate "memif_create" -> memif_create_reply { role: MemifRole, mode: MemifMode, rx_queues: u8, tx_queues: u8, id: u32, socket_id: u32, ring_size: u32, buffer_size: u16, no_zero_copy: bool, hw_addr: MacAddress, secret: Text<24> }
        context MemifCreateReply "memif_create_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client MemifCreateV2 "memif_create_v2" -> memif_create_v2_reply { role: MemifRole, mode: MemifMode, rx_queues: u8, tx_queues: u8, id: u32, socket_id: u32, ring_size: u32, buffer_size: u16, no_zero_copy: bool, use_dma: bool, hw_addr: MacAddress, secret: Text<24> }
        context MemifCreateV2Reply "memif_create_v2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client MemifDelete "memif_delete" -> memif_delete_reply { sw_if_index: InterfaceIndex }
        context MemifDeleteReply "memif_delete_reply" { retval: i32 }
        client MemifDump "memif_dump" => memif_details {  }
        context MemifDetails "memif_details" { sw_if_index: InterfaceIndex, hw_addr: MacAddress, id: u32, role: MemifRole, mode: MemifMode, zero_copy: bool, socket_id: u32, ring_size: u32, buffer_size: u16, flags: IfStatusFlags, if_name: Text<64> }
    }
}
