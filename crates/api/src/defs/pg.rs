//! Messages of `pg.api`.

use super::*;

module! {
    pg "2.1.0"
    enums {
        PgInterfaceMode "pg_interface_mode": u8 { PG_API_MODE_ETHERNET = 0, PG_API_MODE_IP4 = 1, PG_API_MODE_IP6 = 2 }
        PgInterfaceFlags "pg_interface_flags": u32 { PG_API_FLAG_NONE = 0, PG_API_FLAG_CSUM_OFFLOAD = 1, PG_API_FLAG_GSO = 2, PG_API_FLAG_GRO_COALESCE = 4 }
    }
    messages {
        client PgCreateInterface "pg_create_interface" -> pg_create_interface_reply { interface_id: InterfaceIndex, gso_enabled: bool, gso_size: u32 }
        context PgCreateInterfaceReply "pg_create_interface_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client PgCreateInterfaceV2 "pg_create_interface_v2" -> pg_create_interface_v2_reply { interface_id: InterfaceIndex, gso_enabled: bool, gso_size: u32, mode: PgInterfaceMode }
        context PgCreateInterfaceV2Reply "pg_create_interface_v2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client PgCreateInterfaceV3 "pg_create_interface_v3" -> pg_create_interface_v3_reply { interface_id: InterfaceIndex, pg_flags: PgInterfaceFlags, gso_size: u32, mode: PgInterfaceMode }
        context PgCreateInterfaceV3Reply "pg_create_interface_v3_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client PgDeleteInterface "pg_delete_interface" -> pg_delete_interface_reply { sw_if_index: InterfaceIndex }
        context PgDeleteInterfaceReply "pg_delete_interface_reply" { retval: i32 }
        client PgCapture "pg_capture" -> pg_capture_reply { interface_id: InterfaceIndex, is_enabled: bool => "true", count: u32, pcap_file_name: String }
        context PgCaptureReply "pg_capture_reply" { retval: i32 }
        client PgEnableDisable "pg_enable_disable" -> pg_enable_disable_reply { is_enabled: bool => "true", stream_name: String }
        context PgEnableDisableReply "pg_enable_disable_reply" { retval: i32 }
    }
}
