//! One client: moves bytes between its socket and its session, and runs what the session asks for.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use quiver_command::session::{Event, Request, Session, TERMINAL_TYPE_WAIT};
use quiver_graph::reactor::{AsyncFd, yield_now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::sessions::{End, SessionHandle};
use crate::audit;
use crate::engine::{Engine, Progress, Running};

/// Read at once.
const CHUNK: usize = 16 << 10;
/// How often it is looked whether a client is still there, while its operation runs.
const LOOK: Duration = Duration::from_millis(100);

/// Moves bytes to and from a client. A terminal puts its own translation between.
pub trait Wire {
    /// Reads what is there, without waiting.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes what there is room for, without waiting.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits until there is something to read.
    fn readable(&self) -> impl Future<Output = io::Result<()>>;
    /// Waits until there is room to write.
    fn writable(&self) -> impl Future<Output = io::Result<()>>;
    /// Whether the client is gone for good, as far as can be told without reading.
    fn hung_up(&self) -> bool;
}

impl<T: AsFd> Wire for AsyncFd<T> {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.get_ref(), buffer)?)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.get_ref(), bytes)?)
    }

    async fn readable(&self) -> io::Result<()> {
        Self::readable(self).await
    }

    async fn writable(&self) -> io::Result<()> {
        Self::writable(self).await
    }

    fn hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.get_ref(), PollFlags::empty())];
        let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        ready.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

/// Serves a client until it is gone and nothing runs for it any more.
pub async fn serve<C: 'static>(engine: Engine<C>, wire: impl Wire, session: Session, handle: SessionHandle) {
    let terminal_type_due = session.awaits_terminal_type().then(|| Instant::now() + TERMINAL_TYPE_WAIT);
    let mut connection = Connection {
        engine: engine.asked_by(handle.asking()),
        wire,
        session,
        handle,
        running: None,
        audited: None,
        gone: false,
        ended: false,
        looked: Instant::now(),
        terminal_type_due,
    };
    while !connection.over() {
        if connection.advance() {
            yield_now().await;
        } else if !connection.over() {
            connection.wait().await;
        }
    }
}

struct Connection<C, W> {
    engine: Engine<C>,
    wire: W,
    session: Session,
    /// What others know of it.
    handle: SessionHandle,
    running: Option<Running<C>>,
    /// What the log is to be told of it.
    audited: Option<String>,
    /// Nobody reads any more.
    gone: bool,
    /// Nothing more will be sent to us.
    ended: bool,
    /// When it was last looked whether the client is there.
    looked: Instant,
    terminal_type_due: Option<Instant>,
}

impl<C: 'static, W: Wire> Connection<C, W> {
    fn over(&self) -> bool {
        self.running.is_none() && (self.gone || self.session.finished())
    }

    /// Does what can be done now; `false` if that was nothing.
    fn advance(&mut self) -> bool {
        let mut busy = self.events();
        busy |= self.step();
        busy |= self.write();
        busy |= self.read();
        self.look();
        self.handle.note(busy, self.session.output().len(), self.running.is_some());
        busy
    }

    /// A busy operation must not go on for a client that is gone, or that was told to go.
    fn look(&mut self) {
        if self.gone {
            return;
        }
        if let Some(end) = self.handle.end() {
            return self.dismiss(end);
        }
        if self.running.is_some() && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if self.wire.hung_up() {
                self.vanish();
            }
        }
    }

    /// Ends the session, and says why where that can be said at once.
    fn dismiss(&mut self, end: End) {
        self.session.farewell(&end.to_string());
        self.write();
        self.vanish();
    }

    fn events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.session.next_event() {
            any = true;
            match event {
                Event::Request(Request::Complete { line, cursor }) => {
                    let completion = self.engine.complete(&line, cursor);
                    self.session.completed(completion);
                }
                Event::Request(request) => {
                    self.audited = self.engine.audit_of(&request);
                    self.running = Some(self.engine.start(request));
                }
                Event::Interrupt => self.cancel(),
                Event::KeyPress => {
                    if self.running.as_ref().is_some_and(Running::only_watches) {
                        self.cancel();
                        self.session.discard_typed();
                    }
                }
            }
        }
        any
    }

    fn cancel(&mut self) {
        if let Some(running) = &mut self.running {
            running.cancel();
        }
    }

    fn vanish(&mut self) {
        self.gone = true;
        self.cancel();
    }

    fn step(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        // A client that does not read waits for itself: nobody else waits for its script. What cannot stop here prints little.
        if self.session.congested() && !self.gone && running.release() {
            return false;
        }
        match running.step() {
            Progress::Again => {}
            Progress::Blocked => return false,
            Progress::Print(text) => self.session.print(&text),
            Progress::Done(result) => {
                self.running = None;
                if let (Some(what), Some(who)) = (self.audited.take(), self.handle.who()) {
                    audit::tell(who, &what, &result);
                }
                self.session.set_candidate(self.handle.has_candidate());
                self.session.answer(result);
            }
        }
        true
    }

    fn write(&mut self) -> bool {
        if self.gone || self.session.output().is_empty() {
            return false;
        }
        match self.wire.send(self.session.output()) {
            Ok(0) => self.vanish(),
            Ok(written) => self.session.wrote(written),
            Err(error) if blocked(&error) => return false,
            Err(_) => self.vanish(),
        }
        true
    }

    fn read(&mut self) -> bool {
        if self.gone || self.ended || !self.session.wants_input() {
            return false;
        }
        let mut buffer = [0; CHUNK];
        match self.wire.receive(&mut buffer) {
            Ok(0) => {
                self.ended = true;
                self.session.end_of_input();
            }
            Ok(count) => {
                if let Some(bytes) = buffer.get(..count) {
                    self.session.receive(bytes);
                }
            }
            Err(error) if blocked(&error) => return false,
            Err(_) => self.vanish(),
        }
        true
    }

    /// Waits until [`advance`](Self::advance) can do something.
    async fn wait(&mut self) {
        let reactor = std::rc::Rc::clone(self.engine.reactor());
        let reads = !self.gone && !self.ended && self.session.wants_input();
        let writes = !self.gone && !self.session.output().is_empty();
        let congested = self.session.congested() && !self.gone;
        let runs = self.running.as_mut().is_some_and(|running| !congested || !running.release());
        // Whoever is read from is seen to go.
        let watches = self.running.is_some() && !self.gone && (!reads || congested);
        let due = self.terminal_type_due.filter(|_| self.session.awaits_terminal_type());

        // One that works, or whose answer is on its way, is not idle; one that does not read it is.
        let idle = if self.gone || runs { None } else { self.handle.idle_out() };

        let (wire, running, handle, gone) = (&self.wire, &mut self.running, &self.handle, self.gone);
        let read = async {
            match reads {
                true => wire.readable().await.is_ok(),
                false => std::future::pending().await,
            }
        };
        let write = async {
            match writes {
                true => wire.writable().await.is_ok(),
                false => std::future::pending().await,
            }
        };
        let run = async {
            match running.as_mut().filter(|_| runs) {
                Some(running) => running.wait().await,
                None => std::future::pending().await,
            }
            true
        };
        let look = async {
            match (due, watches) {
                (Some(due), _) => reactor.sleep(due.saturating_duration_since(Instant::now())).await,
                (None, true) => reactor.sleep(LOOK).await,
                (None, false) => std::future::pending().await,
            }
            true
        };
        let end = async {
            match (gone, idle) {
                // It has been told already; what still runs ends by itself.
                (true, _) => std::future::pending().await,
                (false, Some(left)) => or(handle.ended(), reactor.sleep(left)).await,
                (false, None) => handle.ended().await,
            }
            true
        };
        let fine = or(or(or(read, write), or(run, look)), end).await;
        if !fine || (watches && self.wire.hung_up()) {
            self.vanish();
        }
        if !self.gone && idle.is_some() && self.handle.idle_out().is_some_and(|left| left.is_zero()) {
            self.handle.dismiss(End::Idle);
        }
        if due.is_some_and(|due| Instant::now() >= due) {
            // It may have said so in time, while this thread was kept from reading.
            self.read();
            self.session.terminal_type_timeout();
            self.terminal_type_due = None;
        }
    }
}

fn blocked(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
