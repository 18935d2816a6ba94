//! Messages of `vlib.api`.

use super::*;

module! {
    vlib "1.0.0"
    types {
        ThreadData "thread_data" { id: u32, name: Text<64>, r#type: Text<64>, pid: u32, cpu_id: u32, core: u32, cpu_socket: u32 }
    }
    messages {
        client CliInband "cli_inband" -> cli_inband_reply { cmd: String }
        context CliInbandReply "cli_inband_reply" { retval: i32, reply: String }
        client GetNodeIndex "get_node_index" -> get_node_index_reply { node_name: Text<64> }
        context GetNodeIndexReply "get_node_index_reply" { retval: i32, node_index: u32 }
        client ShowThreads "show_threads" -> show_threads_reply {  }
        context ShowThreadsReply "show_threads_reply" { retval: i32, count: u32, thread_data: Vec<ThreadData> = count }
    }
}
