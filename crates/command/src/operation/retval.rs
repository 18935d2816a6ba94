//! Return codes as VPP's users know them (`retval` of the binary API; its `src/vnet/error.h`).
//!
//! Zero is success and is never in an [`OpError`](super::OpError). Only the codes that some operation
//! can sensibly give are listed.

macro_rules! retvals {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($code), "`: ", $text, ".")]
            pub const $name: i32 = $code;
        )*
        /// What the code says in words; `"error"` for a code that is not listed here.
        pub fn describe(code: i32) -> &'static str {
            match code {
                $($name => $text,)*
                _ => "error",
            }
        }
    };
}

retvals! {
    UNSPECIFIED = -1, "unspecified error";
    INVALID_SW_IF_INDEX = -2, "no such interface";
    NO_SUCH_FIB = -3, "no such table";
    NO_SUCH_INNER_FIB = -4, "no such inner table";
    NO_SUCH_LABEL = -5, "no such label";
    NO_SUCH_ENTRY = -6, "no such entry";
    INVALID_VALUE = -7, "invalid value";
    INVALID_VALUE_2 = -8, "invalid second value";
    UNIMPLEMENTED = -9, "not implemented";
    INVALID_SW_IF_INDEX_2 = -10, "no such second interface";
    SYSCALL_ERROR_1 = -11, "a system call failed";
    SYSCALL_ERROR_2 = -12, "a second system call failed";
    SYSCALL_ERROR_3 = -13, "a third system call failed";
    FEATURE_DISABLED = -30, "feature disabled by configuration";
    INVALID_REGISTRATION = -31, "invalid registration";
    NEXT_HOP_NOT_IN_FIB = -50, "next hop not in the table";
    UNKNOWN_DESTINATION = -51, "unknown destination";
    NO_PATHS_IN_ROUTE = -52, "route without paths";
    NEXT_HOP_NOT_FOUND_MP = -53, "next hop not among the paths";
    NO_MATCHING_INTERFACE = -54, "no matching interface";
    INVALID_VLAN = -55, "invalid VLAN";
    VLAN_ALREADY_EXISTS = -56, "VLAN exists";
    INVALID_SRC_ADDRESS = -57, "invalid source address";
    INVALID_DST_ADDRESS = -58, "invalid destination address";
    ADDRESS_LENGTH_MISMATCH = -59, "address length differs";
    ADDRESS_NOT_FOUND_FOR_INTERFACE = -60, "interface has no such address";
    ADDRESS_NOT_DELETABLE = -61, "address cannot be deleted";
    IP6_NOT_ENABLED = -62, "IPv6 not enabled";
    NO_SUCH_NODE = -63, "no such graph node";
    NO_SUCH_TABLE = -65, "no such table";
    SUBIF_ALREADY_EXISTS = -68, "sub-interface exists";
    SUBIF_CREATE_FAILED = -69, "sub-interface could not be created";
    INVALID_MEMORY_SIZE = -70, "invalid memory size";
    INVALID_INTERFACE = -71, "invalid interface";
    INVALID_VLAN_TAG_COUNT = -72, "invalid number of VLAN tags";
    INVALID_ARGUMENT = -73, "invalid argument";
    UNEXPECTED_INTF_STATE = -74, "interface in the wrong state";
    TUNNEL_EXIST = -75, "tunnel exists";
    IF_ALREADY_EXISTS = -79, "interface exists";
    VALUE_EXIST = -81, "value exists";
    SAME_SRC_DST = -82, "source and destination are the same";
    NOT_RUNNING_AS_ROOT = -85, "needs root";
    IP_PREFIX_INVALID = -88, "prefix has bits set behind its length";
    INVALID_WORKER = -89, "no such worker";
    CANNOT_CREATE_PCAP_FILE = -93, "capture file could not be created";
    INCORRECT_ADJACENCY_TYPE = -94, "wrong type of adjacency";
    INVALID_ADDRESS_FAMILY = -97, "wrong address family";
    INVALID_SUB_SW_IF_INDEX = -98, "no such sub-interface";
    TABLE_TOO_BIG = -99, "table too big";
    CANNOT_ENABLE_DISABLE_FEATURE = -100, "feature could not be switched";
    BFD_EEXIST = -101, "BFD session exists already";
    BFD_ENOENT = -102, "no such BFD session";
    BFD_EINUSE = -103, "BFD object in use";
    BFD_NOTSUPP = -104, "not supported of BFD";
    ADDRESS_IN_USE = -105, "address in use";
    ADDRESS_NOT_IN_USE = -106, "address not in use";
    QUEUE_FULL = -107, "queue full";
    ADDRESS_FOUND_FOR_INTERFACE = -114, "interface has the address";
    ENTRY_ALREADY_EXISTS = -116, "entry exists";
    BD_ALREADY_EXISTS = -119, "bridge domain exists";
    BD_IN_USE = -120, "bridge domain in use";
    L2_MACS_EVENT_CLIENT_PRESENT = -124, "another client gets the events of MAC addresses";
    BD_NOT_MODIFIABLE = -121, "bridge domain 0 cannot change";
    BD_ID_EXCEED_MAX = -122, "bridge domain id too large";
    SUBIF_DOESNT_EXIST = -123, "no such sub-interface";
    INVALID_QUEUE = -125, "no such queue";
    UNSUPPORTED = -126, "not supported";
    DUPLICATE_IF_ADDRESS = -127, "address is on another interface";
    ILLEGAL_NAME = -133, "illegal name";
    ACL_IN_USE_INBOUND = -142, "access list in use for what comes in";
    ACL_IN_USE_OUTBOUND = -143, "access list in use for what leaves";
    INIT_FAILED = -144, "initialisation failed";
    NETLINK_ERROR = -145, "netlink error";
    INSTANCE_IN_USE = -147, "instance in use";
    INVALID_VALUE_3 = -150, "invalid third value";
    NON_ETHERNET = -151, "not an Ethernet interface";
    BD_ALREADY_HAS_BVI = -152, "bridge domain has a BVI";
    INVALID_PROTOCOL = -153, "invalid protocol";
    RSRC_IN_USE = -155, "resource in use";
    NO_CHANGE = -160, "nothing to change";
    LIMIT_EXCEEDED = -162, "limit exceeded";
    EAGAIN = -165, "call again with the cursor";
    BUSY = -167, "busy";
    FEATURE_ALREADY_DISABLED = -169, "already disabled";
    FEATURE_ALREADY_ENABLED = -170, "already enabled";
    TIMEOUT = -171, "timed out";
}
