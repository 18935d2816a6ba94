//! Full tables, real ones where this machine has them, in every structure; `prefix-trie` says what is right. With `QUIVER_SHORT=1` a
//! tenth of each: for processors that are emulated.

use prefix_trie::PrefixMap;
use quiver_tables::lpm4::{Kind, Lpm4Lookup};
use quiver_tables::qsbr::Domain;
use quiver_tables::{Fib4, Fib6, synth};

const SEED: u64 = 7;

/// One of how many prefixes is taken.
fn step() -> usize {
    if std::env::var_os("QUIVER_SHORT").is_some_and(|value| value == "1") { 10 } else { 1 }
}

/// Both ends of every 50th prefix and their neighbours, and random hosts.
macro_rules! probes {
    ($table:expr, $addresses:path, $t:ty) => {{
        let mut addrs = $addresses($table, 100_000 / step(), SEED);
        for (prefix, len) in $table.iter().step_by(50) {
            let last = prefix | <$t>::MAX.checked_shr(u32::from(*len)).unwrap_or(0);
            addrs.extend([*prefix, last, prefix.wrapping_sub(1), last.wrapping_add(1)]);
        }
        addrs
    }};
}

macro_rules! compare {
    ($fib:expr, $model:expr, $addrs:expr, $bits:literal) => {{
        let reader = $fib.reader();
        let mut out = vec![0; $addrs.len()];
        reader.lookup_batch(&$addrs, &mut out);
        for (addr, got) in $addrs.iter().zip(&out) {
            let want = $model.get_lpm(&(*addr, $bits)).map_or(0, |(_, leaf)| *leaf);
            assert_eq!((*got, reader.lookup(*addr)), (want, want), "{addr:x}");
        }
        assert_eq!($fib.len(), $model.len());
    }};
}

macro_rules! whole_life {
    ($fib:expr, $table:expr, $addrs:expr, $bits:literal) => {{
        let mut model = PrefixMap::new();
        for (prefix, len) in $table {
            let leaf = synth::leaf_uniform(*prefix, *len, SEED);
            assert_eq!($fib.insert(*prefix, *len, leaf), Ok(None));
            model.insert((*prefix, *len), leaf);
        }
        compare!($fib, model, $addrs, $bits);
        let full = $fib.memory_bytes();
        assert!($fib.iter().is_sorted());
        assert_eq!($fib.iter().count(), $table.len());
        // Every other one goes: their addresses fall back to what covers them.
        for (prefix, len) in $table.iter().step_by(2) {
            assert_eq!($fib.remove(*prefix, *len).ok().flatten(), model.remove(&(*prefix, *len)));
        }
        compare!($fib, model, $addrs, $bits);
        // All of it again and away: nothing is left, and no more memory was needed than the first time.
        for (prefix, len) in $table {
            $fib.insert(*prefix, *len, 5).unwrap();
        }
        for (prefix, len) in $table {
            assert!($fib.remove(*prefix, *len).unwrap().is_some());
        }
        model.clear();
        compare!($fib, model, $addrs, $bits);
        assert!($fib.memory_bytes() <= full + full / 4, "{} after {full}", $fib.memory_bytes());
        full
    }};
}

#[test]
fn the_full_ipv4_table_in_dir_24_8() {
    let table: Vec<_> = synth::full_table4().0.into_iter().step_by(step()).collect();
    let addrs = probes!(&table, synth::addresses4, u32);
    let mut fib = Fib4::new(Kind::Dir24, &Domain::new()).unwrap();
    assert!(whole_life!(fib, &table, addrs, 32) < 110_000_000);
}

#[test]
fn the_full_ipv4_table_in_16_8_8() {
    let table: Vec<_> = synth::full_table4().0.into_iter().step_by(step()).collect();
    let addrs = probes!(&table, synth::addresses4, u32);
    let mut fib = Fib4::new(Kind::Trie16, &Domain::new()).unwrap();
    assert!(whole_life!(fib, &table, addrs, 32) < 90_000_000);
}

#[test]
fn the_full_ipv6_table_in_a_poptrie() {
    let table: Vec<_> = synth::full_table6().0.into_iter().step_by(step()).collect();
    let addrs = probes!(&table, synth::addresses6, u128);
    let mut fib = Fib6::new(&Domain::new()).unwrap();
    assert!(whole_life!(fib, &table, addrs, 128) < 40_000_000);
    let mut fib = Fib6::new(&Domain::new()).unwrap();
    fib.batch(|fib| {
        for (prefix, len) in &table {
            fib.insert(*prefix, *len, 9).unwrap();
        }
        let reader = fib.reader();
        assert!(addrs.iter().all(|a| reader.lookup(*a) == 0), "a batch is not seen before its end");
    });
    let reader = fib.reader();
    assert!(table.iter().all(|(prefix, _)| reader.lookup(*prefix) == 9));
}

#[test]
fn a_million_consecutive_prefixes_stay_small() {
    let mut fib = Fib4::new(Kind::Dir24, &Domain::new()).unwrap();
    let count = 1_000_000 / step() as u32;
    for i in 0..count {
        fib.insert(0x0a00_0000 + (i << 8), 24, 1 + i % 7).unwrap();
    }
    let reader = fib.reader();
    assert!((0..count).all(|i| reader.lookup(0x0a00_0077 + (i << 8)) == 1 + i % 7));
    assert!(fib.memory_bytes() < 60_000_000, "{}", fib.memory_bytes());
}
