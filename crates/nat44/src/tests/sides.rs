//! Interfaces on both sides, packets that pass untranslated, protocols without ports, connections that begin in their midst.

use super::*;

#[test]
fn a_pool_makes_the_table_that_it_is_for() {
    let mut bed = Bed::usual(0);
    assert!(error(&mut bed.h, "nat44 add address 198.51.100.10 tenant-vrf 9").contains("198.51.100.10"));
    assert!(!run(&mut bed.h, "show ip table").contains("table_id:9"), "what is refused makes none");
    run(&mut bed.h, "nat44 add address 198.51.100.13 tenant-vrf 9");
    assert!(run(&mut bed.h, "show ip table").contains("table_id:9"));
}
