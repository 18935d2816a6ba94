//! What a foreign process sees: a reader that knows only the layout, and maps a duplicate of the descriptor read-only.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::*;

/// Maps the whole file like a client. Words are read one at a time: the memory changes meanwhile.
struct Reader {
    map: *const u8,
    len: usize,
}

#[derive(Debug, PartialEq, Clone)]
enum Value {
    Scalar(u64),
    Simple(Vec<Vec<u64>>),
    Combined(Vec<Vec<(u64, u64)>>),
    Names(Vec<String>),
    Link(u32, u32),
}

impl Reader {
    fn new(stats: &Stats) -> Self {
        let fd = rustix::io::dup(stats.fd()).unwrap();
        let len = fstat(fd.as_fd()).unwrap().st_size as usize;
        // SAFETY: a new read-only mapping at an address of the kernel's choice.
        let map = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0) };
        let map = map.unwrap().cast_const().cast();
        Self { map, len }
    }

    fn word(&self, offset: u64) -> u64 {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "pointer outside: {offset:#x}");
        // SAFETY: inside the mapping and aligned by the assertion; read atomically.
        unsafe { &*self.map.add(offset).cast::<AtomicU64>() }.load(Ordering::Relaxed)
    }

    fn half(&self, offset: u64) -> u32 {
        let bytes = self.word(offset & !7).to_ne_bytes();
        let at = (offset & 7) as usize;
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn bytes(&self, offset: u64, count: usize) -> Vec<u8> {
        let byte = |i: u64| self.word((offset + i) & !7).to_ne_bytes()[((offset + i) & 7) as usize];
        (0..count as u64).map(byte).collect()
    }

    fn at(&self, pointer: u64) -> u64 {
        pointer.checked_sub(self.word(8)).expect("pointer below the base")
    }

    fn count(&self, data: u64) -> u64 {
        u64::from(self.half(data - 8))
    }

    fn value(&self, entry: u64) -> Option<Value> {
        let data = || self.at(self.word(entry + 8));
        let rows = |element| {
            let outer = data();
            let row = move |thread| {
                let row = self.at(self.word(outer + thread * 8));
                (0..self.count(row)).map(move |i| row + i * element)
            };
            (0..self.count(outer)).map(row)
        };
        Some(match self.half(entry) {
            0 | 5 => return None,
            1 | 9 => Value::Scalar(self.word(entry + 8)),
            2 => Value::Simple(rows(8).map(|row| row.map(|at| self.word(at)).collect()).collect()),
            3 => {
                let pair = |at| (self.word(at), self.word(at + 8));
                Value::Combined(rows(16).map(|row| row.map(pair).collect()).collect())
            }
            4 => {
                let name = |i| {
                    let string = self.at(self.word(data() + i * 8));
                    let count = self.count(string) as usize;
                    let text = self.bytes(string, count);
                    assert_eq!(text.last(), Some(&0), "strings count their NUL");
                    String::from_utf8(text[..count - 1].to_vec()).unwrap()
                };
                Value::Names((0..self.count(data())).map(name).collect())
            }
            6 => Value::Link(self.half(entry + 8), self.half(entry + 12)),
            other => panic!("type {other}"),
        })
    }

    /// Everything once, by the epoch protocol: (directory index, value) by name.
    fn read(&self) -> BTreeMap<String, (u64, Value)> {
        assert_eq!((self.word(0), self.word(40)), (2, 0));
        loop {
            let epoch = self.word(16);
            fence(Ordering::Acquire);
            if self.word(24) != 0 {
                std::hint::spin_loop();
                continue;
            }
            // A torn read may see anything, even pointers that make no sense: it may only be judged after the check.
            let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.read_once()));
            fence(Ordering::Acquire);
            if self.word(24) == 0 && self.word(16) == epoch {
                return seen.expect("consistent segment");
            }
        }
    }

    fn read_once(&self) -> BTreeMap<String, (u64, Value)> {
        let directory = self.at(self.word(32));
        let entry = |index| {
            let entry = directory + index * 144;
            let name = self.bytes(entry + 16, 128);
            let end = name.iter().position(|&b| b == 0).expect("names end with NUL");
            let name = String::from_utf8(name[..end].to_vec()).unwrap();
            Some((name, (index, self.value(entry)?)))
        };
        (0..self.count(directory)).filter_map(entry).collect()
    }

    fn get(&self, name: &str) -> Option<Value> {
        Some(self.read().remove(name)?.1)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; the tests keep no pointer into it.
        unsafe { munmap(self.map.cast_mut().cast(), self.len) }.unwrap();
    }
}

fn stats() -> Arc<Stats> {
    Stats::new(64 << 20).unwrap()
}

#[test]
fn a_foreign_reader_sees_every_kind_of_entry() {
    let stats = stats();
    stats.set_threads(2);
    let drops = stats.simple("/if/drops", 100);
    let rx = stats.combined("/if/rx", 100);
    drops.set_len(3);
    rx.set_len(2);
    drops.add(0, 1, 5);
    drops.add(1, 2, 7);
    rx.add(1, 0, 2, 128);
    stats.scalar("/sys/heartbeat").set(42);
    stats.gauge("/sys/vector_rate").set(17);
    stats.names("/if/names").set(2, "loop0");
    stats.symlink("/interfaces/loop0/drops", "/if/drops", 2).unwrap();

    let seen = Reader::new(&stats).read();
    let value = |name: &str| seen[name].1.clone();
    assert_eq!(value("/if/drops"), Value::Simple(vec![vec![0, 5, 0], vec![0, 0, 7]]));
    assert_eq!(value("/if/rx"), Value::Combined(vec![vec![(0, 0); 2], vec![(2, 128), (0, 0)]]));
    assert_eq!(value("/sys/heartbeat"), Value::Scalar(42));
    assert_eq!(value("/sys/vector_rate"), Value::Scalar(17));
    assert_eq!(value("/if/names"), Value::Names(["", "", "loop0"].map(String::from).to_vec()));
    let target = seen["/if/drops"].0 as u32;
    assert_eq!(value("/interfaces/loop0/drops"), Value::Link(target, 2));
    assert_eq!(seen.len(), 6);
    assert_eq!((drops.sum(2), drops.get(1, 2), rx.sum(0)), (7, 7, (2, 128)));
}

#[test]
fn a_gauge_that_is_announced_raises_the_epoch() {
    let stats = stats();
    let gauge = stats.gauge("/bfd/udp4/sessions");
    let reader = Reader::new(&stats);
    let epoch = || reader.word(16);
    let before = epoch();
    gauge.set(1);
    assert_eq!(epoch(), before);
    gauge.announce(2);
    assert_eq!((epoch(), reader.get("/bfd/udp4/sessions")), (before + 1, Some(Value::Scalar(2))));
}

#[test]
fn an_index_or_thread_outside_is_counted_as_ignored() {
    let stats = stats();
    for capacity in [0, 1, 3, 4, 5, 255, 256, 257] {
        let counters = stats.simple(&format!("/c{capacity}"), capacity);
        counters.set_len(u32::MAX);
        assert_eq!(counters.len(), capacity);
        counters.add(0, capacity, 1);
        counters.add(0, u32::MAX, 10);
        counters.add(MAX_THREADS, capacity, 100);
        counters.add(usize::MAX, u32::MAX, 1000);
        if capacity > 0 {
            counters.add(MAX_THREADS, 0, 10_000);
        }
        assert_eq!(counters.ignored(), 1111 + if capacity > 0 { 10_000 } else { 0 });
        assert!((0..=capacity).all(|index| counters.sum(index) == 0));
    }
}

/// A number that names its element.
fn mark(which: usize, thread: usize, index: u32) -> u64 {
    ((which as u64 + 1) << 32) + ((thread as u64) << 16) + u64::from(index)
}

#[test]
fn elements_of_different_threads_and_indices_do_not_overlap() {
    let stats = stats();
    stats.set_threads(MAX_THREADS);
    let pair = [stats.combined("/a", 5), stats.combined("/b", 5)];
    for (which, counters) in pair.iter().enumerate() {
        for thread in 0..MAX_THREADS {
            for index in 0..5 {
                let mark = mark(which, thread, index);
                counters.add(thread, index, mark, !mark);
            }
        }
    }
    for (which, counters) in pair.iter().enumerate() {
        for thread in 0..MAX_THREADS {
            for index in 0..5 {
                let mark = mark(which, thread, index);
                assert_eq!(counters.get(thread, index), (mark, !mark));
            }
        }
    }
}

#[test]
fn clearing_touches_only_the_thread_and_index_named() {
    let stats = stats();
    stats.set_threads(2);
    let counters = stats.combined("/c", 4);
    counters.set_len(4);
    for thread in 0..2 {
        (0..4).for_each(|index| counters.add(thread, index, 1, 10));
    }
    counters.clear_index_thread(0, 2);
    counters.clear_index_thread(9_999, 2);
    counters.clear_index_thread(0, 9_999);
    assert_eq!((0..4).map(|i| counters.sum(i).0).collect::<Vec<_>>(), [2, 2, 1, 2]);
    counters.clear_thread(1);
    assert_eq!((0..4).map(|i| counters.sum(i).1).collect::<Vec<_>>(), [10, 10, 0, 10]);
}

#[test]
fn a_name_gives_the_same_counter_again_and_another_type_is_refused() {
    let stats = stats();
    stats.simple("/x", 4).add(0, 1, 3);
    assert_eq!(stats.simple("/x", 99).get(0, 1), 3);
    assert_eq!(stats.try_combined("/x", 4).err(), Some(StatsError::Taken("/x".into())));
    let stand_in = stats.combined("/x", 4);
    stand_in.add(0, 0, 1, 1);
    assert_eq!((stand_in.capacity(), stats.refused().len()), (0, 1));
    let long = "n".repeat(128);
    for name in ["", long.as_str(), "a\0b"] {
        assert!(matches!(stats.try_simple(name, 1), Err(StatsError::BadName(_))));
    }
    assert!(stats.try_simple(&long[..127], 1).is_ok());
    assert!(Reader::new(&stats).get(&long[..127]).is_some());
}

#[test]
fn a_full_segment_refuses_and_goes_on() {
    let stats = Stats::new(0).unwrap();
    assert!(matches!(stats.try_simple("/big", u32::MAX), Err(StatsError::Full(_))));
    stats.simple("/big", u32::MAX).add(0, 7, 7);
    assert_eq!(stats.refused().len(), 1);
    let mut made = 0;
    while stats.try_simple(&format!("/small/{made}"), 1).is_ok() {
        made += 1;
    }
    assert!(made > 10);
    assert_eq!(Reader::new(&stats).read().len(), made);
}

#[test]
fn a_removed_entry_and_its_symlinks_vanish_and_the_space_is_reused() {
    let stats = stats();
    let reader = Reader::new(&stats);
    let held = stats.simple("/acl/1/matches", 8);
    held.set_len(8);
    held.add(0, 3, 9);
    stats.symlink("/link", "/acl/1/matches", 3).unwrap();
    assert!(stats.remove("/acl/1/matches"));
    assert!(!stats.remove("/acl/1/matches"));
    assert!(reader.read().is_empty());

    // The handle is still held, so a new counter must not share its memory.
    let other = stats.simple("/acl/2/matches", 8);
    held.add(0, 3, 1);
    assert_eq!((other.get(0, 3), held.get(0, 3)), (0, 10));
    drop(held);
    let reused = stats.simple("/acl/3/matches", 8);
    assert_eq!((reused.get(0, 3), reused.len()), (0, 0));
    assert_eq!(reader.read().len(), 2);
}

#[test]
fn a_removed_scalar_still_held_does_not_write_into_the_next_entry() {
    let stats = stats();
    let old = stats.scalar("/old");
    assert!(stats.remove("/old"));
    let new = stats.scalar("/new");
    old.set(5);
    assert_eq!((new.get(), Reader::new(&stats).get("/new")), (0, Some(Value::Scalar(0))));
}

#[test]
fn a_symlink_needs_a_counter_and_may_be_pointed_elsewhere() {
    let stats = stats();
    stats.simple("/a", 1);
    stats.simple("/b", 1);
    stats.scalar("/s");
    assert_eq!(stats.symlink("/l", "/s", 0), Err(StatsError::NoTarget("/s".into())));
    assert_eq!(stats.symlink("/b", "/a", 0), Err(StatsError::Taken("/b".into())));
    stats.symlink("/l", "/a", 0).unwrap();
    stats.symlink("/l", "/b", 7).unwrap();
    assert!(!stats.unlink("/a"), "a counter is no symlink");
    assert!(stats.unlink("/l") && !stats.unlink("/l"));
    stats.symlink("/l", "/b", 7).unwrap();
    let seen = Reader::new(&stats).read();
    assert_eq!(seen["/l"].1, Value::Link(seen["/b"].0 as u32, 7));
    assert!(stats.remove("/l"));
    assert_eq!(Reader::new(&stats).get("/l"), None);
}

#[test]
fn a_client_can_neither_write_nor_truncate_the_file() {
    let stats = stats();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; it is expected to be refused.
    let map = unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, stats.fd(), 0) };
    assert!(map.is_err());
    assert!(rustix::fs::ftruncate(stats.fd(), 0).is_err());
}

#[test]
fn untouched_capacity_costs_no_memory() {
    let stats = Stats::new(4 << 30).unwrap();
    let routes = stats.combined("/net/route/to", 1_000_000);
    routes.set_len(1_000_000);
    routes.add(0, 999_999, 1, 1);
    let blocks = fstat(stats.fd()).unwrap().st_blocks as u64;
    // Generous, for kernels that give shared memory huge pages.
    assert!(blocks * 512 < 16 << 20, "{} bytes used", blocks * 512);
}

/// Ends the other threads of a test also when an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread counts, one changes directory, lengths, names and threads, and the reader must never see a mixture.
#[test]
fn a_reader_under_concurrent_changes_sees_only_consistent_states() {
    let stats = stats();
    let counters = stats.simple("/hot", 64);
    let names = stats.names("/if/names");
    counters.set_len(8);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                counters.add(0, 3, 1);
            }
        });
        scope.spawn(|| {
            for round in 0u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                counters.set_len(8 + round % 8);
                // Two names that agree in the round, of ever different size class.
                names.set(0, &format!("a{round}"));
                let entry = format!("/round/{}", "x".repeat((round % 90) as usize));
                stats.scalar(&entry).set(u64::from(round));
                stats.symlink("/link", "/hot", round).unwrap();
                stats.remove(&entry);
                stats.set_threads(1 + (round / 64) as usize);
                rounds.store(u64::from(round), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let _stop = StopOnDrop(&stop);
        let reader = Reader::new(&stats);
        let mut last = 0;
        while rounds.load(Ordering::Relaxed) < 300 {
            let seen = reader.read();
            let Value::Simple(rows) = &seen["/hot"].1 else { panic!("type") };
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "rows of one length");
            assert!(rows[0][3] >= last, "counts do not go down");
            last = rows[0][3];
            if let Some((_, Value::Names(names))) = seen.get("/if/names") {
                assert!(names.iter().all(|name| name.starts_with('a')));
            }
            if let Some((_, Value::Link(target, _))) = seen.get("/link") {
                assert_eq!(u64::from(*target), seen["/hot"].0);
            }
            assert!(seen.keys().all(|k| k.starts_with('/')), "{:?}", seen.keys());
        }
    });
}
