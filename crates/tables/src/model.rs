//! The model test of the prefix tables, for property tests here and for fuzzing elsewhere: it panics where a table and the
//! obviously right version differ.

use crate::address::Address;
use crate::lpm4::{Kind, Lpm4Lookup};
use crate::qsbr::Domain;
use crate::{Fib4, Fib6, TableError};
use std::collections::BTreeMap;

/// What the model test needs of a table; both families have it.
pub trait Fib<A: Address> {
    /// Sets a leaf.
    fn insert(&mut self, p: A, len: u8, leaf: u32) -> Result<Option<u32>, TableError>;
    /// Takes a prefix out.
    fn remove(&mut self, p: A, len: u8) -> Result<Option<u32>, TableError>;
    /// Looks addresses up, one by one and as a batch: all copies answer the same.
    fn lookups(&self, addrs: &[A]) -> (Vec<u32>, Vec<u32>);
    /// The store's answer.
    fn lpm_match(&self, addr: A) -> Option<(u8, u32)>;
    /// Every prefix, in order.
    fn all(&self) -> Vec<(A, u8, u32)>;
    /// Begins or ends a batch.
    fn batch_edge(&mut self, begin: bool);
}

macro_rules! fib_of {
    ($t:ty, $a:ty) => {
        impl Fib<$a> for $t {
            fn insert(&mut self, p: $a, len: u8, leaf: u32) -> Result<Option<u32>, TableError> {
                <$t>::insert(self, p, len, leaf)
            }
            fn remove(&mut self, p: $a, len: u8) -> Result<Option<u32>, TableError> {
                <$t>::remove(self, p, len)
            }
            fn lookups(&self, addrs: &[$a]) -> (Vec<u32>, Vec<u32>) {
                let of_copy = |copy| {
                    let reader = self.reader_of(copy);
                    let mut out = vec![u32::MAX; addrs.len()];
                    reader.lookup_batch(addrs, &mut out);
                    (addrs.iter().map(|a| reader.lookup(*a)).collect(), out)
                };
                let first = of_copy(0);
                (1..self.copy_count()).for_each(|copy| assert_eq!(of_copy(copy), first, "copy {copy}"));
                first
            }
            fn lpm_match(&self, addr: $a) -> Option<(u8, u32)> {
                self.longest_match(addr)
            }
            fn all(&self) -> Vec<($a, u8, u32)> {
                self.iter().collect()
            }
            fn batch_edge(&mut self, begin: bool) {
                if begin { self.begin() } else { self.commit() }
            }
        }
    };
}
fib_of!(Fib4, u32);
fib_of!(Fib6, u128);

/// The obviously right version: a sorted map that is searched from end to end.
pub type Model<A> = BTreeMap<(A, u8), u32>;

/// The leaf of the longest prefix that contains `addr`, or 0.
pub fn best<A: Address>(model: &Model<A>, addr: A) -> u32 {
    let hits = model.iter().filter(|((p, len), _)| addr.first(*len) == *p);
    hits.max_by_key(|((_, len), _)| *len).map_or(0, |(_, leaf)| *leaf)
}

/// Addresses at both sides of every edge that a prefix makes.
fn probes<A: Address>(model: &Model<A>, extra: &[A]) -> Vec<A> {
    let mut all: Vec<A> = extra.to_vec();
    for (p, len) in model.keys() {
        let last = p.last(*len);
        all.extend([*p, last]);
        all.extend(p.previous());
        all.extend(last.next());
    }
    all
}

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Op<A> {
    /// Sets the leaf of a prefix.
    Insert(A, u8, u32),
    /// Takes a prefix out.
    Remove(A, u8),
    /// Begins a batch, or ends the one that is open.
    Batch,
}

/// Does the steps in both, comparing all answers after each (inside a batch: after its end), then empties both.
pub fn run<A: Address>(fib: &mut impl Fib<A>, ops: &[Op<A>]) {
    let (mut model, mut batch) = (Model::new(), false);
    for op in ops {
        match *op {
            Op::Insert(p, len, leaf) => {
                assert_eq!(fib.insert(p, len, leaf), Ok(model.insert((p.first(len), len), leaf)));
            }
            Op::Remove(p, len) => {
                assert_eq!(fib.remove(p, len), Ok(model.remove(&(p.first(len), len))))
            }
            Op::Batch => {
                batch = !batch;
                fib.batch_edge(batch);
            }
        }
        if !batch {
            check(fib, &model);
        }
    }
    fib.batch_edge(false);
    check(fib, &model);
    for (p, len) in model.clone().into_keys() {
        assert_eq!(fib.remove(p, len), Ok(model.remove(&(p, len))));
    }
    check(fib, &model);
}

fn check<A: Address>(fib: &impl Fib<A>, model: &Model<A>) {
    let addrs = probes(model, &[A::default(), A::default().last(0)]);
    let (single, batch) = fib.lookups(&addrs);
    // Groups that agree, but for their last one in every other group: a structure may look at them as one.
    let pairs = addrs.iter().zip(addrs.iter().cycle().skip(1));
    let groups: Vec<A> = pairs.flat_map(|(addr, next)| (0..16).map(move |k| if k == 15 { *next } else { *addr })).collect();
    let (_, grouped) = fib.lookups(&groups);
    for (i, addr) in addrs.iter().enumerate() {
        let want = best(model, *addr);
        assert_eq!((single[i], batch[i]), (want, want), "{addr:x?} of {model:x?}");
        assert_eq!(grouped[i * 16..i * 16 + 15], [want; 15], "{addr:x?} of {model:x?}");
        assert_eq!(grouped[i * 16 + 15], batch[(i + 1) % addrs.len()], "{addr:x?} of {model:x?}");
        assert_eq!(fib.lpm_match(*addr).map_or(0, |(_, leaf)| leaf), want);
    }
    assert_eq!(fib.all(), model.iter().map(|((p, len), leaf)| (*p, *len, *leaf)).collect::<Vec<_>>());
}

/// Steps from any bytes: 8 for each, of which few bits count, so that prefixes meet.
fn steps<A: Address>(data: &[u8], address: impl Fn([u8; 4]) -> A) -> Vec<Op<A>> {
    let step = |chunk: &[u8; 8]| {
        let [op, len, leaf, _, a, b, c, d] = *chunk;
        let (prefix, len) = (address([a, b, c, d]), len % (A::BITS + 1));
        match op % 16 {
            0 => Op::Batch,
            1..=5 => Op::Remove(prefix, len),
            _ => Op::Insert(prefix, len, u32::from(leaf % 5) + 1),
        }
    };
    // The comparison is quadratic.
    data.as_chunks::<8>().0.iter().take(100).map(step).collect()
}

/// Runs both IPv4 structures through the steps that the bytes say.
pub fn fuzz4(data: &[u8]) {
    let ops = steps(data, |[a, b, c, d]| u32::from_be_bytes([a & 3, b & 3, c & 0x83, d]));
    for kind in [Kind::Dir24, Kind::Trie16] {
        if let Ok(mut fib) = Fib4::new(kind, &Domain::new()) {
            run(&mut fib, &ops);
        }
    }
}

/// Runs the IPv6 table through the steps that the bytes say.
pub fn fuzz6(data: &[u8]) {
    let ops = steps(data, |[a, b, c, d]| {
        let at = |bits: u8, shift: u32| u128::from(bits) << shift;
        at(a & 7, 107) | at(b, 92) | at(c & 15, 62) | at(d & 15, 0)
    });
    if let Ok(mut fib) = Fib6::new(&Domain::new()) {
        run(&mut fib, &ops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_run() {
        for data in [vec![], vec![255; 7], vec![0; 64], (0..=255).collect::<Vec<u8>>()] {
            fuzz4(&data);
            fuzz6(&data);
        }
    }
}
