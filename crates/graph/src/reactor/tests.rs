//! The loop as its users see it.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

fn new_loop() -> MainLoop {
    MainLoop::new(Clock::new()).unwrap()
}

/// A pair of connected streams, the first of them on the loop.
fn pair(main: &MainLoop) -> (AsyncFd<UnixStream>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (AsyncFd::new(main.reactor(), ours).unwrap(), theirs)
}

/// Turns until nothing is ready any more.
fn settle(main: &mut MainLoop) {
    while main.turn(Duration::from_micros(1)) > 0 {}
}

#[test]
fn an_echo_server_returns_megabytes_through_small_buffers() {
    let mut main = new_loop();
    let (server, mut client) = pair(&main);
    main.spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut buffer).await {
            server.write_all(&buffer[..count]).await.unwrap();
        }
    })
    .detach();
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let copy = sent.clone();
    let peer = std::thread::spawn(move || {
        let mut writer = client.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut received = vec![0; 3_000_000];
        client.read_exact(&mut received).unwrap();
        writing.join().unwrap();
        received
    });
    while !peer.is_finished() {
        main.turn(Duration::from_millis(1));
    }
    assert!(peer.join().unwrap() == sent);
    // The peer is gone: the task ends, and nobody waits.
    settle(&mut main);
    assert_eq!(main.reactor().waiters(), 0);
}

#[test]
fn a_listener_takes_tcp_connections() {
    let mut main = new_loop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = AsyncFd::new(main.reactor(), listener).unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"ping!").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    main.block_on(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"ping!");
        stream.write_all(b"pong!").await.unwrap();
    });
    assert_eq!(client.join().unwrap(), "pong!");
}

#[test]
fn both_directions_of_a_descriptor_can_be_waited_for_at_once() {
    let mut main = new_loop();
    let (stream, mut peer) = pair(&main);
    let stream = Rc::new(stream);
    // Fill the way out, so that writing has to wait.
    while rustix::io::write(stream.get_ref(), &[0; 4096]).is_ok() {}
    let done = Rc::new(Cell::new((false, false)));
    let (writing, flag) = (Rc::clone(&stream), Rc::clone(&done));
    main.spawn(async move {
        writing.writable().await.unwrap();
        flag.set((true, flag.get().1));
    })
    .detach();
    let (reading, flag) = (Rc::clone(&stream), Rc::clone(&done));
    main.spawn(async move {
        reading.readable().await.unwrap();
        flag.set((flag.get().0, true));
    })
    .detach();
    settle(&mut main);
    assert_eq!((done.get(), main.reactor().waiters()), ((false, false), 2));
    peer.write_all(b"x").unwrap();
    settle(&mut main);
    assert_eq!(done.get(), (false, true));
    peer.set_nonblocking(true).unwrap();
    while peer.read(&mut [0; 65536]).is_ok() {}
    settle(&mut main);
    assert_eq!((done.get(), main.reactor().waiters()), ((true, true), 0));
}

#[test]
fn timers_fire_in_the_order_of_their_due_times() {
    let mut main = new_loop();
    let clock = Arc::clone(main.reactor().clock());
    let order = Rc::new(RefCell::new(Vec::new()));
    // Far away, so that none is due before all are set, however busy the machine is.
    let hour = 3_600_000_000_000;
    let start = clock.timer_now() + hour;
    for due in [9, 3, 6, 0, 12] {
        let (reactor, order) = (Rc::clone(main.reactor()), Rc::clone(&order));
        main.spawn(async move {
            reactor.sleep_until(start + due).await;
            order.borrow_mut().push(due);
        })
        .detach();
    }
    settle(&mut main);
    assert!(order.borrow().is_empty());
    clock.adjust(hour as i64 + 1_000);
    settle(&mut main);
    assert_eq!(*order.borrow(), [0, 3, 6, 9, 12]);
}

#[test]
fn a_sleep_takes_at_least_its_time() {
    let mut main = new_loop();
    let (reactor, start) = (Rc::clone(main.reactor()), Instant::now());
    main.block_on(async move { reactor.sleep(Duration::from_millis(5)).await });
    // The clock may be a little ahead of the kernel's.
    assert!(start.elapsed() >= Duration::from_micros(4_900));
}

#[test]
fn adjusting_the_clock_makes_timers_due() {
    let mut main = new_loop();
    let clock = Arc::clone(main.reactor().clock());
    let reactor = Rc::clone(main.reactor());
    let start = Instant::now();
    let task = main.spawn(async move { reactor.sleep(Duration::from_secs(3600)).await });
    settle(&mut main);
    assert!(!task.is_finished());
    clock.adjust(3_601_000_000_000);
    settle(&mut main);
    assert!(task.is_finished() && start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_notification_from_a_thread_ends_the_wait_and_none_is_lost() {
    let mut main = new_loop();
    let notify = Notify::new().unwrap();
    let total = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (sender, count) = (Arc::clone(&notify), Arc::clone(&total));
    let thread = std::thread::spawn(move || {
        for n in 0..2_000 {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            sender.notify();
            if n % 50 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let reactor = Rc::clone(main.reactor());
    let looks = main.block_on(async move {
        let mut looks = 0;
        while total.load(std::sync::atomic::Ordering::Relaxed) < 2_000 {
            notify.notified(&reactor).await.unwrap();
            looks += 1;
        }
        looks
    });
    thread.join().unwrap();
    assert!((1..=2_000).contains(&looks));
}

#[test]
fn a_waker_used_by_another_thread_ends_the_wait() {
    let mut main = new_loop();
    let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
    let woken = std::thread::spawn(move || {
        let waker = receiver.recv().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        waker.wake();
    });
    let start = Instant::now();
    main.block_on(async move {
        let mut sent = false;
        std::future::poll_fn(|context| {
            if sent {
                return Poll::Ready(());
            }
            sent = true;
            sender.send(context.waker().clone()).unwrap();
            Poll::Pending
        })
        .await;
    });
    woken.join().unwrap();
    // The loop would sleep for an hour.
    assert!(start.elapsed() < Duration::from_secs(1800));
}

#[test]
fn a_descriptor_cancelled_while_awaited_gives_an_error() {
    let mut main = new_loop();
    let (stream, _peer) = pair(&main);
    let stream = Rc::new(stream);
    let reading = Rc::clone(&stream);
    let task = main.spawn(async move { reading.read(&mut [0; 8]).await });
    settle(&mut main);
    assert!(!task.is_finished());
    stream.cancel();
    settle(&mut main);
    assert_eq!(main.reactor().waiters(), 0);
    let error = main.block_on(task).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
}

#[test]
fn a_number_closed_behind_our_back_and_used_again_waits_for_the_new_file() {
    let mut main = new_loop();
    let reactor = Rc::clone(main.reactor());
    let (first, first_peer) = UnixStream::pair().unwrap();
    let (second, mut second_peer) = UnixStream::pair().unwrap();
    let first = Rc::new(first);
    let (waiting, on) = (Rc::clone(&first), Rc::clone(&reactor));
    let task = main.spawn(async move { on.readable(waiting.as_fd()).await });
    settle(&mut main);
    drop(task);
    settle(&mut main);
    // The number stays known to the reactor; the file behind it changes.
    let mut first = Rc::into_inner(first).map(std::os::fd::OwnedFd::from).unwrap();
    rustix::io::dup2(&second, &mut first).unwrap();
    drop((first_peer, second));
    let stream = UnixStream::from(first);
    let task = main.spawn(async move { reactor.readable(stream.as_fd()).await });
    settle(&mut main);
    assert!(!task.is_finished(), "the old file's hang-up is none of its business");
    second_peer.write_all(b"x").unwrap();
    main.block_on(task).unwrap();
}

#[test]
fn a_peer_that_hangs_up_ends_reading_and_writing() {
    let mut main = new_loop();
    let (stream, peer) = pair(&main);
    let task = main.spawn(async move {
        let read = stream.read(&mut [0; 8]).await.unwrap();
        (read, stream.write_all(&[0; 8]).await.unwrap_err().kind())
    });
    settle(&mut main);
    drop(peer);
    assert_eq!(main.block_on(task), (0, io::ErrorKind::BrokenPipe));
}

#[test]
fn a_file_is_always_ready() {
    let mut main = new_loop();
    let reactor = Rc::clone(main.reactor());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    main.block_on(async move { reactor.readable(file.as_fd()).await.unwrap() });
}

#[test]
fn a_thousand_tasks_that_yield_get_equal_shares() {
    let mut main = new_loop();
    let steps: Rc<Vec<Cell<u32>>> = Rc::new((0..1_000).map(|_| Cell::new(0)).collect());
    for task in 0..1_000 {
        let steps = Rc::clone(&steps);
        main.spawn(async move {
            loop {
                steps[task].set(steps[task].get() + 1);
                yield_now().await;
            }
        })
        .detach();
    }
    let mut total = 0;
    while total < 20_000 {
        total += main.turn(Duration::ZERO);
        let shares = steps.iter().map(Cell::get);
        let (least, most) = (shares.clone().min().unwrap(), shares.max().unwrap());
        assert!(most - least <= 1, "{least} to {most}");
    }
}

#[test]
fn a_turn_keeps_to_its_budget_and_goes_on_in_the_next() {
    let mut main = new_loop();
    main.set_budget(Duration::from_micros(200));
    let reactor = Rc::clone(main.reactor());
    let task = main.spawn(async move {
        for _ in 0..10 {
            let until = reactor.clock().now() + 100_000;
            while reactor.clock().now() < until {
                std::hint::spin_loop();
            }
            yield_now().await;
        }
    });
    let mut turns = 0;
    while !task.is_finished() {
        // Steps of 100 µs in a budget of 200: two, or less on a busy machine.
        assert!((1..=2).contains(&main.turn(Duration::ZERO)));
        turns += 1;
    }
    assert!(turns >= 5);
}

#[test]
fn a_peer_that_is_always_ready_does_not_starve_other_tasks() {
    let mut main = new_loop();
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let zeros = AsyncFd::new(main.reactor(), zeros).unwrap();
    main.spawn(async move { while zeros.read(&mut [0; 16]).await.is_ok() {} }).detach();
    main.block_on(async { yield_now().await });
}

#[test]
fn a_loop_dropped_with_waiting_tasks_drops_what_they_hold() {
    let main = new_loop();
    let (stream, mut peer) = pair(&main);
    let handle = main.handle();
    let inner = handle.clone();
    assert!(handle.spawn(async move {
        let _keep = inner;
        let _ = stream.read(&mut [0; 8]).await;
    }));
    let mut main = main;
    settle(&mut main);
    drop(main);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    assert!(!handle.spawn(async {}));
}
