//! Tables against a linear scan.

use super::*;
use crate::model::{Fib, Model, Op, best, run};
use crate::synth::Random;
use proptest::prelude::*;

/// Prefixes that nest and touch: few base addresses, all lengths.
fn ops<A: Address>(bases: Vec<A>) -> impl Strategy<Value = Vec<Op<A>>> {
    let prefix = (prop::sample::select(bases), 0..=A::BITS);
    let op = prop_oneof![
        6 => (prefix.clone(), 1u32..5).prop_map(|((p, len), leaf)| Op::Insert(p, len, leaf)),
        3 => prefix.prop_map(|(p, len)| Op::Remove(p, len)),
        1 => Just(Op::Batch),
    ];
    prop::collection::vec(op, 1..60)
}

fn bases4() -> Vec<u32> {
    vec![0, 0x0a00_0000, 0x0a00_0001, 0x0a00_00ff, 0x0a00_8000, 0x0aff_ffff, 0xffff_ffff, 0x8000_0000]
}

fn bases6() -> Vec<u128> {
    let doc = 0x2001_0db8u128 << 96;
    vec![0, doc, doc | 1, doc | 3, doc | 0xffff, doc | 1 << 64, doc | 1 << 80, u128::MAX, 0x2001 << 112, 1 << 127]
}

/// Prefixes that end where the first two levels of an IPv6 table do, and beside them.
fn short_ops6() -> impl Strategy<Value = Vec<Op<u128>>> {
    let base = prop::sample::select(vec![0u128, 0x2001, 0x2001_0100, 0x2001_01ff, 0x2001_ff00, 0x2002, 0x20ff_ffff]);
    let prefix = (base, 13u8..=31).prop_map(|(base, len)| (if base > 0xffff { base << 96 } else { base << 112 }, len));
    let op = prop_oneof![
        6 => (prefix.clone(), 1u32..3).prop_map(|((p, len), leaf)| Op::Insert(p, len, leaf)),
        5 => prefix.prop_map(|(p, len)| Op::Remove(p, len)),
        1 => Just(Op::Batch),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn dir_24_8_agrees_with_a_scan(ops in ops(bases4())) {
        run(&mut Fib4::new(lpm4::Kind::Dir24, &Domain::new()).unwrap(), &ops);
    }
    #[test]
    fn trie_16_8_8_agrees_with_a_scan(ops in ops(bases4())) {
        run(&mut Fib4::new(lpm4::Kind::Trie16, &Domain::new()).unwrap(), &ops);
    }
    #[test]
    fn poptrie_agrees_with_a_scan(ops in ops(bases6())) {
        run(&mut Fib6::new(&Domain::new()).unwrap(), &ops);
    }
    #[test]
    fn the_first_levels_of_a_poptrie_agree_with_a_scan(ops in short_ops6()) {
        run(&mut Fib6::new(&Domain::new()).unwrap(), &ops);
    }
}

/// So many copies. All of them are asked for on node 0, which every machine has; whether it is granted makes no difference to
/// them.
fn with_copies(n: usize) -> Options {
    Options { nodes: vec![0; n], ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn copies_of_ipv4_tables_agree_with_a_scan(ops in ops(bases4()), copies in 1usize..4) {
        for kind in [lpm4::Kind::Dir24, lpm4::Kind::Trie16] {
            run(&mut Fib4::with_options(kind, &Domain::new(), with_copies(copies)).unwrap(), &ops);
        }
    }
    #[test]
    fn copies_of_ipv6_tables_agree_with_a_scan(ops in ops(bases6()), copies in 1usize..4) {
        run(&mut Fib6::with_options(&Domain::new(), with_copies(copies)).unwrap(), &ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Long prefixes far from one another, below one another and beside one another, and the addresses that leave their ways at any bit.
    #[test]
    fn ways_lead_to_their_prefixes_and_nowhere_else(
        seed: u64, steps in prop::collection::vec((0u32..4, 0u8..=128, 1u32..4, prop::bool::weighted(0.7)), 1..24), batch: bool,
    ) {
        let mut random = Random::new(seed);
        let mut any = || u128::from(random.bits()) << 64 | u128::from(random.bits());
        // Few beginnings, so that some of them meet; the rest of each is its own.
        let bases: Vec<u128> = (0..4).map(|k| any() >> 30 | 1 << 127 | (k / 2) << 80).collect();
        let (mut fib, mut model) = (Fib6::new(&Domain::new()).unwrap(), Model::new());
        for chunk in steps.chunks(5) {
            if batch {
                fib.begin();
            }
            for &(base, len, leaf, insert) in chunk {
                let p = bases[base as usize].first(len);
                if insert {
                    fib.insert(p, len, leaf).unwrap();
                    model.insert((p, len), leaf);
                } else {
                    assert_eq!(fib.remove(p, len).unwrap(), model.remove(&(p, len)));
                }
            }
            if batch {
                fib.commit();
            }
            let flips = bases.iter().flat_map(|b| (0..128).map(move |bit| b ^ 1 << bit)).chain(bases.iter().copied());
            let addrs: Vec<u128> = flips.collect();
            let (single, grouped) = Fib::lookups(&fib, &addrs);
            // Each address eight times: a group that stays together.
            let (_, together) = Fib::lookups(&fib, &addrs.iter().flat_map(|addr| [*addr; 8]).collect::<Vec<_>>());
            for (k, addr) in addrs.iter().enumerate() {
                let want = best(&model, *addr);
                assert_eq!((single[k], grouped[k]), (want, want), "{addr:x} of {model:x?}");
                assert_eq!(together[k * 8..k * 8 + 8], [want; 8], "{addr:x} of {model:x?}");
            }
        }
    }
}

#[test]
fn bad_arguments_are_refused_with_their_reason() {
    let d = Domain::new();
    let mut f = Fib4::new(lpm4::Kind::Trie16, &d).unwrap();
    assert_eq!(f.insert(0, 33, 1), Err(TableError::PrefixLength { len: 33, bits: 32 }));
    assert_eq!((f.insert(0, 8, 0), f.insert(0, 8, 1 << 30)), (Err(TableError::Leaf(0)), Err(TableError::Leaf(1 << 30))));
    assert_eq!((f.remove(0, 255), f.remove(0, 8)), (Err(TableError::PrefixLength { len: 255, bits: 32 }), Ok(None)));
    assert_eq!((f.insert(0, 8, LEAF_MAX), f.lookup(5)), (Ok(None), LEAF_MAX));
    let mut f = Fib6::new(&d).unwrap();
    assert_eq!(f.insert(0, 129, 1), Err(TableError::PrefixLength { len: 129, bits: 128 }));
    assert_eq!((f.insert(1, 128, LEAF_MAX), f.lookup(1), f.lookup(2)), (Ok(None), LEAF_MAX, 0));
}

/// As [`best`], for large models: the first that is there, from the longest length on.
fn best_of_many<A: Address>(model: &Model<A>, addr: A) -> u32 {
    (0..=A::BITS).rev().find_map(|len| model.get(&(addr.first(len), len)).copied()).unwrap_or(0)
}

#[test]
fn both_searches_of_a_model_agree() {
    let mut random = Random::new(3);
    let mut model = Model::new();
    for leaf in 1..300 {
        let (p, len) = (random.bits() as u32 & 0xff0f_00ff, random.below(33) as u8);
        model.insert((p.first(len), len), leaf);
    }
    for (p, len) in model.keys() {
        for addr in [*p, p.last(*len), p.last(*len).wrapping_add(1), random.bits() as u32] {
            assert_eq!(best_of_many(&model, addr), best(&model, addr));
        }
    }
}

/// Cuts the budget to what is held and goes on with random changes: whatever fails must have changed nothing.
fn starve<A: Address>(fib: &mut impl Fib<A>, budget: &Budget, random_prefix: impl Fn(&mut Random) -> (A, u8)) {
    let (mut random, mut model) = (Random::new(11), Model::new());
    let mut failures = [0, 0];
    for round in 0..60 {
        budget.set_limit(if round % 3 == 0 { usize::MAX } else { budget.used() });
        if round % 5 == 4 {
            fib.batch_edge(true);
        }
        for _ in 0..400 {
            let (p, len) = random_prefix(&mut random);
            let key = (p.first(len), len);
            // Grow over the first half, shrink over the second.
            if random.below(60) >= round / 2 {
                let leaf = 1 + random.below(250) as u32;
                match fib.insert(p, len, leaf) {
                    Ok(old) => assert_eq!(old, model.insert(key, leaf)),
                    Err(e) => {
                        assert_eq!(e, TableError::OutOfMemory);
                        failures[0] += 1;
                    }
                }
            } else {
                // One that is there, if any is.
                let key = model.range(key..).next().map_or(key, |(k, _)| *k);
                match fib.remove(key.0, key.1) {
                    Ok(old) => assert_eq!(old, model.remove(&key)),
                    Err(e) => {
                        assert_eq!(e, TableError::OutOfMemory);
                        failures[1] += 1;
                    }
                }
            }
        }
        fib.batch_edge(false);
        let addrs: Vec<A> = model.keys().step_by(37).flat_map(|(p, len)| [*p, p.last(*len)]).collect();
        let (single, batch) = fib.lookups(&addrs);
        for (i, addr) in addrs.iter().enumerate() {
            assert_eq!((single[i], batch[i]), (best_of_many(&model, *addr), single[i]));
        }
        assert_eq!(fib.all(), model.iter().map(|((p, len), leaf)| (*p, *len, *leaf)).collect::<Vec<_>>());
    }
    assert!(failures[0] > 20, "the limit was never met: {failures:?}");
}

#[test]
fn out_of_memory_changes_nothing_in_ipv4_tables() {
    for (kind, copies) in [(lpm4::Kind::Dir24, 0), (lpm4::Kind::Trie16, 0), (lpm4::Kind::Dir24, 2), (lpm4::Kind::Trie16, 3)] {
        let options = with_copies(copies);
        let budget = options.budget.clone();
        let mut fib = Fib4::with_options(kind, &Domain::new(), options).unwrap();
        starve(&mut fib, &budget, |r| (0x0a00_0000 | r.bits() as u32 & 0xff_ffff, 20 + r.below(13) as u8));
        drop(fib);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn out_of_memory_changes_nothing_in_ipv6_tables() {
    for copies in [0, 2] {
        let options = with_copies(copies);
        let budget = options.budget.clone();
        let mut fib = Fib6::with_options(&Domain::new(), options).unwrap();
        starve(&mut fib, &budget, |r| {
            (0x2001 << 112 | u128::from(r.bits() & 0x3ff) << 70 | u128::from(r.below(999)), 30 + r.below(99) as u8)
        });
        drop(fib);
        assert_eq!(budget.used(), 0);
        // Each in another branch, many of them.
        let mut fib = Fib6::with_options(&Domain::new(), Options { budget: budget.clone(), ..with_copies(copies) }).unwrap();
        starve(&mut fib, &budget, |r| (u128::from(r.bits()) << 64, 12 + r.below(20) as u8));
        drop(fib);
        assert_eq!(budget.used(), 0);
    }
}

/// A table with two copies of which only the second has a limit: what it lacks, the first has prepared already.
fn with_a_small_copy<W: LpmWriter>(make: impl Fn(&Budget) -> W) -> (Table<W>, Budget) {
    let (budget, small) = (Budget::unlimited(), Budget::unlimited());
    let made = std::cell::Cell::new(0);
    let lpm = Copies::new(&[0, 0], || Ok(make(if made.replace(1) == 0 { &budget } else { &small }))).unwrap();
    (Table { store: PrefixStore::new(&budget), lpm, budget }, small)
}

/// Fills such a table until its second copy has no more memory: then nothing has changed in the first one, and it takes no
/// memory for what fails.
fn second_copy_fails<W: LpmWriter>(
    (mut table, small): (Table<W>, Budget),
    address: impl Fn(u32) -> W::Addr,
    lookup: impl Fn(&W, W::Addr) -> u32,
) {
    for batch in [false, true] {
        small.set_limit(small.used());
        if batch {
            table.lpm.begin();
        }
        let (mut made, mut failed, mut before) = (Vec::new(), Vec::new(), 0);
        for n in 0.. {
            let (address, len) = (address(n), W::Addr::BITS);
            // A leaf that an earlier round has not set.
            let leaf = 1 + u32::from(batch);
            let old = table.store.get(address, len);
            match table.insert(address, len, leaf) {
                Ok(_) => made.push((address, leaf)),
                Err(e) => {
                    assert_eq!((e, table.store.get(address, len)), (TableError::OutOfMemory, old));
                    failed.push((address, old.unwrap_or(0)));
                }
            }
            match failed.len() {
                1000 => before = table.budget.used(),
                2000 => break,
                _ => {}
            }
        }
        if batch {
            table.lpm.commit();
        }
        assert!(table.budget.used() <= before + (1 << 20), "{} after {before}", table.budget.used());
        for (address, leaf) in made.iter().chain(&failed) {
            for copy in 0..2 {
                assert_eq!(lookup(table.lpm.writer(copy), *address), *leaf, "copy {copy}");
            }
        }
        // With memory the same changes succeed.
        small.set_limit(usize::MAX);
        for (address, _) in failed {
            table.insert(address, W::Addr::BITS, 3).unwrap();
            assert_eq!([0, 1].map(|copy| lookup(table.lpm.writer(copy), address)), [3, 3]);
        }
    }
}

#[test]
fn a_copy_without_memory_keeps_a_change_from_the_others() {
    let domain = Domain::new();
    // Each far from all others.
    let four = |n: u32| n.reverse_bits();
    let make = |budget: &Budget| StrideWriter::<16>::new(&domain, budget, PageKind::Base).unwrap();
    second_copy_fails(with_a_small_copy(make), four, |writer, address| writer.reader().lookup(address));
    let make = |budget: &Budget| StrideWriter::<24>::new(&domain, budget, PageKind::Base).unwrap();
    second_copy_fails(with_a_small_copy(make), four, |writer, address| writer.reader().lookup(address));
    let six = |n: u32| 0x2001 << 112 | u128::from(n.reverse_bits()) << 77 | u128::from(n);
    let make = |budget: &Budget| PoptrieWriter::new(&domain, budget, PageKind::Base).unwrap();
    second_copy_fails(with_a_small_copy(make), six, |writer, address| writer.reader().lookup(address));
}

#[test]
fn copies_are_listed_with_their_nodes_and_what_was_refused() {
    let options = Options { nodes: vec![0, 1023], ..Options::default() };
    let mut fib = Fib6::with_options(&Domain::new(), options).unwrap();
    fib.insert(1, 128, 7).unwrap();
    let copies = fib.memory().copies;
    assert_eq!(copies.iter().map(|copy| copy.node).collect::<Vec<_>>(), [Some(0), Some(1023)]);
    assert!(copies[1].refused.is_some(), "no machine has this node: {copies:?}");
    assert!(copies.iter().all(|copy| copy.bytes > 0) && fib.memory_bytes() > copies[0].bytes + copies[1].bytes);
    let readers = [0, 1, 2].map(|copy| fib.reader_of(copy));
    assert!(!readers[0].reads_same(&readers[1]) && readers[0].reads_same(&readers[2]), "one that is not there is the first");
    assert_eq!(readers.map(|reader| reader.lookup(1)), [7; 3]);
    let fib = Fib4::new(lpm4::Kind::Trie16, &Domain::new()).unwrap();
    let CopyInfo { node, refused, .. } = &fib.memory().copies[0];
    assert_eq!((fib.copy_count(), *node, refused), (1, None, &None));
}

#[test]
fn a_limit_counts_all_copies() {
    let used = |copies| {
        let options = with_copies(copies);
        let budget = options.budget.clone();
        let _fib = Fib4::with_options(lpm4::Kind::Dir24, &Domain::new(), options).unwrap();
        budget.used()
    };
    let one = used(1);
    assert_eq!((used(0), used(2), used(3)), (one, 2 * one, 3 * one));
    let options = Options { budget: Budget::limited(one + one / 2), ..with_copies(2) };
    let budget = options.budget.clone();
    assert_eq!(Fib4::with_options(lpm4::Kind::Dir24, &Domain::new(), options).err(), Some(TableError::OutOfMemory));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_table_that_gets_no_memory_at_all_is_not_made() {
    let options = || Options { budget: Budget::limited(100_000), ..Options::default() };
    let d = Domain::new();
    assert_eq!(Fib4::with_options(lpm4::Kind::Dir24, &d, options()).err(), Some(TableError::OutOfMemory));
    assert_eq!(Fib4::with_options(lpm4::Kind::Trie16, &d, options()).err(), Some(TableError::OutOfMemory));
    assert_eq!(Fib6::with_options(&d, options()).err(), Some(TableError::OutOfMemory));
}

#[test]
fn a_reader_that_does_not_pass_holds_memory_back_and_no_more() {
    let d = Domain::new();
    let worker = d.register();
    let mut fib = Fib6::new(&d).unwrap();
    for i in 0..1000u128 {
        fib.insert(0x2001 << 112 | i << 80, 48, 1 + (i % 5) as u32).unwrap();
    }
    assert!(d.pending() > 500);
    worker.quiescent();
    fib.reclaim();
    assert_eq!(d.pending(), 0);
}
