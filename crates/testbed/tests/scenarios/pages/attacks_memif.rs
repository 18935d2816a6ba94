//! A hostile memif peer against a router that runs, in both roles. After each attack the router answers, has its descriptors
//! and its memory back, and two other memif interfaces of it have lost no packet.
//!
//! With `QUIVER_ATTACK_SECONDS` the random attacks go on for so many seconds each, in place of two.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{counter, eventually};
use quiver_testbed::hostile::{self, Apart, Channel, Connection, SLOTS, event, lingering, listener, memory, memory_on};
use quiver_testbed::{Host, Router, Scenario};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_setfl, ftruncate, open};
use rustix::io::Errno;
use rustix::process::Signal;

/// Longest that the router may take for anything: a bound for hangs, nothing else.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory that a peer may cost it: what one connection may have mapped, and a margin.
const MEMORY: u64 = (256 + 64) << 20;

fn attack_time() -> Duration {
    let asked = std::env::var("QUIVER_ATTACK_SECONDS").ok().map(|text| text.parse().expect("QUIVER_ATTACK_SECONDS is a number"));
    Duration::from_secs(asked.unwrap_or(2))
}

/// xorshift, with a seed that is printed where a random attack fails.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A router under attack: `memif0/0` to `memif0/2` serve at `memif.sock`, `memif3/0` looks for a server at
/// `evil.sock`. `memif4/0` serves at `trusting.sock` and takes memory that cannot be sealed.
struct Attacked {
    router: Router,
    memory: u64,
    descriptors: usize,
    _host: Host,
}

impl Attacked {
    fn start() -> Self {
        let host = Host::new("attack").unwrap();
        let router = Router::start(&host, "cpu { workers 1 }").expect("router");
        let folder = router.folder().display().to_string();
        let mut commands = "create memif socket id 1 filename @dir@/pair.sock\n\
            create memif socket id 2 filename @dir@/./pair.sock\n\
            create memif socket id 3 filename @dir@/evil.sock\n\
            create memif socket id 4 filename @dir@/trusting.sock unsealed\n\
            create interface memif id 0 socket-id 4 master\n\
            set interface state memif4/0 up\n\
            create interface memif id 0 socket-id 1 master\n\
            create interface memif id 0 socket-id 2 slave\n\
            create interface memif id 0 socket-id 3 slave ring-size 64\n\
            set interface state memif1/0 up\nset interface state memif2/0 up\n"
            .replace("@dir@", &folder);
        for id in 0..3 {
            commands += &format!("create interface memif id {id} master\nset interface state memif0/{id} up\n");
        }
        router.script(&commands).expect("configuration");
        let up = |i: &str| router.cli(&format!("show memif {i}")).is_ok_and(|text| text.contains("connected\n"));
        eventually("the other two are connected", PATIENCE, || up("memif1/0") && up("memif2/0"));
        let new = Self { router, memory: 0, descriptors: 0, _host: host };
        // What nobody attacks; and packets to each attacked interface.
        for (interface, rate) in [("memif2/0", 500), ("memif0/0", 2000), ("memif3/0", 2000)] {
            new.cli(&format!(
                "packet-generator new {{ name to-{interface} limit 0 rate {rate} size 60-60 tx-interface {interface} \
                 node {interface}-output data {{ IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 \
                 UDP: 1234 -> 2345 incrementing 8 }} }}"
            ));
            new.cli(&format!("packet-generator enable-stream to-{interface}"));
        }
        let usage = new.router.usage().unwrap();
        Self { memory: usage.memory(), descriptors: usage.descriptors, ..new }
    }

    fn cli(&self, line: &str) -> String {
        self.router.cli(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn socket(&self) -> PathBuf {
        self.router.folder().join("memif.sock")
    }

    /// A connection as a client, as soon as the interface is free again.
    fn client(&self, id: u32) -> Connection {
        let mut connection = Err(String::new());
        eventually("the router takes a client", PATIENCE, || {
            connection = Connection::client(&self.socket(), id);
            connection.is_ok()
        });
        connection.unwrap()
    }

    /// The router is as it was.
    fn check(&mut self, what: &str) {
        let start = Instant::now();
        self.cli("show version");
        assert!(start.elapsed() < PATIENCE, "{what}: {:?} for an answer", start.elapsed());
        assert!(self.router.is_running(), "{what}: the router has ended");
        let before = counter(&self.router, "memif1/0", "rx packets");
        eventually(&format!("{what}: packets pass between the others"), PATIENCE, || {
            counter(&self.router, "memif1/0", "rx packets") > before
        });
        let (descriptors, memory) = (self.descriptors + 12, self.memory + MEMORY);
        eventually(&format!("{what}: descriptors are back"), PATIENCE, || self.router.usage().unwrap().descriptors <= descriptors);
        let used = self.router.usage().unwrap().memory();
        assert!(used < memory, "{what}: {} MB of memory", used >> 20);
    }

    /// Nobody else has lost a packet.
    fn finish(self) {
        self.cli("packet-generator disable-stream to-memif2/0");
        let count = |interface, word| counter(&self.router, interface, word);
        eventually("all packets of the others arrive", PATIENCE, || {
            count("memif2/0", "tx packets") == count("memif1/0", "rx packets")
        });
        assert_eq!((count("memif2/0", "tx-error"), count("memif1/0", "rx-error")), (0, 0));
        assert!(count("memif1/0", "rx packets") > 0);
        self.router.stop().unwrap();
    }
}

#[test]
fn memory_that_is_not_what_is_announced() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    // Part of a huge page: it would be mapped whole, and guarded in part.
    let huge = || memory_on(2 << 20, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
    for size in [4096, 8192, 1_000_000] {
        let channel = Channel::begin(&a.socket(), 0).unwrap();
        assert_eq!(channel.region(0, size, huge().as_fd()), Err("region is not whole huge pages".into()), "{size}");
        a.check("part of a huge page");
    }
    // Whole ones, of which the system may have none.
    let channel = Channel::begin(&a.socket(), 0).unwrap();
    channel.region(0, 2 << 20, huge().as_fd()).unwrap();
    for (to_server, offset) in [(true, 0), (false, 4096)] {
        channel.ring(to_server, (0, offset), 6, event().as_fd()).unwrap();
    }
    let answer = channel.connect().unwrap_err();
    assert!(["memory of the ring is not there", "no ring at the place announced"].contains(&answer.as_str()), "{answer}");
    a.check("huge pages that are not there");
    // Holes: each one that is read becomes a page, so there are only so many.
    let channel = Channel::begin(&a.socket(), 0).unwrap();
    let answer = channel.region(0, 1 << 32, memory(1 << 32).as_fd()).unwrap_err();
    assert!(answer.ends_with("at most 268435456 are allowed (max-memory)"), "{answer}");
    let channel = Channel::begin(&a.socket(), 0).unwrap();
    for index in 0..16 {
        channel.region(index, 4096, memory(4096).as_fd()).unwrap();
    }
    assert_eq!(channel.region(16, 4096, memory(4096).as_fd()), Err("more than 16 regions (max-regions)".into()));
    a.check("regions without end");
    // As much as there may be, and every page of it named.
    let connection = Channel::begin(&a.socket(), 1).map(|channel| {
        let (small, large) = (hostile::Memory::of(memory(8192), 8192), memory(255 << 20));
        channel.region(0, 8192, small.fd.as_fd()).unwrap();
        channel.region(1, 255 << 20, large.as_fd()).unwrap();
        let events = [event(), event()];
        for (k, offset) in [(0, 0), (1, 4096)] {
            small.u32(offset).store(hostile::COOKIE, Ordering::Release);
            channel.ring(k == 0, (0, offset as u32), hostile::LOG2, events[k].as_fd()).unwrap();
        }
        channel.connect().unwrap();
        Connection { channel, memory: small, out: 0, back: 4096, events, slots: SLOTS }
    });
    let connection = connection.unwrap();
    let (mut page, pages) = (0, 255 << 8);
    while page < pages {
        eventually("the router takes packets", PATIENCE, || connection.pending() == 0);
        connection.show(SLOTS, |k| (1, (page + u32::from(k)).min(pages - 1) << 12));
        page += u32::from(SLOTS);
    }
    a.check("every page of sparse memory");
    drop(connection);
    a.check("every page of sparse memory, given back");
    a.finish();
}

/// Takes the pages of the buffers out of a file.
fn take_pages(fd: &OwnedFd, len: usize) -> rustix::io::Result<()> {
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 65_536, len as u64 - 65_536)
}

/// Where pages are being taken out of memory, the kernel has the router's worker wait for whoever takes them, so nobody may.
#[test]
fn memory_that_goes_away() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    let (mut rounds, end) = (0, Instant::now() + attack_time());
    while Instant::now() < end {
        // It begins before the router knows of the memory, and goes on until it is told that it may not.
        let (refused, mut taker) = (Arc::new(AtomicBool::new(false)), None);
        let connection = Connection::client_after(&a.socket(), 0, |fd, len| {
            let (fd, refused) = (fd.try_clone().unwrap(), refused.clone());
            taker = Some(std::thread::spawn(move || {
                let until = Instant::now() + PATIENCE;
                while take_pages(&fd, len).is_ok() && !refused.load(Ordering::Relaxed) {
                    assert!(Instant::now() < until, "pages can be taken although the connection stands");
                }
            }));
        });
        refused.store(connection.is_err(), Ordering::Relaxed);
        if let Some(taker) = taker {
            taker.join().unwrap();
        }
        // The interface may still have had the connection before.
        let Ok(connection) = connection else { continue };
        let (fd, len) = (&connection.memory.fd, connection.memory.len());
        assert_eq!([take_pages(fd, len), ftruncate(fd, 4096)], [Err(Errno::PERM); 2]);
        connection.show(SLOTS / 2, |k| (0, 4096 * u32::from(k)));
        eventually("the router takes packets", PATIENCE, || connection.pending() == 0 || connection.is_ended());
        rounds += 1;
    }
    println!("{rounds} connections");
    a.check("pages that are taken");
    // A file that is not to be sealed.
    let seal = |fd: &OwnedFd, _| fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    let reason = Connection::client_after(&a.socket(), 1, seal).map(drop).unwrap_err();
    assert!(reason.starts_with("region cannot be sealed"), "{reason}");
    a.check("memory that cannot be sealed");
    // The router's own memory, of which it has told a server.
    let socket = listener(&a.router.folder().join("evil.sock"));
    a.cli("set interface state memif3/0 up");
    let connection = Connection::server(&socket).unwrap();
    let (fd, len) = (&connection.memory.fd, connection.memory.len());
    eventually("its pages cannot be taken", PATIENCE, || take_pages(fd, len) == Err(Errno::PERM));
    assert_eq!(ftruncate(fd, 4096), Err(Errno::PERM));
    a.check("pages of the router");
    drop(connection);
    // Where the administrator trusts the peers, files that shrink cost no more than their connection.
    let trusting = a.router.folder().join("trusting.sock");
    for round in 0..20 {
        let mut connection = Err(String::new());
        eventually("the router takes a client", PATIENCE, || {
            connection = Connection::client(&trusting, 0);
            connection.is_ok()
        });
        let connection = connection.unwrap();
        connection.show(SLOTS / 2, |k| (0, 8192 + 2048 * u32::from(k)));
        ftruncate(&connection.memory.fd, if round % 2 == 0 { 0 } else { 4096 }).unwrap();
        eventually("the connection ends", PATIENCE, || connection.is_ended());
    }
    a.check("files that shrink");
    a.finish();
}

/// As often at least.
const ROUNDS: u32 = 11;

/// Makes the event blocking and full, mostly between what the router looks at and what it does.
fn block(a: &mut Attacked, connection: &Connection, what: &str) {
    let event = &connection.events[1];
    // The router's own index of the ring: the tail of a client's, the head of a server's. The other one is ours.
    let (theirs, ours) = if what == "client" { (64, 6) } else { (6, 64) };
    let sent = |c: &Connection| c.memory.u16(c.back + theirs).load(Ordering::Acquire);
    let make_room = |c: &Connection| match what {
        "client" => c.offer(sent(c)),
        _ => c.memory.u16(c.back + ours).store(sent(c), Ordering::Release),
    };
    let (mut random, mut rounds, end) = (Random(7), 0, Instant::now() + attack_time());
    // On a busy machine the time may be over after a few rounds.
    while Instant::now() < end || rounds < ROUNDS {
        fcntl_setfl(event, OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(event, &mut [0; 8]);
        fcntl_setfl(event, OFlags::empty()).unwrap();
        // We sleep, and there is room: it must wake us.
        connection.memory.u16(connection.back + 4).store(0, Ordering::Relaxed);
        make_room(connection);
        for _ in 0..random.below(3000) {
            std::hint::spin_loop();
        }
        fcntl_setfl(event, OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
        fcntl_setfl(event, OFlags::empty()).unwrap();
        // Full and blocking: a thread of the router that writes now sleeps until we read, so it gets time to show that it does
        // not.
        let before = sent(connection);
        let patience = Instant::now() + PATIENCE;
        while sent(connection) == before && !connection.is_ended() {
            assert!(Instant::now() < patience, "{what}: the router sends no more after {rounds} rounds");
            // It may have filled the ring while this thread had no processor.
            make_room(connection);
            std::hint::spin_loop();
        }
        rounds += 1;
    }
    println!("{what}: {rounds} times the event was made full and blocking");
    assert!(!connection.is_ended());
    a.check(what);
}

#[test]
fn events_that_block() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    let connection = a.client(0);
    block(&mut a, &connection, "client");
    drop(connection);
    let socket = listener(&a.router.folder().join("evil.sock"));
    a.cli("set interface state memif3/0 up");
    let connection = Connection::server(&socket).unwrap();
    block(&mut a, &connection, "server");
    drop(connection);
    a.finish();
}

#[test]
fn events_with_many_watchers() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut a = Attacked::start();
    let connection = a.client(0);
    // Each of them is called by whoever signals.
    use rustix::event::epoll;
    let watcher = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let watch = |_| {
        let copy = connection.events[1].try_clone().ok()?;
        epoll::add(&watcher, &copy, epoll::EventData::new_u64(0), epoll::EventFlags::IN).ok().map(|()| copy)
    };
    // The other scenarios of this process need descriptors, too.
    let places = limit.maximum.map_or(100_000, |n| (n / 2).max(n.saturating_sub(4096)).min(100_000));
    let watched: Vec<OwnedFd> = (0..places).map_while(watch).collect();
    println!("{} watchers", watched.len());
    assert!(watched.len() > 4000 || limit.maximum.is_some_and(|n| n < 9000));
    // Of few watchers the router need not get rid.
    let (start, bound) = (Instant::now(), if watched.len() < 10_000 { attack_time() } else { PATIENCE });
    while !connection.is_ended() && start.elapsed() < bound {
        connection.memory.u16(connection.back + 4).store(0, Ordering::Relaxed);
        connection.offer(connection.memory.u16(connection.back + 64).load(Ordering::Relaxed));
        let _ = rustix::io::read(&connection.events[1], &mut [0; 8]);
    }
    assert!(connection.is_ended() || watched.len() < 10_000, "the router goes on calling all watchers");
    drop((connection, watcher, watched));
    a.check("watchers");
    a.finish();
}

/// Descriptors of every kind but the right one.
fn odd_descriptors(a: &Attacked) -> Vec<(&'static str, OwnedFd)> {
    let file = |path: &str, flags| open(path, flags, Mode::empty()).unwrap_or_else(|e| panic!("{path}: {e}"));
    let fifo = a.router.folder().join("fifo");
    if !fifo.exists() {
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    let good = memory(1 << 20);
    let of = |fd: &OwnedFd, flags| file(&format!("/proc/self/fd/{}", fd.as_raw_fd()), flags);
    let sealed = memory(1 << 20);
    fcntl_add_seals(&sealed, SealFlags::WRITE | SealFlags::SHRINK).unwrap();
    vec![
        ("pipe", rustix::pipe::pipe().unwrap().0),
        ("FIFO", file(&fifo.to_string_lossy(), OFlags::RDWR | OFlags::NONBLOCK)),
        ("folder", file("/proc", OFlags::RDONLY | OFlags::DIRECTORY)),
        ("/dev/zero", file("/dev/zero", OFlags::RDWR)),
        ("terminal", file("/dev/ptmx", OFlags::RDWR | OFlags::NOCTTY)),
        ("file of proc", file("/proc/self/mem", OFlags::RDWR)),
        ("epoll", rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap()),
        ("path", of(&good, OFlags::PATH)),
        ("memory to read", of(&good, OFlags::RDONLY)),
        ("memory to write", of(&good, OFlags::WRONLY)),
        ("sealed memory", sealed),
        ("control channel", Channel::dial(&a.socket()).unwrap().0),
    ]
}

#[test]
fn descriptors_that_are_something_else() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    for (what, fd) in odd_descriptors(&a) {
        let channel = Channel::begin(&a.socket(), 0).unwrap();
        let answer = channel.region(0, 1 << 20, fd.as_fd()).unwrap_err();
        assert!(answer.starts_with("region"), "{what} as a region: {answer}");
        let channel = Channel::begin(&a.socket(), 0).unwrap();
        assert_eq!(channel.ring(true, (0, 0), 6, fd.as_fd()), Err("event descriptor is not an eventfd".into()), "{what}");
    }
    a.check("odd descriptors");
    // As many as fit, with messages that want none, at every moment.
    let events: Vec<OwnedFd> = (0..253).map(|_| event()).collect();
    let all: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
    for round in 0..50 {
        let channel = Channel::dial(&a.socket()).unwrap();
        for kind in 0..=round % 9 {
            let _ = channel.say(kind, &[], &all);
        }
    }
    a.check("more descriptors than are wanted");
    a.finish();
}

/// What the threads of the attacked socket have not done yet.
fn unfinished(a: &Attacked) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&a.router.cli_json("show memif").unwrap()).unwrap();
    shown["sockets"][0]["unfinished"].as_u64().expect("a number")
}

/// Closing such a socket waits for an hour, or until its other end is gone: whoever has the last descriptor of it waits.
#[test]
fn descriptors_whose_end_takes_for_ever() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    let mut far = Vec::new();
    for round in 0..4 {
        let (path, pid) = (a.socket(), rustix::process::Pid::from_raw(a.router.pid() as i32).expect("a process"));
        let signal = move |signal| rustix::process::kill_process(pid, signal).expect("the router runs");
        // No child has a copy of the socket, so the router closes it last.
        far.push(Apart::run(move || {
            let (near, far) = lingering();
            // The router sleeps until we have closed ours: the last one to close such a socket waits.
            let begun = (round < 2).then(|| Channel::begin(&path, 1 + round).unwrap());
            signal(Signal::STOP);
            let channel = begun.unwrap_or_else(|| Channel::dial(&path).unwrap());
            let (region, good) = ([&[0; 2][..], &4096_u64.to_ne_bytes()], memory(4096));
            match round {
                // Wanted, but something else.
                0 => channel.say(hostile::REGION, &region, &[near.as_fd()]).unwrap(),
                // Not wanted, beside another one.
                1 => channel.say(hostile::REGION, &region, &[good.as_fd(), near.as_fd()]).unwrap(),
                // Never read: the connection is over before.
                2 => {
                    channel.say(99, &[], &[]).unwrap();
                    channel.say(hostile::ACK, &[], &[near.as_fd()]).unwrap();
                }
                // With the first message, before anything is known.
                _ => channel.say(hostile::INIT, &[], &[near.as_fd()]).unwrap(),
            }
            drop((near, channel));
            signal(Signal::CONT);
            far
        }));
        // A thread of the router closes it, and waits; the packets of the others pass. (The next signal ends that wait.)
        eventually("the socket lingers in the router", PATIENCE, || unfinished(&a) > 0);
        a.check("a socket that lingers");
    }
    assert!(unfinished(&a) > 0, "the last one lingers no more");
    // All interfaces of the other sockets come and go as ever.
    a.cli("set interface state memif1/0 down");
    a.cli("set interface state memif1/0 up");
    let connected = |text: String| text.contains("connected\n");
    eventually("other sockets work", PATIENCE, || connected(a.cli("show memif memif1/0")));
    // Once the other ends are gone, this one does too.
    drop(far);
    eventually("its own socket works again", PATIENCE, || Connection::client(&a.socket(), 0).is_ok());
    a.check("sockets that have lingered");
    a.cli("packet-generator disable-stream to-memif2/0");
    a.router.stop().unwrap();
}

#[test]
fn floods_and_stalls_and_ends_in_every_state() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    // Half-open, as many as the router lets wait.
    let open: Vec<_> = (0..300).map_while(|_| Channel::dial(&a.socket()).ok()).collect();
    a.check("half-open connections");
    drop(open);
    // Every prefix of a conversation, left lying or cut off.
    let (region, events) = (memory(1 << 16), [event(), event()]);
    let until = |state: u32, id: u32| -> Result<Channel, String> {
        let channel =
            if state == 0 { Channel::dial(&a.socket()).map_err(|e| e.to_string())? } else { Channel::begin(&a.socket(), id)? };
        if state > 1 {
            channel.region(0, 1 << 16, region.as_fd())?;
        }
        if state > 2 {
            channel.ring(true, (0, 0), 6, events[0].as_fd())?;
        }
        if state > 3 {
            channel.ring(false, (0, 8192), 6, events[1].as_fd())?;
        }
        Ok(channel)
    };
    for state in 0..5 {
        for _ in 0..20 {
            let mut begun = Err(String::new());
            eventually("the interface is free again", PATIENCE, || {
                begun = until(state, state % 3);
                begun.is_ok()
            });
            drop(begun);
        }
    }
    let stalled: Vec<_> = (1..4).map(|state| until(state + 1, state - 1)).collect();
    a.check("stalled handshakes");
    // Five seconds are enough for anybody.
    eventually("stalled clients lose their interface", PATIENCE, || Connection::client(&a.socket(), 0).is_ok());
    drop(stalled);
    // A server that says nothing, and one that goes in the middle.
    let socket = listener(&a.router.folder().join("evil.sock"));
    a.cli("set interface state memif3/0 up");
    let silent = rustix::net::accept(&socket).unwrap();
    a.check("a silent server");
    drop(silent);
    for _ in 0..3 {
        drop(Connection::server(&socket));
    }
    a.check("a server that leaves");
    a.finish();
}

/// Processor time of the main thread so far.
fn main_time(router: &Router) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/stat", router.pid())).unwrap();
    let fields: Vec<u64> = stat.rsplit(')').next().unwrap().split_whitespace().filter_map(|f| f.parse().ok()).collect();
    // utime and stime stand 14th and 15th; three fields are gone, and the state is no number.
    Duration::from_millis((fields[10] + fields[11]) * 10)
}

#[test]
fn clients_that_cannot_be_taken_cost_nothing() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    use std::os::unix::fs::PermissionsExt;
    let rights = std::fs::metadata(a.socket()).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o660, "owner and group, as with the other sockets");
    let pid = rustix::process::Pid::from_raw(a.router.pid() as i32);
    let limit = |current| rustix::process::Rlimit { current: Some(current), maximum: Some(4096) };
    let resource = rustix::process::Resource::Nofile;
    rustix::process::prlimit(pid, resource, limit(a.router.usage().unwrap().descriptors as u64 + 4)).unwrap();
    let waiting: Vec<_> = (0..60).map_while(|_| Channel::dial(&a.socket()).ok()).collect();
    assert!(waiting.len() > 20);
    std::thread::sleep(Duration::from_secs(1));
    let before = main_time(&a.router);
    std::thread::sleep(Duration::from_secs(3));
    let used = main_time(&a.router) - before;
    assert!(used < Duration::from_secs(1), "{used:?} of three seconds for clients that cannot be taken");
    rustix::process::prlimit(pid, resource, limit(1024)).unwrap();
    drop(waiting);
    drop(a.client(0));
    a.check("out of descriptors");
    a.finish();
}

/// Any words in the rings, at any moment.
fn scribble(a: &mut Attacked, what: &str, mut connect: impl FnMut(&Attacked) -> Connection) {
    let seed = 0x5eed_0001_u64.wrapping_add(what.len() as u64);
    let (mut random, mut connections, mut words) = (Random(seed), 0_u64, 0_u64);
    let end = Instant::now() + attack_time();
    // On a busy machine the time may be over with the first one.
    while Instant::now() < end || connections < 2 {
        let connection = connect(a);
        connections += 1;
        let rounds = random.below(200);
        for _ in 0..rounds {
            for _ in 0..random.below(60) {
                connection.corrupt(&mut || random.next());
                words += 1;
            }
            let _ = rustix::io::write(&connection.events[0], &1_u64.to_ne_bytes());
            if connection.is_ended() {
                break;
            }
            std::thread::yield_now();
        }
    }
    println!("{what}: seed {seed:#x}, {connections} connections, {words} corrupted words");
    a.check(what);
}

#[test]
fn any_words_in_the_rings() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let mut a = Attacked::start();
    scribble(&mut a, "client", |a| a.client(0));
    let socket = listener(&a.router.folder().join("evil.sock"));
    a.cli("set interface state memif3/0 up");
    scribble(&mut a, "server", move |_| Connection::server(&socket).expect("the router comes back"));
    a.finish();
}
