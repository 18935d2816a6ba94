//! Types of `vpe_types.api`.

use super::*;

module! {
    vpe_types "1.0.0"
    aliases {
        Timestamp "timestamp": f64;
    }
    messages {
    }
}
