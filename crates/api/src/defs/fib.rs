//! Messages of `fib.api`.

use super::*;

module! {
    fib "1.0.0"
    types {
        FibSource "fib_source" { priority: u8, id: u8, name: Text<64> }
    }
    messages {
        client FibSourceAdd "fib_source_add" -> fib_source_add_reply { src: FibSource }
        context FibSourceAddReply "fib_source_add_reply" { retval: i32, id: u8 }
        client FibSourceDump "fib_source_dump" => fib_source_details {  }
        context FibSourceDetails "fib_source_details" { src: FibSource }
    }
}
