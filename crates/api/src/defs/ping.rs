//! Messages of `ping.api`.

use super::*;

module! {
    ping "0.1.0"
    messages {
        client WantPingFinishedEvents "want_ping_finished_events" -> want_ping_finished_events_reply ! ping_finished_event { address: Address, repeat: u32 => "1", interval: f64 => "1.0" }
        context WantPingFinishedEventsReply "want_ping_finished_events_reply" { retval: i32 }
        plain PingFinishedEvent "ping_finished_event" { client_index: u32, request_count: u32, reply_count: u32 }
    }
}
