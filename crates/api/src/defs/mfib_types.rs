//! Types of `mfib_types.api`.

use super::*;

module! {
    mfib_types "1.0.0"
    enums {
        MfibEntryFlags "mfib_entry_flags": u32 { MFIB_API_ENTRY_FLAG_NONE = 0, MFIB_API_ENTRY_FLAG_SIGNAL = 1, MFIB_API_ENTRY_FLAG_DROP = 2, MFIB_API_ENTRY_FLAG_CONNECTED = 4, MFIB_API_ENTRY_FLAG_ACCEPT_ALL_ITF = 8 }
        MfibItfFlags "mfib_itf_flags": u32 { MFIB_API_ITF_FLAG_NONE = 0, MFIB_API_ITF_FLAG_NEGATE_SIGNAL = 1, MFIB_API_ITF_FLAG_ACCEPT = 2, MFIB_API_ITF_FLAG_FORWARD = 4, MFIB_API_ITF_FLAG_SIGNAL_PRESENT = 8, MFIB_API_ITF_FLAG_DONT_PRESERVE = 16 }
    }
    types {
        MfibPath "mfib_path" { itf_flags: MfibItfFlags, path: FibPath }
    }
    messages {
    }
}
