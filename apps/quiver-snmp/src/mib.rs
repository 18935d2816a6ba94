//! The groups of IF-MIB (RFC 2863) that are served, and how a name leads to a value.
//!
//! ```text
//!   1.3.6.1.2.1.2.1.0          ifNumber
//!   1.3.6.1.2.1.2.2.1.C.I      ifTable       column C of interface I
//!   1.3.6.1.2.1.31.1.1.1.C.I   ifXTable
//!   1.3.6.1.2.1.31.1.2.1.3.H.L ifStackTable  H runs on top of L
//!   1.3.6.1.2.1.31.1.5.0       ifTableLastChange
//!   1.3.6.1.2.1.31.1.6.0       ifStackLastChange
//! ```
//!
//! Values are made when they are asked for: with 4,000 interfaces there are 156,000 of them. Columns that RFC 2863 deprecates are left out, and
//! ifTestTable and ifRcvAddressTable, which it lets an agent leave out (RFC 2863, 4: ifCompliance3).

use std::collections::HashSet;

use quiver_agentx::{Bind, Oid, Range, Value};

use crate::interface::Interface;

/// `interfaces`.
const INTERFACES: [u32; 7] = [1, 3, 6, 1, 2, 1, 2];
/// `ifMIBObjects`.
const OBJECTS: [u32; 8] = [1, 3, 6, 1, 2, 1, 31, 1];
/// `snmpTraps` (RFC 3418): the standard notifications.
const TRAPS: [u32; 9] = [1, 3, 6, 1, 6, 3, 1, 1, 5];
/// `snmpTrapOID.0`, the first variable of a notification.
const TRAP_OID: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

/// `true` and `false` of TruthValue (RFC 2579).
const fn truth(value: bool) -> Value {
    Value::Integer(if value { 1 } else { 2 })
}

/// A column: its number, and the value for an interface.
type Column = (u32, fn(&Interface) -> Value);

/// The low half, as 32-bit counters show it.
const fn low(value: u64) -> u32 {
    value as u32
}

fn counter32(value: u64) -> Value {
    Value::Counter32(low(value))
}

/// Columns of ifTable.
const IF_TABLE: &[Column] = &[
    (1, |i| Value::Integer(i.index.cast_signed())),
    (2, |i| Value::Octets(i.name.clone().into_bytes())),
    (3, |i| Value::Integer(i.kind)),
    (4, |i| Value::Integer(i32::try_from(i.mtu).unwrap_or(i32::MAX))),
    (5, |i| Value::Gauge32(u32::try_from(i.speed_bps).unwrap_or(u32::MAX))),
    (6, |i| Value::Octets(i.mac.to_vec())),
    (7, |i| Value::Integer(if i.is_admin_up { 1 } else { 2 })),
    (8, |i| Value::Integer(i.oper as i32)),
    (9, |i| Value::TimeTicks(i.last_change)),
    (10, |i| counter32(i.counters.rx.bytes)),
    (11, |i| counter32(i.counters.rx_unicast)),
    (13, |i| counter32(i.counters.rx_discards)),
    (14, |i| counter32(i.counters.rx_errors)),
    (15, |_| Value::Counter32(0)),
    (16, |i| counter32(i.counters.tx.bytes)),
    (17, |i| counter32(i.counters.tx_unicast)),
    (19, |_| Value::Counter32(0)),
    (20, |i| counter32(i.counters.tx_errors)),
];

/// Columns of ifXTable.
const IF_X_TABLE: &[Column] = &[
    (1, |i| Value::Octets(i.name.clone().into_bytes())),
    (2, |i| counter32(i.counters.rx_multicast)),
    (3, |i| counter32(i.counters.rx_broadcast)),
    (4, |i| counter32(i.counters.tx_multicast)),
    (5, |i| counter32(i.counters.tx_broadcast)),
    (6, |i| Value::Counter64(i.counters.rx.bytes)),
    (7, |i| Value::Counter64(i.counters.rx_unicast)),
    (8, |i| Value::Counter64(i.counters.rx_multicast)),
    (9, |i| Value::Counter64(i.counters.rx_broadcast)),
    (10, |i| Value::Counter64(i.counters.tx.bytes)),
    (11, |i| Value::Counter64(i.counters.tx_unicast)),
    (12, |i| Value::Counter64(i.counters.tx_multicast)),
    (13, |i| Value::Counter64(i.counters.tx_broadcast)),
    // ifLinkUpDownTrapEnable: enabled(1) for what runs on top of nothing, as RFC 2863, 3.1.9, has it.
    (14, |i| Value::Integer(if i.parent.is_none() { 1 } else { 2 })),
    // Rounded to the next Mbit/s.
    (15, |i| Value::Gauge32(u32::try_from((i.speed_bps + 500_000) / 1_000_000).unwrap_or(u32::MAX))),
    // ifPromiscuousMode: the router's API does not say it.
    (16, |_| truth(false)),
    (17, |i| truth(i.has_connector)),
    (18, |i| Value::Octets(i.alias.clone().into_bytes())),
    (19, |i| Value::TimeTicks(i.discontinuity)),
];

/// What stands below a prefix.
enum Objects {
    /// One value, `.0`.
    Scalar(fn(&Mib) -> Value),
    /// A value for each interface.
    Column(fn(&Interface) -> Value),
    /// A value for each pair of interfaces.
    Stack,
}

/// Interfaces at a moment.
#[derive(Default)]
pub struct Mib {
    /// By index.
    interfaces: Vec<Interface>,
    /// Upper and lower, in order.
    stack: Vec<[u32; 2]>,
    table_change: u32,
    stack_change: u32,
}

/// The regions to be registered.
pub fn regions() -> Vec<Oid> {
    let objects = [&[1][..], &[2], &[5], &[6]].map(|parts| Oid::with(&OBJECTS, parts));
    [Oid::with(&INTERFACES, &[1]), Oid::with(&INTERFACES, &[2])].into_iter().chain(objects).collect()
}

/// All objects in their order.
fn objects() -> impl Iterator<Item = (Oid, Objects)> {
    let column = |prefix: &'static [u32], table: &'static [u32]| {
        move |(number, value): &Column| (Oid::with(prefix, &[table, &[*number]].concat()), Objects::Column(*value))
    };
    let number = |mib: &Mib| Value::Integer(i32::try_from(mib.interfaces.len()).unwrap_or(i32::MAX));
    std::iter::once((Oid::with(&INTERFACES, &[1]), Objects::Scalar(number)))
        .chain(IF_TABLE.iter().map(column(&INTERFACES, &[2, 1])))
        .chain(IF_X_TABLE.iter().map(column(&OBJECTS, &[1, 1])))
        .chain([
            (Oid::with(&OBJECTS, &[2, 1, 3]), Objects::Stack),
            (Oid::with(&OBJECTS, &[5]), Objects::Scalar(|mib| Value::TimeTicks(mib.table_change))),
            (Oid::with(&OBJECTS, &[6]), Objects::Scalar(|mib| Value::TimeTicks(mib.stack_change))),
        ])
}

impl Mib {
    /// Takes what the router has now; `now` is `sysUpTime`, for changes of the tables.
    pub fn replace(&mut self, interfaces: Vec<Interface>, now: u32) {
        let lower: HashSet<u32> = interfaces.iter().filter_map(|interface| interface.parent).collect();
        let mut stack = Vec::new();
        for interface in &interfaces {
            let has_upper = lower.contains(&interface.index);
            // 0 stands for nothing above or below (RFC 2863, 3.1.1).
            stack.extend((!has_upper).then_some([0, interface.index]));
            stack.push([interface.index, interface.parent.unwrap_or(0)]);
        }
        stack.sort_unstable();
        if !interfaces.iter().map(|i| i.index).eq(self.interfaces.iter().map(|i| i.index)) {
            self.table_change = now;
        }
        if stack != self.stack {
            self.stack_change = now;
        }
        (self.interfaces, self.stack) = (interfaces, stack);
    }

    /// Takes what there is as having been there before the master agent was.
    pub fn forget_times(&mut self) {
        self.interfaces.iter_mut().for_each(|row| (row.last_change, row.discontinuity) = (0, 0));
        (self.table_change, self.stack_change) = (0, 0);
    }

    /// The value of a variable.
    pub fn get(&self, name: &Oid) -> Value {
        for (prefix, objects) in objects() {
            let Some(instance) = name.parts().strip_prefix(prefix.parts()) else { continue };
            let value = match (objects, instance) {
                (Objects::Scalar(value), [0]) => Some(value(self)),
                (Objects::Column(value), [index]) => {
                    let place = self.interfaces.binary_search_by_key(index, |interface| interface.index);
                    place.ok().map(|place| value(&self.interfaces[place]))
                }
                (Objects::Stack, [upper, lower]) => {
                    self.stack.binary_search(&[*upper, *lower]).is_ok().then_some(Value::Integer(1))
                }
                _ => None,
            };
            return value.unwrap_or(Value::NoSuchInstance);
        }
        Value::NoSuchObject
    }

    /// The first variable in a range, or what says that there is none.
    pub fn next(&self, range: &Range) -> Bind {
        let inside = |name: &Oid| range.end.is_null() || *name < range.end;
        for (prefix, objects) in objects() {
            // The instances of an object lie between it and what follows; those before the start are passed over as a whole.
            let from = match range.start.parts().strip_prefix(prefix.parts()) {
                Some(instance) => instance,
                None if prefix < range.start => continue,
                None => &[],
            };
            // Instances have a fixed length, so one that is equal to the start is the start itself.
            let is_before = |instance: &[u32]| instance < from || (instance == from && !range.include);
            let found = match objects {
                Objects::Scalar(value) => (!is_before(&[0])).then(|| (Oid::with(prefix.parts(), &[0]), value(self))),
                Objects::Column(value) => {
                    let place = self.interfaces.partition_point(|interface| is_before(&[interface.index]));
                    let interface = self.interfaces.get(place);
                    interface.map(|interface| (Oid::with(prefix.parts(), &[interface.index]), value(interface)))
                }
                Objects::Stack => {
                    let place = self.stack.partition_point(|pair| is_before(pair));
                    self.stack.get(place).map(|pair| (Oid::with(prefix.parts(), pair), Value::Integer(1)))
                }
            };
            if let Some((name, value)) = found {
                return if inside(&name) { Bind { name, value } } else { none(range) };
            }
        }
        none(range)
    }

    /// What a notification says of an interface whose link goes up or down (RFC 2863, 6).
    pub fn link_notification(interface: &Interface) -> Vec<Bind> {
        let trap = if interface.is_up() { 4 } else { 3 };
        let column = |number: u32, value| Bind { name: Oid::with(&INTERFACES, &[2, 1, number, interface.index]), value };
        let value_of = |number: u32| {
            IF_TABLE.iter().find(|(column, _)| *column == number).map_or(Value::NoSuchObject, |(_, value)| value(interface))
        };
        let trap = Bind { name: Oid::new(&TRAP_OID), value: Value::Oid(Oid::with(&TRAPS, &[trap])) };
        std::iter::once(trap).chain([1, 7, 8].map(|number| column(number, value_of(number)))).collect()
    }
}

fn none(range: &Range) -> Bind {
    Bind { name: range.start.clone(), value: Value::EndOfMibView }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Oper;

    fn interface(index: u32, parent: Option<u32>) -> Interface {
        let mut interface = Interface { index, name: format!("eth{index}"), parent, ..Interface::default() };
        interface.counters.rx.bytes = (1 << 32) + u64::from(index);
        interface
    }

    fn mib() -> Mib {
        let mut mib = Mib::default();
        mib.replace(vec![interface(1, None), interface(2, None), interface(7, Some(2))], 100);
        mib
    }

    fn walk(mib: &Mib, start: &[u32]) -> Vec<Bind> {
        let mut range = Range { start: Oid::new(start), include: false, end: Oid::default() };
        let mut all = Vec::new();
        loop {
            let bind = mib.next(&range);
            if bind.value == Value::EndOfMibView {
                assert_eq!(bind.name, range.start);
                return all;
            }
            range.start = bind.name.clone();
            all.push(bind);
        }
    }

    #[test]
    fn a_walk_meets_every_variable_once_in_order_and_get_says_the_same() {
        let mib = mib();
        let all = walk(&mib, &[1, 3]);
        assert!(all.is_sorted_by(|one, other| one.name < other.name));
        // ifNumber, the columns, two changes; three interfaces have a row below them, two one above.
        assert_eq!(all.len(), 3 + 3 * (IF_TABLE.len() + IF_X_TABLE.len()) + 5);
        for bind in &all {
            assert_eq!(mib.get(&bind.name), bind.value, "{}", bind.name);
            let included = Range { start: bind.name.clone(), include: true, end: Oid::default() };
            assert_eq!(mib.next(&included), *bind);
        }
        let regions = regions();
        assert!(all.iter().all(|bind| regions.iter().any(|region| bind.name.parts().starts_with(region.parts()))));
    }

    #[test]
    fn ranges_end_before_their_end() {
        let mib = mib();
        let end = Oid::with(&INTERFACES, &[2, 1, 2]);
        let range = |start: &[u32]| Range { start: Oid::with(&INTERFACES, start), include: false, end: end.clone() };
        assert_eq!(mib.next(&range(&[2, 1, 1, 2])).name, Oid::with(&INTERFACES, &[2, 1, 1, 7]));
        assert_eq!(mib.next(&range(&[2, 1, 1, 7])).value, Value::EndOfMibView);
        // Instances that there are not lie between others.
        assert_eq!(mib.next(&range(&[2, 1, 1, 2, 5])).name, Oid::with(&INTERFACES, &[2, 1, 1, 7]));
        assert_eq!(mib.next(&range(&[2])).name, Oid::with(&INTERFACES, &[2, 1, 1, 1]));
    }

    #[test]
    fn what_there_is_not_is_told_apart() {
        let mib = mib();
        assert_eq!(mib.get(&Oid::with(&INTERFACES, &[2, 1, 1, 3])), Value::NoSuchInstance);
        assert_eq!(mib.get(&Oid::with(&INTERFACES, &[2, 1, 1])), Value::NoSuchInstance);
        assert_eq!(mib.get(&Oid::with(&INTERFACES, &[2, 1, 12, 1])), Value::NoSuchObject);
        assert_eq!(mib.get(&Oid::default()), Value::NoSuchObject);
    }

    #[test]
    fn counters_have_a_low_half_and_a_whole() {
        let mib = mib();
        assert_eq!(mib.get(&Oid::with(&INTERFACES, &[2, 1, 10, 7])), Value::Counter32(7));
        assert_eq!(mib.get(&Oid::with(&OBJECTS, &[1, 1, 6, 7])), Value::Counter64((1 << 32) + 7));
    }

    #[test]
    fn the_stack_has_rows_above_and_below() {
        assert_eq!(mib().stack, [[0, 1], [0, 7], [1, 0], [2, 0], [7, 2]]);
        let mut mib = mib();
        mib.replace(vec![interface(1, None), interface(2, None), interface(7, Some(2))], 200);
        assert_eq!((mib.table_change, mib.stack_change), (100, 100));
        mib.replace(vec![interface(1, None)], 300);
        assert_eq!((mib.table_change, mib.stack_change), (300, 300));
    }

    #[test]
    fn a_notification_names_the_interface_and_its_states() {
        let mut one = interface(7, None);
        (one.is_admin_up, one.oper) = (true, Oper::Up);
        let binds = Mib::link_notification(&one);
        let shown: Vec<_> = binds.iter().map(|bind| bind.name.to_string()).collect();
        let expected = ["1.3.6.1.6.3.1.1.4.1.0", "1.3.6.1.2.1.2.2.1.1.7", "1.3.6.1.2.1.2.2.1.7.7", "1.3.6.1.2.1.2.2.1.8.7"];
        assert_eq!(shown, expected);
        assert_eq!(binds[0].value, Value::Oid(Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 5, 4])));
        one.oper = Oper::Down;
        assert_eq!(Mib::link_notification(&one)[0].value, Value::Oid(Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 5, 3])));
    }
}
