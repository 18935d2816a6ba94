//! The hash table against the standard library's.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn table<K: Key>(capacity: u32) -> BoundedHash<K> {
    BoundedHash::with_options(capacity, &Domain::new(), 7, PageKind::Base, &Budget::unlimited()).unwrap()
}

fn overflow<K: Key>(t: &BoundedHash<K>) -> u64 {
    let table = &t.reader.table;
    (0..table.buckets.capacity()).map(|i| table.bucket(i)[SLOTS].load(Ordering::Relaxed)).sum()
}

#[test]
fn holds_exactly_its_capacity_and_then_says_full() {
    for capacity in [0u32, 1, 2, 6, 7, 8, 100, 1000] {
        let mut t = table::<u64>(capacity);
        for k in 0..u64::from(capacity) {
            assert_eq!(t.insert(k, k as u32), Ok(None));
        }
        assert_eq!(t.insert(u64::MAX, 0), Err(InsertError::Full));
        assert_eq!(t.len(), capacity as usize);
        for k in 0..u64::from(capacity) {
            assert_eq!((t.get(&k), t.insert(k, 5), t.remove(&k), t.get(&k)), (Some(k as u32), Ok(Some(k as u32)), Some(5), None));
        }
        assert_eq!((overflow(&t), t.len()), (0, 0));
    }
}

#[test]
fn a_candidate_is_nearly_always_the_entry() {
    let mut t = table::<u64>(10_000);
    for k in 0..10_000u64 {
        t.insert(k * 3, k as u32).unwrap();
    }
    let reader = t.reader().clone();
    let found = |k: u64| {
        let candidate = reader.candidate(reader.hash(&k))?;
        reader.prefetch_entry(candidate);
        let value = reader.value_at(candidate, &k);
        assert!(value.is_none() || reader.find(&k) == value.map(|value| (candidate, value)));
        value
    };
    let here = (0..10_000).filter(|k| found(k * 3) == Some(*k as u32)).count();
    assert!(here > 9_000, "{here}: all but those of buckets that overflow");
    assert_eq!((0..10_000).filter_map(|k| found(k * 3 + 1)).count(), 0);
    assert_eq!(reader.value_at(u32::MAX, &0), None);
    assert_eq!(t.remove(&3), Some(1));
    assert_eq!(found(3), None, "its slot is empty");
}

#[test]
fn deletion_leaves_nothing_behind_after_any_number_of_turns() {
    let mut t = table::<u64>(64);
    for k in 0..10_000u64 {
        t.insert(k, 1).unwrap();
        if k >= 64 - 1 {
            assert_eq!(t.remove(&(k - 63)), Some(1));
        }
    }
    (0..10_000).for_each(|k| _ = t.remove(&k));
    assert_eq!((t.len(), overflow(&t)), (0, 0));
}

#[test]
fn removed_entries_wait_for_the_readers() {
    let domain = Domain::new();
    let reader = domain.register();
    let mut t = BoundedHash::<u32>::new(1, &domain).unwrap();
    t.insert(1, 1).unwrap();
    t.remove(&1).unwrap();
    assert_eq!(t.insert(2, 2), Err(InsertError::Full));
    reader.quiescent();
    assert_eq!(t.insert(2, 2), Ok(None));
}

#[test]
fn running_out_of_memory_is_an_error() {
    let budget = Budget::limited(256 << 10);
    let mut t = BoundedHash::<[u8; 40]>::with_options(8000, &Domain::new(), 1, PageKind::Base, &budget).unwrap();
    let n = (0u64..).take_while(|i| t.insert(words(*i), 0).is_ok()).count();
    assert_eq!(t.insert(words(1 << 60), 0), Err(InsertError::OutOfMemory));
    assert_eq!(t.len(), n);
}

fn words<const B: usize>(n: u64) -> [u8; B] {
    std::array::from_fn(|i| (n >> (8 * (i % 8))) as u8 ^ i as u8)
}

#[test]
fn hashes_spread_over_buckets_and_tags() {
    let t = table::<u64>(1 << 14);
    let buckets = t.reader.table.buckets.capacity();
    // Sequential keys, keys that differ in high bits only, and sparse ones.
    for step in [1u64, 1 << 32, 1 << 50, 0x9e37] {
        let mut counts = vec![0u32; buckets];
        let mut tags = std::collections::HashSet::new();
        for i in 0..(1u64 << 14) {
            let h = t.hash(&i.wrapping_mul(step));
            counts[t.reader.table.home(h)] += 1;
            tags.insert(tag(h));
        }
        let full = counts.iter().filter(|c| **c > SLOTS as u32).count();
        assert!(full * 10 < buckets, "step {step}: {full} of {buckets} buckets overflow");
        assert!(tags.len() > 16_370);
    }
}

fn run<K: Key>(capacity: u32, ops: &[(u8, u64, u32)], key: impl Fn(u64) -> K) {
    let mut t = table::<K>(capacity);
    let mut model = HashMap::new();
    for (op, n, value) in ops {
        let k = key(*n);
        match op {
            0 | 1 => match t.insert(k, *value) {
                Ok(old) => assert_eq!(old, model.insert(k, *value)),
                Err(e) => assert!(e == InsertError::Full && model.len() == capacity as usize),
            },
            _ => assert_eq!(t.remove(&k), model.remove(&k)),
        }
        assert_eq!(t.len(), model.len());
    }
    let keys: Vec<K> = (0..300).map(&key).collect();
    for n in [0, 1, 7, 8, 9, 255, 256, 257, 300] {
        let (mut hashes, mut out) = (vec![0; n], vec![Some(77); n]);
        t.get_batch(&keys, &mut hashes, &mut out);
        for i in 0..n {
            assert_eq!(out[i], model.get(&keys[i]).copied());
        }
    }
    let mut all = HashMap::new();
    t.for_each(|k, v| assert_eq!(all.insert(k, v), None));
    assert_eq!(all, model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn agrees_with_the_standard_map(ops in prop::collection::vec((0u8..3, 0u64..300, any::<u32>()), 0..600), capacity in 0u32..260) {
        run(capacity, &ops, |n| n as u32);
        run(capacity, &ops, |n| n << 40);
        run(capacity, &ops, |n| u128::from(n) << 64);
        run(capacity, &ops, words::<8>);
        run(capacity, &ops, words::<16>);
        run(capacity, &ops, words::<24>);
        run(capacity, &ops, words::<40>);
    }
}

#[test]
fn writers_of_a_table_have_a_share_each_and_readers_see_them_all() {
    let domain = Domain::new();
    // So small that buckets overflow, within their shares.
    let mut writers = BoundedHash::<u64>::shards(4, 50, &domain, 7, PageKind::Base, &Budget::unlimited()).unwrap();
    let reader = writers[0].reader().clone();
    let (mut model, mut refused) = (HashMap::new(), 0);
    for k in 0..400 {
        let hash = reader.hash(&k);
        match writers[reader.shard(hash)].insert_hashed(k, hash, k as u32) {
            Ok(_) => _ = model.insert(k, k as u32),
            Err(error) => refused += usize::from(error == InsertError::Full),
        }
    }
    assert_eq!((model.len(), refused), (200, 200), "each has room for 50");
    assert!(overflow(&writers[0]) > 0);
    assert!((0..400).all(|k| reader.get(&k) == model.get(&k).copied()));
    let numbers: std::collections::HashSet<_> = model.keys().map(|k| reader.find(k).unwrap().0).collect();
    assert_eq!(numbers.len(), 200, "an entry each");
    for (at, writer) in writers.iter().enumerate() {
        let mut seen = 0;
        writer.for_each(|k, value| {
            assert_eq!((reader.shard(reader.hash(&k)), model.get(&k)), (at, Some(&value)));
            seen += 1;
        });
        assert_eq!((seen, writer.len()), (50, 50));
    }
    for k in model.keys() {
        assert_eq!(writers[reader.shard(reader.hash(k))].remove(k), Some(*k as u32));
    }
    assert_eq!(overflow(&writers[0]), 0);
}

#[test]
fn a_note_begins_at_zero_and_is_the_entrys() {
    let (key, other) = (Noted(1_u128), Noted([3_u8; 40]));
    let mut t = table::<Noted<u128>>(1);
    let mut six = table::<Noted<[u8; 40]>>(1);
    assert!(t.reader().note(0).is_none(), "not there yet");
    for _ in 0..2 {
        t.insert(key, 5).unwrap();
        six.insert(other, 6).unwrap();
        let (number, value) = t.reader().find(&key).unwrap();
        assert_eq!((value, six.reader().find(&other)), (5, Some((number, 6))));
        for note in [t.reader().note(number).unwrap(), six.reader().note(number).unwrap()] {
            assert_eq!(note.swap(u64::MAX, Ordering::Relaxed), 0);
        }
        assert_eq!((t.get(&key), six.get(&other)), (Some(5), Some(6)), "keys and values are apart from it");
        t.for_each(|k, _| assert_eq!(k, key));
        assert_eq!((t.remove(&key), six.remove(&other)), (Some(5), Some(6)));
    }
    assert!(t.reader().note(u32::MAX).is_none());
}
