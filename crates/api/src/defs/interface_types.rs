//! Types of `interface_types.api`.

use super::*;

module! {
    interface_types "1.0.0"
    aliases {
        InterfaceIndex "interface_index": u32;
    }
    enums {
        IfStatusFlags "if_status_flags": u32 { IF_STATUS_API_FLAG_ADMIN_UP = 1, IF_STATUS_API_FLAG_LINK_UP = 2 }
        IfType "if_type": u32 { IF_API_TYPE_HARDWARE = 0, IF_API_TYPE_SUB = 1, IF_API_TYPE_P2P = 2, IF_API_TYPE_PIPE = 3 }
        LinkDuplex "link_duplex": u32 { LINK_DUPLEX_API_UNKNOWN = 0, LINK_DUPLEX_API_HALF = 1, LINK_DUPLEX_API_FULL = 2 }
        SubIfFlags "sub_if_flags": u32 { SUB_IF_API_FLAG_NO_TAGS = 1, SUB_IF_API_FLAG_ONE_TAG = 2, SUB_IF_API_FLAG_TWO_TAGS = 4, SUB_IF_API_FLAG_DOT1AD = 8, SUB_IF_API_FLAG_EXACT_MATCH = 16, SUB_IF_API_FLAG_DEFAULT = 32, SUB_IF_API_FLAG_OUTER_VLAN_ID_ANY = 64, SUB_IF_API_FLAG_INNER_VLAN_ID_ANY = 128, SUB_IF_API_FLAG_MASK_VNET = 254, SUB_IF_API_FLAG_DOT1AH = 256 }
        RxMode "rx_mode": u32 { RX_MODE_API_UNKNOWN = 0, RX_MODE_API_POLLING = 1, RX_MODE_API_INTERRUPT = 2, RX_MODE_API_ADAPTIVE = 3, RX_MODE_API_DEFAULT = 4 }
    }
    messages {
    }
}
