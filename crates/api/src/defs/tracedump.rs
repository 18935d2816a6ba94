//! Messages of `tracedump.api`.

use super::*;

module! {
    tracedump "0.2.0"
    enums {
        TraceFilterFlag "trace_filter_flag": u32 { TRACE_FF_NONE = 0, TRACE_FF_INCLUDE_NODE = 1, TRACE_FF_EXCLUDE_NODE = 2, TRACE_FF_INCLUDE_CLASSIFIER = 3, TRACE_FF_EXCLUDE_CLASSIFIER = 4 }
    }
    messages {
        client TraceSetFilters "trace_set_filters" -> trace_set_filters_reply { flag: TraceFilterFlag, count: u32, node_index: u32 => "4294967295", classifier_table_index: u32 => "4294967295" }
        context TraceSetFiltersReply "trace_set_filters_reply" { retval: i32 }
        client TraceCapturePackets "trace_capture_packets" -> trace_capture_packets_reply { node_index: u32, max_packets: u32, use_filter: bool, verbose: bool, pre_capture_clear: bool }
        context TraceCapturePacketsReply "trace_capture_packets_reply" { retval: i32 }
        client TraceClearCapture "trace_clear_capture" -> trace_clear_capture_reply {  }
        context TraceClearCaptureReply "trace_clear_capture_reply" { retval: i32 }
        client TraceDump "trace_dump" -> trace_dump_reply => trace_details { clear_cache: u8, thread_id: u32, position: u32, max_records: u32 }
        context TraceDumpReply "trace_dump_reply" { retval: i32, last_thread_id: u32, last_position: u32, more_this_thread: u8, more_threads: u8, flush_only: u8, done: u8 }
        client TraceDetails "trace_details" { thread_id: u32, position: u32, more_this_thread: u8, more_threads: u8, done: u8, packet_number: u32, trace_data: String }
        client TraceClearCache "trace_clear_cache" -> trace_clear_cache_reply {  }
        context TraceClearCacheReply "trace_clear_cache_reply" { retval: i32 }
        client TraceV2Dump "trace_v2_dump" => trace_v2_details { thread_id: u32 => "4294967295", position: u32, max: u32 => "50", clear_cache: bool }
        context TraceV2Details "trace_v2_details" { thread_id: u32, position: u32, more: bool, trace_data: String }
    }
}
