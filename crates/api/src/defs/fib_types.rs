//! Types of `fib_types.api`.

use super::*;

module! {
    fib_types "2.0.1"
    enums {
        FibPathType "fib_path_type": u32 { FIB_API_PATH_TYPE_NORMAL = 0, FIB_API_PATH_TYPE_LOCAL = 1, FIB_API_PATH_TYPE_DROP = 2, FIB_API_PATH_TYPE_UDP_ENCAP = 3, FIB_API_PATH_TYPE_BIER_IMP = 4, FIB_API_PATH_TYPE_ICMP_UNREACH = 5, FIB_API_PATH_TYPE_ICMP_PROHIBIT = 6, FIB_API_PATH_TYPE_SOURCE_LOOKUP = 7, FIB_API_PATH_TYPE_DVR = 8, FIB_API_PATH_TYPE_INTERFACE_RX = 9, FIB_API_PATH_TYPE_CLASSIFY = 10 }
        FibPathFlags "fib_path_flags": u32 { FIB_API_PATH_FLAG_NONE = 0, FIB_API_PATH_FLAG_RESOLVE_VIA_ATTACHED = 1, FIB_API_PATH_FLAG_RESOLVE_VIA_HOST = 2, FIB_API_PATH_FLAG_POP_PW_CW = 4 }
        FibPathNhProto "fib_path_nh_proto": u32 { FIB_API_PATH_NH_PROTO_IP4 = 0, FIB_API_PATH_NH_PROTO_IP6 = 1, FIB_API_PATH_NH_PROTO_MPLS = 2, FIB_API_PATH_NH_PROTO_ETHERNET = 3, FIB_API_PATH_NH_PROTO_BIER = 4 }
    }
    types {
        FibPathNh "fib_path_nh" { address: AddressUnion, via_label: u32, obj_id: u32, classify_table_index: u32 }
        FibMplsLabel "fib_mpls_label" { is_uniform: u8, label: u32, ttl: u8, exp: u8 }
        FibPath "fib_path" { sw_if_index: u32, table_id: u32, rpf_id: u32, weight: u8, preference: u8, r#type: FibPathType, flags: FibPathFlags, proto: FibPathNhProto, nh: FibPathNh, n_labels: u8, label_stack: [FibMplsLabel; 16] }
    }
    messages {
    }
}
