//! The side that asks: the router.
//!
//! A request waits for its answer for a bounded time, since the main thread does the waiting. A helper that takes longer is
//! given up for good: its late answer would be taken for that of the next request.

use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quiver_drivers::fast_path::{FastPathFds, PROGRAMS};
use quiver_drivers::rights::{NamespaceFds, RedirectFds, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType, recvmsg,
    send, socketpair,
};

use super::MARK;
use super::message::{FDS_MAX, REPLY, Reply, Request};
use super::server::READY;

/// How long the helper may take. It needs a few milliseconds, but the machine may have other things to do; the watchdog allows a thread
/// that waits a little more.
const PATIENCE: Duration = Duration::from_secs(4);
/// The same for the fast path, whose maps and program take half a second of a processor that others may be using. A thread of its own asks.
const LONG_PATIENCE: Duration = Duration::from_secs(30);

/// Longest sentence about why it does not start.
const ERROR_MAX: u64 = 500;

/// The helper, as the router sees it.
pub struct Helper {
    state: Mutex<State>,
    pid: u32,
    patience: Duration,
}

struct State {
    /// `None` once it is given up.
    socket: Option<OwnedFd>,
    child: Option<Child>,
    /// Why it was given up.
    lost: &'static str,
    requests: u64,
}

/// Starts the helper: the program itself, with `words` behind [`MARK`].
///
/// # Errors
/// The operating system's.
pub fn start(words: &[String]) -> io::Result<Helper> {
    let (ours, theirs) = pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(MARK).args(words).env_clear().current_dir("/");
    // It holds no terminal and no log of ours: what it has to say at its start comes by standard output. Ctrl-C is meant for the
    // router.
    command.stdin(Stdio::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    // Our copy of its end goes with the command, or its end would never be seen.
    drop(command);
    let mut said = [0; 1];
    let mut output = child.stdout.take().ok_or_else(|| io::Error::other("it has no standard output"))?;
    if output.read(&mut said)? != 1 || said != *READY {
        let mut text = Vec::from(said);
        output.take(ERROR_MAX).read_to_end(&mut text)?;
        let status = child.wait()?;
        return Err(io::Error::other(format!("{} ({status})", String::from_utf8_lossy(&text).trim_end().trim_matches('\0'))));
    }
    Ok(Helper::new(ours, Some(child)))
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Helper {
    fn new(socket: OwnedFd, child: Option<Child>) -> Self {
        let pid = child.as_ref().map_or(0, Child::id);
        Self { state: Mutex::new(State { socket: Some(socket), child, lost: "", requests: 0 }), pid, patience: PATIENCE }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Requests that were answered.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Why there is no helper any more; `None` while it is there.
    pub fn lost(&self) -> Option<&'static str> {
        let mut state = self.lock();
        if state.socket.as_ref().is_some_and(has_ended) {
            state.give_up("it has ended");
        }
        if state.socket.is_none() {
            state.take_note();
        }
        state.socket.is_none().then_some(state.lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and gives the flags and descriptors of a good answer.
    fn ask(&self, request: &Request) -> io::Result<(u32, Vec<OwnedFd>)> {
        let mut state = self.lock();
        let answer = match &state.socket {
            None => Err(state.lost),
            Some(socket) => exchange(socket, request, self.patience),
        };
        match answer {
            Ok((Reply::Done { flags }, fds)) if fds.len() == request.fds() => {
                state.requests += 1;
                Ok((flags, fds))
            }
            Ok((Reply::Failed(number), fds)) if fds.is_empty() => {
                state.requests += 1;
                Err(io::Error::from_raw_os_error(number))
            }
            Ok(_) => Err(state.give_up("it answered nonsense")),
            Err(why) => Err(state.give_up(why)),
        }
    }
}

impl State {
    /// It ends when its socket closes, and a process that has ended is to be taken note of.
    fn take_note(&mut self) {
        if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            self.child = None;
        }
    }

    fn give_up(&mut self, why: &'static str) -> io::Error {
        if self.socket.take().is_some() {
            self.lost = why;
            tracing::error!(target: "privilege", "the privileged helper is lost: {why}; TAP interfaces in other namespaces and AF_XDP \
                interfaces cannot be made until the router is started anew");
        }
        self.take_note();
        io::Error::other(format!("the privileged helper is lost ({}): start the router anew", self.lost))
    }
}

/// Whether the other end is closed.
fn has_ended(socket: &OwnedFd) -> bool {
    wait(socket, Duration::ZERO).is_ok_and(|events| events.intersects(PollFlags::HUP | PollFlags::ERR))
}

fn wait(socket: &OwnedFd, bound: Duration) -> io::Result<PollFlags> {
    let bound = Timespec { tv_sec: bound.as_secs() as i64, tv_nsec: i64::from(bound.subsec_nanos()) };
    let mut entry = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut entry, Some(&bound))?;
    Ok(entry[0].revents())
}

fn exchange(socket: &OwnedFd, request: &Request, patience: Duration) -> Result<(Reply, Vec<OwnedFd>), &'static str> {
    // There is one request at a time, so there is room for it.
    send(socket, &request.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map_err(|_| "it has ended")?;
    let end = Instant::now() + if *request == Request::FastPath { LONG_PATIENCE } else { patience };
    loop {
        match wait(socket, end.saturating_duration_since(Instant::now())) {
            Ok(events) if events.is_empty() => return Err("it did not answer in time"),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err("its socket failed"),
        }
    }
    let mut bytes = [0; REPLY];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).map_err(|_| "its socket failed")?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Err("it has ended");
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err("its descriptors did not all arrive: the limit of open files");
    }
    let reply = Reply::parse(&bytes[..got.bytes]).map_err(|_| "it answered nonsense")?;
    Ok((reply, fds))
}

impl Rights for Helper {
    fn namespace(&self, namespace: &str, queues: u32) -> io::Result<NamespaceFds> {
        let (_, fds) = self.ask(&checked(Request::Namespace { namespace: namespace.to_owned(), queues })?)?;
        let mut fds = fds.into_iter();
        match (fds.next(), fds.next(), fds.next()) {
            (Some(devices), Some(netlink), Some(stream)) => Ok(NamespaceFds { devices, netlink, stream, queues: fds.collect() }),
            _ => Err(io::Error::other("the privileged helper gave no descriptors")),
        }
    }

    fn fast_path(&self) -> io::Result<FastPathFds> {
        let (_, fds) = self.ask(&Request::FastPath)?;
        let mut fds = fds.into_iter();
        let programs: Vec<OwnedFd> = fds.by_ref().take(PROGRAMS.len()).collect();
        match (programs.try_into(), fds.collect::<Vec<_>>().try_into()) {
            (Ok(programs), Ok(maps)) => Ok(FastPathFds { programs, maps }),
            _ => Err(io::Error::other("the privileged helper gave no descriptors")),
        }
    }

    fn redirect(&self, queues: u32) -> io::Result<RedirectFds> {
        let (flags, fds) = self.ask(&checked(Request::Redirect { queues })?)?;
        match <[OwnedFd; 2]>::try_from(fds) {
            Ok([map, program]) => Ok(RedirectFds { map, program, frags: flags & 1 != 0 }),
            Err(_) => Err(io::Error::other("the privileged helper gave no descriptors")),
        }
    }
}

/// What the helper would refuse is refused here.
fn checked(request: Request) -> io::Result<Request> {
    Request::parse(&request.bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use quiver_drivers::fast_path::MAPS;
    use rustix::net::recv;

    use super::super::server::testing::answer_on_a_thread;
    use super::*;

    /// Answers with descriptors of nothing in particular.
    struct Made;

    impl Rights for Made {
        fn namespace(&self, namespace: &str, queues: u32) -> io::Result<NamespaceFds> {
            match namespace {
                "here" => {
                    let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
                    Ok(NamespaceFds {
                        devices: null()?,
                        netlink: null()?,
                        stream: null()?,
                        queues: (0..queues).map(|_| null()).collect::<Result<_, _>>()?,
                    })
                }
                _ => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            }
        }

        fn redirect(&self, queues: u32) -> io::Result<RedirectFds> {
            let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
            Ok(RedirectFds { map: null()?, program: null()?, frags: queues == 64 })
        }

        fn fast_path(&self) -> io::Result<FastPathFds> {
            let null = || std::fs::File::open("/dev/null").map(OwnedFd::from);
            let maps: Vec<OwnedFd> = MAPS.iter().map(|_| null()).collect::<io::Result<_>>()?;
            let maps = maps.try_into().map_err(|_| io::Error::other("another number"))?;
            Ok(FastPathFds { programs: [null()?, null()?, null()?], maps })
        }
    }

    /// Its other end is a thread of this process, whose tests keep one another waiting.
    fn patient(socket: OwnedFd) -> Helper {
        Helper { patience: Duration::from_secs(120), ..Helper::new(socket, None) }
    }

    #[test]
    fn descriptors_and_errors_come_back_and_the_helper_ends_with_its_client() {
        let (ours, theirs) = pair().unwrap();
        let thread = answer_on_a_thread(theirs, Made);
        let helper = patient(ours);
        for queues in [1, 2, 64] {
            assert_eq!(helper.namespace("here", queues).unwrap().queues.len(), queues as usize);
            assert_eq!(helper.redirect(queues).unwrap().frags, queues == 64);
        }
        assert_eq!(helper.fast_path().unwrap().maps.len(), MAPS.len());
        assert!(helper.namespace("here", 0).unwrap().queues.is_empty());
        assert_eq!(helper.namespace("there", 1).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        for (namespace, queues) in [("", 1), ("a\0b", 1), ("here", 65)] {
            assert_eq!(helper.namespace(namespace, queues).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        assert_eq!((helper.requests(), helper.lost()), (9, None));
        drop(helper);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn bytes_that_are_no_request_are_refused_and_the_next_is_answered() {
        let (ours, theirs) = pair().unwrap();
        let thread = answer_on_a_thread(theirs, Made);
        for bytes in [&[0_u8][..], &[1; 8], &[0xff; 5000], &Request::Redirect { queues: 65 }.bytes()] {
            send(&ours, bytes, SendFlags::empty()).unwrap();
            let mut answer = [0; 64];
            let (got, _) = recv(&ours, answer.as_mut_slice(), RecvFlags::empty()).unwrap();
            assert_eq!(Reply::parse(&answer[..got]), Ok(Reply::Failed(libc::EINVAL)));
        }
        let helper = patient(ours);
        helper.redirect(1).unwrap();
        drop(helper);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_helper_that_has_ended_or_talks_nonsense_is_given_up_for_good() {
        let (ours, theirs) = pair().unwrap();
        let helper = Helper::new(ours, None);
        drop(theirs);
        assert_eq!(helper.lost(), Some("it has ended"));
        let (ours, theirs) = pair().unwrap();
        let helper = Helper::new(ours, None);
        send(&theirs, b"nonsense!", SendFlags::empty()).unwrap();
        let error = helper.redirect(1).unwrap_err();
        assert_eq!((error.raw_os_error(), error.to_string().contains('\n')), (None, false));
        assert!(helper.lost().is_some());
        // A good answer that comes too late is not read.
        assert!(helper.redirect(1).is_err());
    }

    #[test]
    fn a_helper_that_does_not_answer_is_given_up() {
        let (ours, theirs) = pair().unwrap();
        let helper = Helper::new(ours, None);
        let error = helper.redirect(1).unwrap_err().to_string();
        assert!(error.contains("did not answer in time"), "{error}");
        drop(theirs);
    }
}
