//! Types of `ethernet_types.api`.

use super::*;

module! {
    ethernet_types "1.0.0"
    aliases {
        MacAddress "mac_address": [u8; 6];
    }
    messages {
    }
}
