//! Messages of `syslog.api`.

use super::*;

module! {
    syslog "1.0.0"
    enums {
        SyslogSeverity "syslog_severity": u32 { SYSLOG_API_SEVERITY_EMERG = 0, SYSLOG_API_SEVERITY_ALERT = 1, SYSLOG_API_SEVERITY_CRIT = 2, SYSLOG_API_SEVERITY_ERR = 3, SYSLOG_API_SEVERITY_WARN = 4, SYSLOG_API_SEVERITY_NOTICE = 5, SYSLOG_API_SEVERITY_INFO = 6, SYSLOG_API_SEVERITY_DBG = 7 }
    }
    messages {
        client SyslogSetSender "syslog_set_sender" -> syslog_set_sender_reply { src_address: Ip4Address, collector_address: Ip4Address, collector_port: u16 => "514", vrf_id: u32, max_msg_size: u32 => "480" }
        context SyslogSetSenderReply "syslog_set_sender_reply" { retval: i32 }
        client SyslogGetSender "syslog_get_sender" -> syslog_get_sender_reply {  }
        context SyslogGetSenderReply "syslog_get_sender_reply" { retval: i32, src_address: Ip4Address, collector_address: Ip4Address, collector_port: u16, vrf_id: u32, max_msg_size: u32 }
        client SyslogSetFilter "syslog_set_filter" -> syslog_set_filter_reply { severity: SyslogSeverity }
        context SyslogSetFilterReply "syslog_set_filter_reply" { retval: i32 }
        client SyslogGetFilter "syslog_get_filter" -> syslog_get_filter_reply {  }
        context SyslogGetFilterReply "syslog_get_filter_reply" { retval: i32, severity: SyslogSeverity }
    }
}
