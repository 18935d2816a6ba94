//! Instructions that an interface costs the main thread: to be made, addressed and deleted, beside few and beside many others.
//!
//! An operation beside many interfaces that costs more than twice as much as beside few looks at all of them, or copies them, for each change.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::interface::{SubMatch, VlanId};
use quiver_net::testing::Harness;

use crate::callgrind;

/// Option of the program that runs under callgrind.
pub const PASS: &str = "--interfaces-pass";
const MANY_OPTION: &str = "--many";
/// Interfaces of each sort beside which the operations run.
const FEW: u32 = 100;
const MANY: u32 = 9_000;
/// A VLAN parent has no more sub-interfaces than there are VLAN ids.
const MANY_SUBS: u32 = 4_000;
/// Interfaces that are made, addressed and deleted, and counted.
const COUNTED: u32 = 32;
/// How much more an operation may cost beside many.
const MOST: f64 = 2.0;
/// What is counted, by the names of the functions here.
const OPERATIONS: [&str; 9] =
    ["loop_created", "loop_up", "loop_ip4", "loop_ip6", "loop_deleted", "sub_created", "sub_up", "sub_ip4", "sub_deleted"];

/// Prints the table, and with `functions` those that cost more beside many.
///
/// # Errors
/// With `check`: an operation beside many costs too much. No profile could be had.
pub fn run(check: bool, functions: bool) -> Result<(), String> {
    let worst = table(functions)?;
    if check && worst > MOST {
        return Err(format!("an operation beside many interfaces costs {worst:.1} times as much, at most {MOST} was to be"));
    }
    Ok(())
}

/// Prints the table; the largest ratio.
fn table(functions: bool) -> Result<f64, String> {
    let mut worst: f64 = 0.0;
    println!("# instructions an operation, beside {FEW} and beside {MANY} ({MANY_SUBS} sub-interfaces)");
    for sort in ["loops", "subs"] {
        let few = profile(sort, false)?;
        let many = profile(sort, true)?;
        for operation in OPERATIONS {
            let cost = |profile: &Profile| {
                let found = profile.iter().find(|(name, _)| name.ends_with(&format!("::{operation}")));
                found.map(|(_, function)| function.inclusive() as f64 / f64::from(COUNTED))
            };
            let (Some(small), Some(large)) = (cost(&few), cost(&many)) else { continue };
            worst = worst.max(large / small);
            println!("{operation:<14} {small:10.0} {large:12.0} {:6.2}", large / small);
        }
        if functions {
            grown(&few, &many);
        }
    }
    Ok(worst)
}

type Profile = BTreeMap<String, callgrind::Function>;

/// Functions that cost most more beside many than beside few.
fn grown(few: &Profile, many: &Profile) {
    let own = |profile: &Profile, name: &str| profile.get(name).map_or(0, |function| function.own);
    let mut all: Vec<(u64, &String)> =
        many.keys().map(|name| (own(many, name).saturating_sub(own(few, name)) / u64::from(COUNTED), name)).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    for (more, name) in all.iter().take(30) {
        println!("    {more:10} {name}");
    }
}

fn profile(sort: &str, many: bool) -> Result<Profile, String> {
    let options: Vec<&str> = [PASS, sort].into_iter().chain(many.then_some(MANY_OPTION)).collect();
    callgrind::profile("--toggle-collect=*interfaces::measured*", &[], &options, "Ir")
}

/// What runs under callgrind, by the options after `PASS`: it collects within `measured` alone.
pub fn pass(options: &[String]) {
    let subs = options.first().is_some_and(|word| word == "subs");
    let many = options.iter().any(|word| word == MANY_OPTION);
    let mut harness = Harness::new();
    let router = &mut harness.router;
    let parent = router.create_loopback(None, None).expect("a parent");
    let population = match (many, subs) {
        (false, _) => FEW,
        (true, false) => MANY,
        (true, true) => MANY_SUBS,
    };
    if subs {
        let made = operations::sub_created(router, parent, 1..population);
        operations::sub_up(router, &made);
        operations::sub_ip4(router, &made, 1);
        measured(router, |router| {
            let made = operations::sub_created(router, parent, population..population + COUNTED);
            operations::sub_up(router, &made);
            operations::sub_ip4(router, &made, population);
            operations::sub_deleted(router, &made);
        });
    } else {
        let made = operations::loop_created(router, population);
        operations::loop_up(router, &made);
        operations::loop_ip4(router, &made, 1);
        operations::loop_ip6(router, &made, 1);
        measured(router, |router| {
            let made = operations::loop_created(router, COUNTED);
            operations::loop_up(router, &made);
            operations::loop_ip4(router, &made, population + 1);
            operations::loop_ip6(router, &made, population + 1);
            operations::loop_deleted(router, &made);
        });
    }
}

#[inline(never)]
fn measured(router: &mut Router, work: impl FnOnce(&mut Router)) {
    work(router);
}

/// Each is a function that stays one, and differs from the others, so that the profile tells it.
mod operations {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    pub fn loop_created(router: &mut Router, count: u32) -> Vec<IfIndex> {
        black_box("loop_created");
        (0..count).map(|_| router.create_loopback(None, None).expect("a loopback")).collect()
    }

    #[inline(never)]
    pub fn loop_up(router: &mut Router, all: &[IfIndex]) {
        black_box("loop_up");
        all.iter().for_each(|index| router.set_interface_up(*index, true).expect("up"));
    }

    #[inline(never)]
    pub fn loop_ip4(router: &mut Router, all: &[IfIndex], first: u32) {
        black_box("loop_ip4");
        add(router, all, first, |n| (Ipv4Addr::from_bits(10 << 24 | n << 8 | 1).into(), 24));
    }

    #[inline(never)]
    pub fn loop_ip6(router: &mut Router, all: &[IfIndex], first: u32) {
        black_box("loop_ip6");
        add(router, all, first, |n| (Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n) << 64 | 1).into(), 64));
    }

    #[inline(never)]
    pub fn loop_deleted(router: &mut Router, all: &[IfIndex]) {
        black_box("loop_deleted");
        delete(router, all);
    }

    #[inline(never)]
    pub fn sub_created(router: &mut Router, parent: IfIndex, ids: std::ops::Range<u32>) -> Vec<IfIndex> {
        black_box("sub_created");
        let vlan = |id: u32| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(id as u16), inner: None, exact: true };
        ids.map(|id| router.create_sub_interface(parent, id, vlan(id)).expect("a sub-interface")).collect()
    }

    #[inline(never)]
    pub fn sub_up(router: &mut Router, all: &[IfIndex]) {
        black_box("sub_up");
        all.iter().for_each(|index| router.set_interface_up(*index, true).expect("up"));
    }

    #[inline(never)]
    pub fn sub_ip4(router: &mut Router, all: &[IfIndex], first: u32) {
        black_box("sub_ip4");
        add(router, all, first, |n| (Ipv4Addr::from_bits(20 << 24 | n << 8 | 1).into(), 24));
    }

    #[inline(never)]
    pub fn sub_deleted(router: &mut Router, all: &[IfIndex]) {
        black_box("sub_deleted");
        delete(router, all);
    }

    fn add(router: &mut Router, all: &[IfIndex], first: u32, address: impl Fn(u32) -> (IpAddr, u8)) {
        for (n, index) in (first..).zip(all) {
            let (address, len) = address(n);
            router.add_address(*index, address, len).expect("an address");
        }
    }

    fn delete(router: &mut Router, all: &[IfIndex]) {
        all.iter().for_each(|index| router.delete_interface(*index).expect("deleted"));
    }
}
