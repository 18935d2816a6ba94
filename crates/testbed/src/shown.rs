//! What `show runtime` and `show interface` print, read back. VPP's text and Quiver's have the same columns, so one reader does for both.

/// A row of `show runtime`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    /// The node's name.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Packets.
    pub vectors: u64,
    /// Ticks of the time-stamp counter for each packet; for each call or suspension where there are no packets.
    pub clocks: f64,
}

/// The nodes of a `show runtime`, of all threads that it shows.
pub fn nodes(runtime: &str) -> Vec<NodeRow> {
    runtime.lines().filter_map(node).collect()
}

/// Name, state of one or two words, calls, vectors, suspends, clocks, vectors a call.
fn node(line: &str) -> Option<NodeRow> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (head, numbers) = words.split_at_checked(words.len().checked_sub(5)?)?;
    let (name, [calls, vectors, suspends, clocks, _]) = (*head.first()?, <[&str; 5]>::try_from(numbers).ok()?);
    suspends.parse::<u64>().ok()?;
    Some(NodeRow {
        name: name.to_owned(),
        calls: calls.parse().ok()?,
        vectors: vectors.parse().ok()?,
        clocks: clocks.parse().ok()?,
    })
}

/// A counter in the text of `show interface`; 0 where it is not shown, as both routers leave out what is 0.
pub fn counter(interfaces: &str, interface: &str, counter: &str) -> u64 {
    let mut here = false;
    for line in interfaces.lines() {
        let mut rest = line;
        if !line.starts_with(' ') {
            here = line.split_whitespace().next() == Some(interface);
            // Behind name, number, state and MTU.
            rest = (0..4).fold(line, |rest, _| rest.trim_start().split_once(' ').map_or("", |(_, rest)| rest));
        }
        let value = rest.trim().strip_prefix(counter).and_then(|value| value.trim().parse().ok());
        if let Some(value) = value.filter(|_| here) {
            return value;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const VPP: &str = "\
Time 1.0, 10 sec internal node vector rate 256.00 loops/sec 12345.00
  vector rates in 5.0000e6, out 5.0000e6, drop 0.0000e0, punt 0.0000e0
             Name                 State         Calls          Vectors        Suspends      Packet-Clocks   Vectors/Call
ethernet-input                   active             19743         5054208               0          8.61e0          256.00
fib-walk                        any wait                0               0               1          6.18e3            0.00
a-node-with-a-name-of-forty-letters-and-aactive             19743         5054208               0          1.05e1          256.00
ip6-mld-process                 any wait                0               0               2          2.10e3            0.00
    events pending,
pg-input                         polling            19743         5054208               0          1.30e2          256.00
unix-epoll-input                 polling               20               0               0          5.05e4            0.00
";

    #[test]
    fn rows_of_runtime_are_read_and_nothing_else() {
        let rows = nodes(VPP);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names[..2], ["ethernet-input", "fib-walk"]);
        assert_eq!(names[3..], ["ip6-mld-process", "pg-input", "unix-epoll-input"]);
        assert_eq!(rows[0], NodeRow { name: "ethernet-input".into(), calls: 19_743, vectors: 5_054_208, clocks: 8.61 });
        assert_eq!(rows[1].vectors, 0);
        // A name that fills its column runs into the state; the numbers are right all the same.
        assert_eq!((rows[2].vectors, rows[2].clocks), (5_054_208, 10.5));
    }

    #[test]
    fn counters_are_of_the_interface_that_is_asked_for() {
        let text = "\
              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count
local0                            0     down          0/0/0/0
pg0                               1      up          9000/0/0/0     rx packets               4224256
                                                                    rx bytes               287249408
                                                                    drops                          2
pg0.10                            3      up          9000/0/0/0     rx packets                     7
pg1                               2      up          9000/0/0/0     tx packets               4224258
                                                                    tx bytes               270352476
";
        assert_eq!(counter(text, "pg0", "rx packets"), 4_224_256);
        assert_eq!(counter(text, "pg0", "drops"), 2);
        assert_eq!(counter(text, "pg0.10", "rx packets"), 7);
        assert_eq!(counter(text, "pg1", "tx bytes"), 270_352_476);
        assert_eq!(
            (counter(text, "pg1", "rx packets"), counter(text, "local0", "drops"), counter(text, "pg9", "drops")),
            (0, 0, 0)
        );
    }
}
