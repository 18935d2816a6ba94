//! Full tables learned and changed while the router forwards at 80 % of what it can.
//!
//! `cargo bench -p quiver-testbed --bench churn [-- SECONDS [CHANGES-A-SECOND [PREFIXES]]]`
//!
//! Starts a router (`QUIVER_BIN`, or the release build) with one worker on processor 1; the main thread, the reader of routes and the
//! announcer of this program share processor 0. Packets come from the packet generator, so that they are made by the worker itself. Then:
//!
//! 1. a full table of both families is announced by FPM, as fast as it is read, without packets; capacity is measured with it;
//! 2. again with packets at 80 % of the capacity, by FPM and by the kernel (netlink), learned and withdrawn;
//! 3. that many changes a second (100,000) are announced for that many seconds (60; 3600 for the long form), with packets: half
//!    of them another neighbour, a quarter withdrawn, a quarter announced again. Then the table is as in the beginning.
//!
//! For each: packets lost, how long the worker did not look at its devices (`show runtime absences`), the longest answer of a command
//! that reads counters, memory. Needs root.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use quiver_tables::synth::Random;
use quiver_testbed::churn::{Prefixes, Scene};
use quiver_testbed::pin_thread;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Of the capacity.
const SHARE: f64 = 0.8;
/// Between two batches of changes.
const TICK: Duration = Duration::from_millis(10);
/// Between two looks at counters.
const LOOK: Duration = Duration::from_millis(500);

fn main() -> Outcome<()> {
    // `cargo bench` adds a word of its own.
    let mut numbers = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(|word| word.parse::<u64>());
    let seconds = numbers.next().transpose()?.unwrap_or(60);
    let rate = numbers.next().transpose()?.unwrap_or(100_000);
    let most = numbers.next().transpose()?.unwrap_or(u64::MAX);
    let (prefixes, origin) = Prefixes::full(usize::try_from(most).unwrap_or(usize::MAX));
    println!("{} {origin} prefixes of IPv4, {} of IPv6", prefixes.four.len(), prefixes.six.len());
    let conf = "cpu { main-core 0 corelist-workers 1 }\nlinux-nl { rx-buffer-size 512m }";
    let mut scene = Scene::new(prefixes, conf)?;
    pin_thread(0)?;
    let empty = scene.forwarded_by()?;
    println!("memory without routes: {}", memory(&scene)?);

    load(&mut scene, "FPM, no packets", true, None, empty)?;
    scene.send(None)?;
    thread::sleep(Duration::from_secs(3));
    let began = Instant::now();
    let before = scene.packets()?.sent;
    thread::sleep(Duration::from_secs(3));
    let capacity = (scene.packets()?.sent - before) as f64 / began.elapsed().as_secs_f64();
    scene.stop()?;
    let packets = (capacity * SHARE) as u64;
    println!("capacity with the full table: {capacity:.0} packets a second; from here on {packets} are sent");
    scene.router.cli("lcp fpm listen off")?;
    scene.forget();
    scene.until("routes go", || match scene.forwarded_by()? {
        n if n == empty => Ok(()),
        n => Err(format!("{n} are left")),
    })?;

    let mut kernel = load(&mut scene, "netlink", false, Some(packets), empty)?;
    let began = Instant::now();
    watched(&mut scene, "netlink, withdrawn", Some(packets), |scene| {
        scene.withdraw_all(&mut kernel)?;
        settle(scene, empty)
    })?;
    println!("  all gone after {:.2} s", began.elapsed().as_secs_f64());
    scene.router.cli("lcp fpm listen 127.0.0.1:2620 hold-time 3600")?;
    let mut stream = load(&mut scene, "FPM", true, Some(packets), empty)?;

    let mut random = Random::new(1);
    // Once around, so that tables have the size that they need.
    scene.change(&mut stream, &mut random, 200_000)?;
    scene.announce_all(&mut stream)?;
    settle(&mut scene, empty)?;
    let before = scene.router.usage()?;
    let applied = changes(&scene)?;
    let (mut said, mut behind) = (0_u64, Duration::ZERO);
    watched(&mut scene, &format!("{rate} changes a second for {seconds} s"), Some(packets), |scene| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            scene.change(&mut stream, &mut random, (due - said) as usize)?;
            said = due;
            thread::sleep(TICK);
        }
        let ended = Instant::now();
        settle(scene, empty)?;
        behind = ended.elapsed();
        Ok(())
    })?;
    println!(
        "  {said} changes announced, {} made in the router's tables, the last one {:.2} s after",
        changes(&scene)? - applied,
        behind.as_secs_f64()
    );
    scene.announce_all(&mut stream)?;
    settle(&mut scene, empty)?;
    let drift = scene.router.cli("show lcp drift")?;
    println!("  {}", drift.lines().next().unwrap_or_default());
    let after = scene.router.usage()?;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "  memory before {:.1} MB, after {:.1} MB (own: {:.1}, {:.1})",
        mb(before.memory()),
        mb(after.memory()),
        mb(before.own),
        mb(after.own)
    );
    drop((stream, kernel));
    scene.router.stop()?;
    Ok(())
}

fn memory(scene: &Scene) -> Outcome<String> {
    Ok(format!("{:.0} MB", scene.router.usage()?.memory() as f64 / 1e6))
}

/// Changes of routes that the router has made.
fn changes(scene: &Scene) -> Outcome<u64> {
    Ok(scene.json("show lcp netlink")?["changed_routes"].as_u64().ok_or("no number")?)
}

/// Waits until the router forwards by all that is announced.
fn settle(scene: &mut Scene, empty: usize) -> Outcome<()> {
    let expected = scene.announced();
    scene.until("all is in the router", || match (scene.installed()?, scene.forwarded_by()?) {
        (told, n) if told >= expected && n == empty + expected => Ok(()),
        (told, n) => Err(format!("{told} told, {n} of {} there", empty + expected)),
    })?;
    Ok(())
}

/// Announces all prefixes; gives who has.
fn load(scene: &mut Scene, name: &str, by_stream: bool, packets: Option<u64>, empty: usize) -> Outcome<quiver_testbed::Announcer> {
    let mut to = scene.announcer(by_stream)?;
    let began = Instant::now();
    let mut said = Duration::ZERO;
    watched(scene, &format!("{name}: {} prefixes", scene.len()), packets, |scene| {
        scene.announce_all(&mut to)?;
        said = began.elapsed();
        settle(scene, empty)
    })?;
    println!(
        "  announced after {:.2} s, all there after {:.2} s, memory {}",
        said.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        memory(scene)?
    );
    Ok(to)
}

/// Does something with so many packets a second, and prints what it did to them.
fn watched(scene: &mut Scene, name: &str, packets: Option<u64>, work: impl FnOnce(&mut Scene) -> Outcome<()>) -> Outcome<()> {
    println!("{name}");
    if let Some(packets) = packets {
        scene.send(Some(packets))?;
    }
    let socket = scene.router.socket();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let answers = thread::scope(|scope| -> Outcome<Vec<Duration>> {
        let reader = scope.spawn(|| {
            let mut answers = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let began = Instant::now();
                let answer =
                    quiver_testbed::Vppctl::connect(&socket).and_then(|mut c| c.command("show interface", Duration::from_secs(60)));
                if answer.is_ok_and(|text| text.contains("pg1")) {
                    answers.push(began.elapsed());
                }
                thread::sleep(LOOK);
            }
            answers
        });
        let done = work(scene);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let answers = reader.join().map_err(|_| "the reader of counters panicked")?;
        done.map(|()| answers)
    })?;
    if packets.is_some() {
        let packets = scene.stop()?;
        println!("  {} packets, {} lost", packets.received, packets.lost());
        absences(scene)?;
    }
    let longest = answers.iter().max().copied().unwrap_or_default();
    println!("  {} answers of `show interface', the longest after {:.1} ms", answers.len(), longest.as_secs_f64() * 1e3);
    Ok(())
}

/// How long the worker did not look at its devices.
fn absences(scene: &Scene) -> Outcome<()> {
    let shown = scene.json("show runtime absences")?;
    let threads = shown["threads"].as_array().ok_or("no threads")?;
    let worker = threads.iter().find(|thread| thread["thread"] == 1).ok_or("no worker")?;
    let figures = &worker["absences"];
    for kind in ["own", "preempted"] {
        let longest = figures[format!("longest_{kind}_ns")].as_u64().unwrap_or(0) as f64 / 1e3;
        let classes = figures["classes"].as_array().into_iter().flatten();
        let classes = classes.filter(|class| class[kind] != 0).map(|class| match class["below_us"].as_u64() {
            Some(below) => format!("{} of {} to {below} us", class[kind], class["from_us"]),
            None => format!("{} of {} us and more", class[kind], class["from_us"]),
        });
        println!("  worker away ({kind}): longest {longest:.1} us; {}", classes.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}
