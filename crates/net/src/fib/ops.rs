//! Routes: adding, removing and showing them.
//!
//! | file | commands |
//! |---|---|
//! | `change` | `ip route` in all its forms |
//! | `configuration` | tables and routes in `show configuration` |
//! | `path` | what stands behind `via` |
//! | `show` | `show ip fib`, `show ip6 fib` |
//! | `adjacency` | `show adj` |

mod adjacency;
mod change;
mod configuration;
mod path;
pub mod path_mtu;
mod show;
pub mod table;

use quiver_command::operation::{OpError, Registry, retval};
use quiver_command::words;

use crate::Router;
use crate::fib::FibError;
use crate::ip::FamilyId;

pub use change::{ChangeRoute, RouteRequest, RouteSource};
pub(crate) use configuration::table_of;
pub use path::{PathKind, PathRequest};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    change::register(registry);
    show::register(registry);
    adjacency::register(registry);
    table::register(registry);
    path_mtu::register(registry);
    configuration::register(registry);
}

words! {
    /// A family in requests and replies.
    #[derive(Default)]
    pub enum Family {
        /// IPv4.
        #[default]
        Ip4 = "ip4",
        /// IPv6.
        Ip6 = "ip6",
    }
}

impl From<Family> for FamilyId {
    fn from(family: Family) -> Self {
        match family {
            Family::Ip4 => Self::V4,
            Family::Ip6 => Self::V6,
        }
    }
}

impl From<FamilyId> for Family {
    fn from(family: FamilyId) -> Self {
        match family {
            FamilyId::V4 => Self::Ip4,
            FamilyId::V6 => Self::Ip6,
        }
    }
}

/// A FIB error as an operation's error.
impl From<FibError> for OpError {
    fn from(error: FibError) -> Self {
        let (code, key) = match &error {
            FibError::NoTable { .. } => (retval::NO_SUCH_FIB, "table"),
            FibError::TableZero => (retval::INVALID_VALUE, "table"),
            FibError::TableInUse { .. } => (retval::RSRC_IN_USE, "table"),
            FibError::NoInterface(_) => (retval::INVALID_SW_IF_INDEX, "interface"),
            FibError::Family { .. } => (retval::INVALID_ADDRESS_FAMILY, "address"),
            FibError::PrefixLen(_) => (retval::INVALID_VALUE, "prefix"),
            FibError::NoRoute => (retval::NO_SUCH_ENTRY, "prefix"),
            FibError::NoPath => (retval::NEXT_HOP_NOT_FOUND_MP, "via"),
            FibError::Empty => (retval::NO_PATHS_IN_ROUTE, "via"),
            FibError::NextHop(_) => (retval::INVALID_DST_ADDRESS, "via"),
            FibError::Alone => (retval::INVALID_ARGUMENT, "via"),
            FibError::Count(_) => (retval::INVALID_VALUE, "count"),
            FibError::HasAddresses(_) => (retval::ADDRESS_FOUND_FOR_INTERFACE, "interface"),
            FibError::PathMtu { .. } => (retval::INVALID_VALUE, "mtu"),
            FibError::NotOnLink(_) => (retval::UNIMPLEMENTED, "next-hop"),
            FibError::Full(_) => (retval::LIMIT_EXCEEDED, "fib"),
            FibError::Memory => (retval::TABLE_TOO_BIG, "memory"),
            FibError::Graph(error) => return crate::ops::graph_error(error),
        };
        let said = OpError::new(code, error.to_string()).key(key);
        match &error {
            FibError::NoTable { family, id } => {
                let ip = if *family == FamilyId::V4 { "ip" } else { "ip6" };
                said.remedy(format!("`{ip} table add {id}' makes it"))
            }
            FibError::Empty => said.remedy("name a next hop or an interface behind `via'"),
            FibError::NoRoute => said.remedy("`show ip fib' and `show ip6 fib' list routes"),
            _ => said,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use crate::testing::{Harness, host_mac};

    use crate::ops::testing::{error, run};

    /// x0 and x1 with 10.0.N.1/24 and 2001:db8:N::1/64; the neighbours 10.0.N.2 known.
    fn bed() -> Harness {
        let mut h = Harness::new();
        for n in 0..2 {
            let index = h.interface(n);
            run(&mut h.router, &format!("set interface ip address x{n} 10.0.{n}.1/24"));
            run(&mut h.router, &format!("set interface ip address x{n} 2001:db8:{n}::1/64"));
            h.router.neighbor_update(index, IpAddr::from([10, 0, n, 2]), Some(host_mac(n))).unwrap();
        }
        h
    }

    /// Load-balance and next-slot numbers are whatever they come to be.
    fn without_numbers(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = [" index:", "uRPF:", "next:", "path-list:[", "pl-index:", "uPRF-list:"]
            .iter()
            .filter_map(|key| rest.find(key).map(|at| at + key.len()))
            .min()
        {
            out.push_str(&rest[..at]);
            out.push('N');
            rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        }
        out + rest
    }

    #[test]
    fn the_whole_table_is_shown_as_vpp_shows_it() {
        let mut h = bed();
        run(&mut h.router, "ip route add 192.0.2.0/24 via 10.0.1.2 x1 weight 2 via 10.0.0.2 x0");
        run(&mut h.router, "ip route add 198.51.100.0/24 via drop");
        run(&mut h.router, "ip route add 203.0.113.7/32 via 10.0.1.9 x1");
        let text = without_numbers(&run(&mut h.router, "show ip fib"));
        let load_balance = |buckets: u32| {
            format!("  unicast-ip4-chain\n  [@0]: dpo-load-balance: [proto:ip4 index:N buckets:{buckets} uRPF:N to:[0:0]]\n")
        };
        let entry = |prefix: &str, bucket: &str| format!("{prefix}\n{}    [0] {bucket}\n", load_balance(1));
        let neighbor =
            |n: u8| format!("[@5]: ipv4 via 10.0.{n}.2 x{n}: mtu:1500 next:N flags:[] 0200000010{n:02x}02fe000000{n:02x}0800");
        let expected = [
            "ipv4-VRF:0, fib_index:0, flow hash:[src dst sport dport proto flowlabel ] epoch:0 flags:none \
             locks:[default-route:1, ]\n"
                .to_owned(),
            entry("0.0.0.0/0", "[@0]: dpo-drop ip4"),
            entry("0.0.0.0/32", "[@0]: dpo-drop ip4"),
            entry("10.0.0.0/24", "[@3]: ipv4-glean: [src:10.0.0.0/24] x0: mtu:1500 next:N flags:[] ffffffffffff02fe000000000806"),
            entry("10.0.0.0/32", "[@0]: dpo-drop ip4"),
            entry("10.0.0.1/32", "[@2]: dpo-receive: 10.0.0.1 on x0"),
            entry("10.0.0.2/32", &neighbor(0)),
            entry("10.0.0.255/32", "[@0]: dpo-drop ip4"),
            entry("10.0.1.0/24", "[@3]: ipv4-glean: [src:10.0.1.0/24] x1: mtu:1500 next:N flags:[] ffffffffffff02fe000000010806"),
            entry("10.0.1.0/32", "[@0]: dpo-drop ip4"),
            entry("10.0.1.1/32", "[@2]: dpo-receive: 10.0.1.1 on x1"),
            entry("10.0.1.2/32", &neighbor(1)),
            entry("10.0.1.255/32", "[@0]: dpo-drop ip4"),
            format!("192.0.2.0/24\n{}    [0-2] {}\n    [3-7] {}\n", load_balance(8), neighbor(0), neighbor(1)),
            entry("198.51.100.0/24", "[@0]: dpo-drop ip4"),
            entry("203.0.113.7/32", "[@4]: arp-ipv4: via 10.0.1.9 x1"),
            entry("224.0.0.0/4", "[@0]: dpo-drop ip4"),
            entry("240.0.0.0/4", "[@0]: dpo-drop ip4"),
            entry("255.255.255.255/32", "[@2]: dpo-receive:"),
        ]
        .concat();
        assert_eq!(text, expected);
    }

    #[test]
    fn an_address_is_shown_with_its_sources_and_paths() {
        let mut h = bed();
        run(&mut h.router, "ip route add 192.0.2.0/24 via 10.0.1.2 x1 weight 2 via 10.0.0.2 preference 1");
        let text = without_numbers(&run(&mut h.router, "show ip fib 192.0.2.77"));
        let (_, text) = text.split_once('\n').unwrap();
        assert_eq!(
            text,
            "192.0.2.0/24 fib:0 index:N locks:2\n  \
             CLI refs:1 src-flags:added,contributing,active,\n    \
             path-list:[N] locks:1 flags: uPRF-list:N\n      \
             path:[0] pl-index:N ip4 weight=2 pref=0 attached-nexthop:\n        10.0.1.2 x1\n      \
             path:[1] pl-index:N ip4 weight=1 pref=1 recursive:\n        via 10.0.0.2 in table 0\n \
             forwarding:   unicast-ip4-chain\n  \
             [@0]: dpo-load-balance: [proto:ip4 index:N buckets:1 uRPF:N to:[0:0]]\n    \
             [0] [@5]: ipv4 via 10.0.1.2 x1: mtu:1500 next:N flags:[] 02000000100102fe000000010800\n"
        );
        let heading = run(&mut h.router, "show ip6 fib table 0 9::9");
        assert!(heading.contains("::/0 fib:0") && heading.contains("default-route refs:1"), "{heading}");
    }

    #[test]
    fn adjacencies_have_vpp_forms() {
        let mut h = bed();
        run(&mut h.router, "ip route add 2001:db8:9::/48 via 2001:db8:1::2 x1");
        let text = run(&mut h.router, "show adj x1");
        let lines: Vec<&str> = text.lines().map(|l| l.split_once("] ").unwrap().1).collect();
        let (start, end) = lines[0].split_once(" next:").unwrap();
        assert_eq!(start, "ipv4-glean: [src:10.0.1.0/24] x1: mtu:1500");
        assert!(end.ends_with(" flags:[] ffffffffffff02fe000000010806"), "{text}");
        assert!(lines.iter().any(|l| l.starts_with("ipv4 via 10.0.1.2 x1: mtu:1500 next:")), "{text}");
        assert!(lines.contains(&"arp-ipv6: via 2001:db8:1::2 x1"), "{text}");
        assert!(run(&mut h.router, "show adj nbr").lines().all(|l| !l.contains("glean")));
        assert_eq!(run(&mut h.router, "show adj summary"), format!("Number of adjacencies: {}\n", h.router.adjacencies().len()));
        assert_eq!(run(&mut h.router, "show adj 999"), "adjacency 999 invalid\n");
    }

    #[test]
    fn every_form_of_a_path_is_taken_and_taken_back() {
        let mut h = bed();
        run(&mut h.router, "ip table add 7");
        run(&mut h.router, "ip6 table add 7");
        let before = (run(&mut h.router, "show ip fib"), run(&mut h.router, "show ip6 fib"));
        for (prefix, path) in [
            ("10.1.0.0/16", "10.0.1.2 x1"),
            ("10.1.0.0/16", "10.0.1.2"),
            ("10.1.0.0/16", "10.0.1.2 next-hop-table 7"),
            ("10.1.0.0/16", "x1"),
            ("10.1.0.0/16", "drop"),
            ("10.1.0.0/16", "local"),
            ("10.1.0.0/16", "punt"),
            ("10.1.0.0/16", "null-send-unreach"),
            ("10.1.0.0/16", "null-send-prohibit"),
            ("10.1.0.0/16", "ip4-lookup-in-table 7"),
            ("10.1.0.0/16", "lookup in table 7"),
            ("10.1.0.0/16", "ip4-lookup-in-table 7 src-lookup"),
            ("10.1.0.0/16", "rx-ip4 x1"),
            ("10.1.0.0/16", "10.0.1.2 x1 weight 3 preference 2"),
            ("10.1.0.0/16", "10.0.1.2 resolve-via-host"),
            ("10.1.0.0/16", "10.0.1.2 resolve-via-attached"),
            ("10.1.0.0/16", "10.0.1.2 x1 via 10.0.0.2 x0 via 10.0.0.3 x0"),
            ("10.1.0.1", "10.0.1.2 x1"),
            ("0.0.0.0/0", "10.0.1.2 x1"),
            ("2001:db8:9::/48", "2001:db8:1::2 x1"),
            ("2001:db8:9::/48", "fe80::2 x1"),
            ("2001:db8:9::/48", "ip6-lookup-in-table 7"),
            ("2001:db8:9::/48", "lookup in table 7 src-lookup"),
            ("2001:db8:9::/48", "rx-ip6 x1"),
            ("::/0", "2001:db8:1::2"),
        ] {
            for line in [format!("ip route add {prefix} via {path}"), format!("ip route del {prefix} via {path}")] {
                assert_eq!(run(&mut h.router, &line), "", "{line}");
            }
            run(&mut h.router, &format!("ip route {prefix} via {path}"));
            run(&mut h.router, &format!("ip route del {prefix}"));
        }
        assert_eq!((run(&mut h.router, "show ip fib"), run(&mut h.router, "show ip6 fib")), before);
    }

    #[test]
    fn adding_a_path_to_a_route_and_taking_it_away_again() {
        let mut h = bed();
        run(&mut h.router, "ip route add 192.0.2.0/24 via 10.0.0.2 x0");
        run(&mut h.router, "ip route add 192.0.2.0/24 via 10.0.1.2 x1");
        assert!(run(&mut h.router, "show ip fib 192.0.2.0/24").contains("buckets:2"));
        run(&mut h.router, "ip route del 192.0.2.0/24 via 10.0.0.2 x0");
        let text = run(&mut h.router, "show ip fib 192.0.2.0/24");
        assert!(text.contains("buckets:1") && text.contains("ipv4 via 10.0.1.2"), "{text}");
        run(&mut h.router, "ip route del 192.0.2.0/24 via 10.0.1.2 x1");
        assert!(error(&mut h.router, "ip route del 192.0.2.0/24").contains("no such route"));
    }

    #[test]
    fn many_prefixes_in_a_row_are_counted_and_timed() {
        let mut h = bed();
        let text = run(&mut h.router, "ip route add count 100000 16.0.0.0/24 via 10.0.1.2 x1");
        let rate = text.strip_suffix(" routes/sec\n").unwrap();
        assert!(rate.parse::<f64>().unwrap() > 1000.0 && rate.contains('e'), "{text}");
        assert!(run(&mut h.router, "show ip fib summary").contains("                  24          100002\n"));
        run(&mut h.router, "ip route del count 100000 16.0.0.0/24 via 10.0.1.2 x1");
        assert!(run(&mut h.router, "show ip fib summary").contains("                  24               2\n"));
    }

    #[test]
    fn a_wrong_route_is_one_line_and_changes_nothing() {
        let mut h = bed();
        let before = run(&mut h.router, "show ip fib");
        for (line, expected) in [
            ("ip route add 10.1.0.0/33 via drop", "Invalid prefix len: 33"),
            ("ip route add 10.1.0.0/16 table 9 via drop", "Nonexistent table id 9"),
            ("ip route add 10.1.0.0/16 via 10.0.0.2 next-hop-table 9", "Nonexistent table id 9"),
            ("ip route add 10.1.0.0/16 via 10.0.0.2 x7", "x7"),
            ("ip route add 10.1.0.0/16 via blackhole", "blackhole"),
            ("ip route add 10.1.0.0/16 via 224.0.0.1 x0", "cannot be a next hop"),
            ("ip route add 10.1.0.0/16 via drop via 10.0.0.2", "only one path"),
            ("ip route add 10.1.0.0/16", "at least one path"),
            ("ip route add count 10 10.1.0.0/16", "at least one path"),
            ("ip route add via drop", "prefix"),
            ("ip route add 10.1.0.0/16 via drop weight 0", "invalid weight `0'; expected 1 to 255"),
            ("ip route add 10.1.0.0/16 via drop weight 4000000000", "invalid weight `4000000000'; expected 1 to 255"),
            ("ip route add count 3 255.255.254.0/24 via drop", "address space ends"),
            ("ip route del 10.1.0.0/16 via drop", "no such route"),
            ("ip route del 10.0.0.0/24", "no such route"),
            ("ip route add 10.1.0.0/16 via drop nonsense", "nonsense"),
            ("show ip fib table 9", "Nonexistent table id 9"),
            ("show ip fib 2001:db8::1", "not an ipv4 address"),
        ] {
            let error = error(&mut h.router, line);
            assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
        }
        assert_eq!(run(&mut h.router, "show ip fib"), before);
    }
}
