//! One writer, several readers, a bounded time: no reader ever gets an answer that was never right.
//!
//! A route's leaf names its prefix: the length, and a hash of the prefix bits. A reader checks that against the address it
//! has looked up, so a leaf of a recycled group, node or entry shows at once. Some routes never change and must always be
//! found, whatever happens around them.

use quiver_tables::hash::BoundedHash;
use quiver_tables::lpm4::{Kind, Lpm4Lookup};
use quiver_tables::qsbr::{Domain, Reader};
use quiver_tables::synth::Random;
use quiver_tables::{Fib4, Fib6, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_millis(700);
const READERS: u64 = 2;

fn leaf(bits: u128, len: u8) -> u32 {
    let h = (bits as u64 ^ (bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    (h as u32) << 8 | u32::from(len) | 1 << 29
}

fn first(addr: u128, len: u8, width: u8) -> u128 {
    let low = width - len;
    if low >= 128 { 0 } else { addr >> low << low }
}

fn check(addr: u128, got: u32, width: u8) {
    let len = (got & 0xff) as u8;
    assert!(got != 0 && len <= width && got == leaf(first(addr, len, width), len), "{addr:x} got {got:x}");
}

/// Rounds of each side that make it a race.
const ROUNDS: u64 = 10;

/// Runs readers and a writer for `TIME`, and until both sides had rounds: a busy machine may keep one of them waiting.
fn race(domain: &Domain, read: impl Fn(&mut Random, &Reader) + Sync, mut write: impl FnMut(&mut Random)) {
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut writes = 0;
    thread::scope(|scope| {
        let spawn = |i: u64| {
            let (stop, reads, read, domain) = (&stop, &reads, &read, domain.clone());
            scope.spawn(move || {
                let (reader, mut random) = (domain.register(), Random::new(100 + i));
                while !stop.load(Ordering::Relaxed) {
                    read(&mut random, &reader);
                    reads.fetch_add(1, Ordering::Relaxed);
                    if random.below(50) == 0 {
                        reader.offline();
                        thread::yield_now();
                        reader.online();
                    } else {
                        reader.quiescent();
                    }
                }
            })
        };
        let readers: Vec<_> = (0..READERS).map(spawn).collect();
        let (mut random, end) = (Random::new(1), Instant::now() + TIME);
        let enough = |writes: u64| Instant::now() >= end && writes > ROUNDS && reads.load(Ordering::Relaxed) > ROUNDS;
        // A reader that ends has failed.
        while !enough(writes) && !readers.iter().any(|reader| reader.is_finished()) {
            if Instant::now() >= end {
                // What is replaced is kept until all readers have gone on.
                thread::sleep(Duration::from_millis(1));
            }
            write(&mut random);
            writes += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// With so many copies on node 0; 0: one, wherever it is.
fn ipv4(kind: Kind, copies: usize) {
    let domain = Domain::new();
    let mut fib = Fib4::with_options(kind, &domain, Options { nodes: vec![0; copies], ..Options::default() }).unwrap();
    let base = 0x0a00_0000u32;
    fib.insert(base, 8, leaf(base.into(), 8)).unwrap();
    let fixed = base | 0x0001_0203;
    fib.insert(fixed, 32, leaf(fixed.into(), 32)).unwrap();
    let tables: Vec<_> = (0..fib.copy_count()).map(|copy| fib.reader_of(copy)).collect();
    race(
        &domain,
        |random, _| {
            let table = &tables[random.below(tables.len() as u64) as usize];
            let addrs: [u32; 64] = std::array::from_fn(|i| match i % 8 {
                0 => fixed,
                _ => base | random.bits() as u32 & 0x0003_03ff,
            });
            let mut out = [0; 64];
            table.lookup_batch(&addrs, &mut out);
            for (addr, got) in addrs.iter().zip(out) {
                check((*addr).into(), got, 32);
                assert!(*addr != fixed || got & 0xff == 32);
                check((*addr).into(), table.lookup(*addr), 32);
            }
        },
        |random| {
            let len = 9 + random.below(24) as u8;
            let prefix = first(u128::from(base | random.bits() as u32 & 0x0003_03ff), len, 32) as u32;
            if random.below(2) == 0 {
                fib.insert(prefix, len, leaf(prefix.into(), len)).unwrap();
            } else if (prefix, len) != (fixed, 32) {
                fib.remove(prefix, len).unwrap();
            }
        },
    );
    fib.reclaim();
    assert_eq!(domain.pending(), 0);
}

#[test]
fn dir_24_8_readers_never_see_a_strangers_leaf() {
    ipv4(Kind::Dir24, 0);
}

#[test]
fn trie_16_8_8_readers_never_see_a_strangers_leaf() {
    ipv4(Kind::Trie16, 0);
}

#[test]
fn readers_of_two_copies_never_see_a_strangers_leaf() {
    ipv4(Kind::Trie16, 2);
}

/// IPv6 prefixes longer than `base`'s `len` and up to `most`, at the addresses that `spread` makes of random bits. About one of `rare`
/// is there, and a batch has some `changes`.
fn ipv6((base, len): (u128, u8), most: u8, (rare, changes): (u64, u64), spread: impl Fn(u64) -> u128 + Sync) {
    let domain = Domain::new();
    let mut fib = Fib6::new(&domain).unwrap();
    fib.insert(base, len, leaf(base, len)).unwrap();
    let fixed = base | spread(0x55);
    fib.insert(fixed, 128, leaf(fixed, 128)).unwrap();
    let table = fib.reader();
    let mut batch = false;
    race(
        &domain,
        |random, _| {
            let addrs: [u128; 64] = std::array::from_fn(|i| if i % 8 == 0 { fixed } else { base | spread(random.bits()) });
            let mut out = [0; 64];
            table.lookup_batch(&addrs, &mut out);
            for (addr, got) in addrs.iter().zip(out) {
                check(*addr, got, 128);
                assert!(*addr != fixed || got & 0xff == 128);
                check(*addr, table.lookup(*addr), 128);
            }
        },
        |random| {
            if random.below(changes) == 0 {
                batch = !batch;
                if batch { fib.begin() } else { fib.commit() }
            }
            let len = len + 1 + random.below((most - len).into()) as u8;
            let prefix = first(base | spread(random.bits()), len, 128);
            if random.below(rare) == 0 {
                fib.insert(prefix, len, leaf(prefix, len)).unwrap();
            } else if (prefix, len) != (fixed, 128) {
                fib.remove(prefix, len).unwrap();
            }
        },
    );
    fib.commit();
    fib.reclaim();
    assert_eq!(domain.pending(), 0);
}

#[test]
fn poptrie_readers_never_see_a_strangers_leaf() {
    // Few bits in few places, so that prefixes nest, nodes come and go, and all depths occur.
    ipv6((0x2001_0db8 << 96, 32), 128, (2, 20), |r| {
        u128::from(r & 3) << 78 | u128::from(r >> 2 & 7) << 64 | u128::from(r >> 5 & 3) << 40 | u128::from(r >> 7 & 3)
    });
}

#[test]
fn poptrie_readers_never_see_a_strangers_leaf_where_branches_come_and_go() {
    // So few that often no prefix is left below a /16, and its branch goes.
    ipv6((0x2000 << 112, 9), 30, (16, 100), |r| {
        u128::from(r & 3) << 112 | u128::from(r >> 2 & 1) << 105 | u128::from(r >> 3 & 1) << 100
    });
}

#[test]
fn hash_readers_find_what_stays_and_never_a_strangers_value() {
    let domain = Domain::new();
    let mut hash = BoundedHash::<u128>::new(512, &domain).unwrap();
    let key = |n: u64| u128::from(n) << 64 | u128::from(n);
    let value = |n: u64| (n as u32).wrapping_mul(0x9e37_79b1);
    for n in 0..100 {
        hash.insert(key(n), value(n)).unwrap();
    }
    let table = hash.reader().clone();
    race(
        &domain,
        |random, _| {
            let numbers: [u64; 64] = std::array::from_fn(|_| random.below(1000));
            let keys = numbers.map(key);
            let (mut hashes, mut out) = ([0; 64], [None; 64]);
            table.get_batch(&keys, &mut hashes, &mut out);
            for (n, got) in numbers.iter().zip(out) {
                assert!(got.is_none_or(|v| v == value(*n)) && (*n >= 100 || got.is_some()), "{n}: {got:?}");
            }
        },
        |random| {
            let n = 100 + random.below(900);
            if random.below(2) == 0 {
                // Full is a possible answer here.
                _ = hash.insert(key(n), value(n));
            } else {
                hash.remove(&key(n));
            }
        },
    );
    hash.reclaim();
    assert_eq!(domain.pending(), 0);
}
