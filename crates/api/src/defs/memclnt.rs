//! Messages of `memclnt.api`.

use super::*;

module! {
    memclnt "2.1.0"
    types {
        MessageTableEntry "message_table_entry" { index: u16, name: Text<64> }
        ModuleVersion "module_version" { major: u32, minor: u32, patch: u32, name: Text<64> }
    }
    messages {
        context SockclntCreate "sockclnt_create" -> sockclnt_create_reply { name: Text<64> }
        client SockclntCreateReply "sockclnt_create_reply" { response: i32, index: u32, count: u16, message_table: Vec<MessageTableEntry> = count }
        client SockclntDelete "sockclnt_delete" -> sockclnt_delete_reply { index: u32 }
        context SockclntDeleteReply "sockclnt_delete_reply" { response: i32 }
        client ApiVersions "api_versions" -> api_versions_reply {  }
        context ApiVersionsReply "api_versions_reply" { retval: i32, count: u32, api_versions: Vec<ModuleVersion> = count }
        client GetFirstMsgId "get_first_msg_id" -> get_first_msg_id_reply { name: Text<64> }
        context GetFirstMsgIdReply "get_first_msg_id_reply" { retval: i32, first_msg_id: u16 }
        client ControlPing "control_ping" -> control_ping_reply {  }
        context ControlPingReply "control_ping_reply" { retval: i32, client_index: u32, vpe_pid: u32 }
        client GetApiJson "get_api_json" -> get_api_json_reply {  }
        context GetApiJsonReply "get_api_json_reply" { retval: i32, json: String }
    }
}
