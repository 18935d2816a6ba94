//! The store against a sorted map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model<A> = BTreeMap<(A, u8), u32>;

fn covers<A: Address>(outer: (A, u8), inner: (A, u8)) -> bool {
    outer.1 <= inner.1 && inner.0.first(outer.1) == outer.0
}

fn check<A: Address>(store: &PrefixStore<A>, model: &Model<A>, probe: (A, u8)) {
    let (p, len) = (probe.0.first(probe.1), probe.1);
    assert_eq!(store.len(), model.len());
    assert_eq!(store.get(p, len), model.get(&(p, len)).copied());
    let flat = |i: Iter<'_, A>| i.collect::<Vec<_>>();
    let pick = |f: &dyn Fn(&(A, u8)) -> bool| model.iter().filter(|(k, _)| f(k)).map(|(k, l)| (k.0, k.1, *l)).collect::<Vec<_>>();
    assert_eq!(flat(store.iter()), pick(&|_| true));
    assert_eq!(flat(store.iter_under(p, len)), pick(&|k| covers((p, len), *k)));
    assert_eq!(flat(store.iter_after(p, len)), pick(&|k| *k > (p, len)));
    let cover = pick(&|k| covers(*k, (p, len)) && k.1 < len).pop().map(|(_, l, leaf)| (l, leaf));
    assert_eq!(store.cover(p, len), cover);
    assert_eq!(store.lookup(p), pick(&|k| covers(*k, (p, A::BITS))).pop().map(|(_, l, leaf)| (l, leaf)));
    assert_eq!(store.has_longer(p, len), model.keys().any(|k| covers((p, len), *k) && k.1 > len));
    // Gaps and the prefixes in between tile the range.
    let mut tiles = Vec::new();
    store
        .gaps(p, len, |a, b| {
            tiles.push((a, b));
            Ok::<_, ()>(())
        })
        .unwrap();
    assert!(
        tiles.iter().all(|(a, b)| {
            a <= b && !model.keys().any(|k| covers((p, len), *k) && k.1 > len && k.0 <= *b && *a <= k.0.last(k.1))
        })
    );
    tiles.extend(pick(&|k| covers((p, len), *k) && k.1 > len).iter().map(|k| (k.0, k.0.last(k.1))));
    tiles.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut next = Some(p);
    for (a, b) in tiles {
        if Some(a) == next {
            next = b.next();
        } else {
            assert!(next.is_none_or(|n| b < n), "a hole before {a:?}");
        }
    }
    assert_eq!(next, p.last(len).next());
}

fn run<A: Address>(ops: Vec<(bool, A, u8, u32)>) {
    let mut store = PrefixStore::new(&Budget::unlimited());
    let mut model = Model::new();
    for (add, p, len, leaf) in ops {
        let key = (p.first(len), len);
        if add {
            assert_eq!(store.insert(p, len, leaf), Ok(model.insert(key, leaf)));
        } else {
            assert_eq!(store.remove(p, len), model.remove(&key));
        }
        check(&store, &model, (p, len));
        check(&store, &model, (p, len.saturating_sub(3)));
    }
    for key in model.clone().into_keys() {
        assert_eq!(store.remove(key.0, key.1), model.remove(&key));
    }
    assert_eq!((store.root, store.unused as usize), (NIL, store.nodes.len().saturating_sub(1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_a_sorted_map_v4(ops in prop::collection::vec(
        (prop::bool::weighted(0.7), prop::sample::select(vec![0u32, 1, 0x0a00_0000, 0x0a00_0001, 0x0a80_0000, u32::MAX, 0x0aff_ff00]),
         0u8..=32, 1u32..9), 1..60)) {
        run(ops);
    }

    #[test]
    fn agrees_with_a_sorted_map_v6(ops in prop::collection::vec(
        (prop::bool::weighted(0.7), prop::sample::select(vec![0u128, 1, 0x2001 << 112, 0x2001_0db8 << 96, u128::MAX, (0x2001 << 112) | 1]),
         0u8..=128, 1u32..9), 1..60)) {
        run(ops);
    }
}

#[test]
fn a_node_keeps_every_length_beside_its_children() {
    for len in 0..=128 {
        let mut n = Node::new(0u128, len, 1);
        n.set_child(0, INDEX_MASK);
        n.set_child(1, INDEX_MASK - 1);
        assert_eq!((n.len(), n.child(0), n.child(1)), (len, INDEX_MASK, INDEX_MASK - 1));
    }
    assert_eq!((size_of::<Node<u32>>(), size_of::<Node<u128>>()), (16, 32));
}

#[test]
fn out_of_memory_changes_nothing() {
    let budget = Budget::limited(64 << 10);
    let mut store = PrefixStore::<u32>::new(&budget);
    let mut n = 0u32;
    while store.insert(n << 8, 24, n + 1).is_ok() {
        n += 1;
    }
    assert_eq!(store.len(), n as usize);
    assert_eq!(store.insert(5 << 8, 24, 9), Ok(Some(6)), "replacing needs no memory");
    assert_eq!(store.iter().count(), n as usize);
    store.remove(0, 24).unwrap();
    assert_eq!(store.insert(0, 24, 1), Ok(None));
}
