//! Messages of `vpe.api`.

use super::*;

module! {
    vpe "1.7.0"
    messages {
        client ShowVersion "show_version" -> show_version_reply {  }
        context ShowVersionReply "show_version_reply" { retval: i32, program: Text<32>, version: Text<32>, build_date: Text<32>, build_directory: Text<256> }
        client ShowVpeSystemTime "show_vpe_system_time" -> show_vpe_system_time_reply {  }
        context ShowVpeSystemTimeReply "show_vpe_system_time_reply" { retval: i32, vpe_system_time: Timestamp }
    }
}
