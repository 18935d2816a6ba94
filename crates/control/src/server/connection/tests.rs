use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use quiver_command::operation::{Job, Live, OpError, Operation, Outcome, Registry, Step};
use quiver_graph::clock::Clock;
use quiver_graph::reactor::MainLoop;

use super::*;
use crate::server::{Peer, SessionKind, Sessions};

/// Waits for another thread, which never answers, as a disk that hangs does not.
struct Hang;
struct HangJob {
    cancelled: bool,
}

/// Whether a job hangs, and whether one was cancelled.
type Control = (bool, bool);

impl Operation<Control> for Hang {
    const NAME: &'static str = "hang";
    type Request = ();
    type Reply = String;
    fn run(control: &mut Control, (): ()) -> Result<Outcome<Control, String>, OpError> {
        control.0 = true;
        Ok(Outcome::job(HangJob { cancelled: false }))
    }
}

impl Job<Control, String> for HangJob {
    fn step(&mut self, _: &mut Control, _: Duration) -> Step<String> {
        if self.cancelled { Step::Done(Err(OpError::unspecified("cancelled"))) } else { Step::Wait }
    }
    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        std::task::Poll::Pending
    }
    fn exclusive(&self) -> bool {
        false
    }
    fn cancel(&mut self, control: &mut Control) {
        (self.cancelled, control.1) = (true, true);
    }
}

#[test]
fn a_client_is_seen_to_go_while_its_operation_waits_however_much_it_has_sent() {
    for more in [0, 4 << 20] {
        let mut registry = Registry::new();
        registry.operation::<Hang>();
        let mut main = MainLoop::new(Clock::new()).expect("main loop");
        let control = Rc::new(RefCell::new((false, false)));
        let engine = Engine::new(Rc::clone(&control), Live::new(Rc::new(registry)), Rc::clone(main.reactor()));
        let (mut client, ours) = UnixStream::pair().expect("sockets");
        client.set_nonblocking(true).expect("mode");
        ours.set_nonblocking(true).expect("mode");
        let wire = AsyncFd::new(main.reactor(), ours).expect("socket");
        let handle = Sessions::default().admit(SessionKind::Json, Peer::Unknown, None).expect("a place");
        let _task = main.spawn(serve(engine, wire, Session::json(), handle));
        client.write_all(b"{\"op\":\"hang\"}\n").expect("request");
        while !control.borrow().0 {
            main.turn(Duration::from_millis(1));
        }
        let mut left = more;
        let begin = Instant::now();
        while begin.elapsed() < LOOK * 3 {
            // It goes on sending until no more is taken.
            left -= client.write(&b"x\n".repeat(left.min(CHUNK) / 2)).unwrap_or(0);
            main.turn(Duration::from_millis(1));
        }
        assert_eq!(*control.borrow(), (true, false), "{more}");
        assert!(more == 0 || left > 0, "all was taken");
        drop(client);
        let begin = Instant::now();
        while !control.borrow().1 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{more}: nobody noticed");
            main.turn(Duration::from_millis(10));
        }
    }
}
