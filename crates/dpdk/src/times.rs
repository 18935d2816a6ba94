//! Frames with the times at which they left a device and came to one, by the clock of its card.
//!
//! ```text
//!   TimedTx ──► device ═══ whatever is measured ═══ device ──► queues (the graph's) ──► Listener ──► TimedRx
//!      ▲           │                                               what matches, with its time
//!      └─ left at ─┘
//! ```
//!
//! A card holds one departure at a time (`rte_eth_timesync_read_tx_timestamp`), so a frame waits until that of the one before is
//! known. Received frames have their times in their mbufs (`RTE_ETH_RX_OFFLOAD_TIMESTAMP`), all of them.
//!
//! A thread outside the graph sends these frames and reads their times. It uses the device as a visitor (D1).

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::ffi::{self, Part, Received};

/// Longest wait for the time at which a frame left; it has none then.
const PATIENCE: Duration = Duration::from_millis(20);
/// Most received frames that wait to be read.
const WAITING: usize = 1 << 14;

/// A received frame with its time, ns of the card's clock.
type Came = (Vec<u8>, Option<u64>);

/// Which frames are looked for.
pub type Takes = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Frames that are looked for, and those found.
struct Search {
    takes: Takes,
    found: VecDeque<Came>,
}

/// Who is shown what a device receives; mostly nobody.
#[derive(Default)]
pub struct Listener {
    on: AtomicBool,
    search: Mutex<Option<Search>>,
}

impl Listener {
    /// Whether there is somebody.
    #[inline(always)]
    pub fn listens(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn search(&self) -> MutexGuard<'_, Option<Search>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, takes: Takes) {
        *self.search() = Some(Search { takes, found: VecDeque::new() });
        self.on.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
        *self.search() = None;
    }

    fn next(&self) -> Option<Came> {
        self.search().as_mut()?.found.pop_front()
    }

    /// Keeps a frame that is looked for. Where too many wait, it is as one that has no time.
    fn look(&self, frame: &[u8], time: impl FnOnce() -> Option<u64>) {
        if let Some(search) = &mut *self.search()
            && (search.takes)(frame)
            && search.found.len() < WAITING
        {
            search.found.push_back((frame.to_vec(), time()));
        }
    }
}

/// Shows a burst, before its buffers are handed over. Frames of several segments are none that are looked for.
#[cold]
pub(crate) fn show(listener: &Listener, received: &Received) {
    let mut at = 0;
    for count in &received.count[..received.packets as usize] {
        // SAFETY: a buffer that the shim has just received; its mbuf describes it until it is received into again.
        unsafe { show_mbuf(listener, ffi::qd_mbuf_of(received.segment[at].buffer)) };
        at += usize::from(*count);
    }
}

/// Shows a frame.
///
/// # Safety
/// The mbuf was received, and neither it nor its bytes have been handed over yet.
#[cold]
pub(crate) unsafe fn show_mbuf(listener: &Listener, mbuf: *const c_void) {
    let mut part = Part { bytes: std::ptr::null(), len: 0 };
    // SAFETY: as promised; room for one part.
    if unsafe { ffi::qd_parts(mbuf, &raw mut part, 1) } != 1 {
        return;
    }
    // SAFETY: the bytes of the mbuf.
    let frame = unsafe { std::slice::from_raw_parts(part.bytes, part.len as usize) };
    listener.look(frame, || {
        // SAFETY: as promised.
        Some(unsafe { ffi::qd_times_came(mbuf) }).filter(|ns| *ns > 0)
    });
}

/// Why a device gives frames no times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimesError {
    /// Its driver has no such times.
    #[error("device {device}: its driver gives {what} no times: bind its card to the kernel's driver and use its interface")]
    None {
        /// The device.
        device: String,
        /// Which frames.
        what: &'static str,
    },
    /// It could, and refuses.
    #[error("device {device}: its times cannot be switched on: {reason}")]
    Refused {
        /// The device.
        device: String,
        /// What DPDK said.
        reason: String,
    },
    /// Times that cannot be compared.
    #[error("the cards of {0} and {1} have different clocks: take two ports of one card")]
    Clocks(String, String),
}

impl TimesError {
    fn refused(device: &Device, reason: impl ToString) -> Self {
        Self::Refused { device: device.name.clone(), reason: reason.to_string() }
    }

    fn none(device: &Device, what: &'static str) -> Self {
        Self::None { device: device.name.clone(), what }
    }
}

/// Has a device give frames times from now on. Where it was not set up for that, it is stopped and started again; `come_round`
/// as in [`Devices::serve`](crate::standalone::Devices::serve).
pub(crate) fn switch_on(device: &Device, come_round: &mut dyn FnMut()) -> Result<(), TimesError> {
    if !device.can_time() {
        return Err(TimesError::none(device, "received frames"));
    }
    match ffi::qd_times_find() {
        error if error < 0 => return Err(TimesError::refused(device, crate::eal::reason(error))),
        _ => {}
    }
    if !device.times() {
        let Some(port) = device.shut() else { return Err(TimesError::refused(device, "it does not run")) };
        come_round();
        device.restart_with_times(port).map_err(|error| TimesError::refused(device, error.reason))?;
    }
    // SAFETY: a number only.
    match device.visit(|port| unsafe { ffi::qd_times_on(port) }) {
        Some(0..) => {}
        Some(error) if -error == libc::ENOTSUP => return Err(TimesError::none(device, "frames that it sends")),
        Some(error) => return Err(TimesError::refused(device, crate::eal::reason(error))),
        None => return Err(TimesError::refused(device, "it does not run")),
    }
    now(device).map(drop).map_err(|error| TimesError::refused(device, format!("its clock cannot be read: {error}")))
}

/// The clock of a device's card, ns.
fn now(device: &Device) -> io::Result<u64> {
    let mut ns = 0;
    // SAFETY: a number, and one to write to.
    done(device.visit(|port| unsafe { ffi::qd_times_now(port, &raw mut ns) })).map(|_| ns)
}

/// What a call of a visitor said.
fn done(result: Option<c_int>) -> io::Result<c_int> {
    match result {
        Some(error @ ..0) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        Some(result) => Ok(result),
        None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// Whether two devices have one clock: it is read at one, the other, and the one again, and such times come in order.
pub(crate) fn check_clocks(one: &Device, other: &Device) -> Result<(), TimesError> {
    let read = |device: &Device| now(device).map_err(|error| TimesError::refused(device, error));
    let (before, between, after) = (read(one)?, read(other)?, read(one)?);
    let same = (before..=after).contains(&between);
    same.then_some(()).ok_or_else(|| TimesError::Clocks(one.name.clone(), other.name.clone()))
}

/// A frame whose departure is not known yet.
struct Pending {
    frame: Vec<u8>,
    /// How long its time is waited for.
    until: Instant,
}

/// Sends single frames, and tells when they left.
pub struct TimedTx {
    device: Arc<Device>,
    queue: u16,
    pending: Option<Pending>,
    /// The last departure that was known: a driver may tell of it again.
    last: u64,
}

impl TimedTx {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        let queue = device.take_tx();
        Self { device, queue, pending: None, last: 0 }
    }

    /// Sends a frame, from its Ethernet header on; `false` where the device has no room for it now, or the time of the one
    /// before is not known yet.
    ///
    /// # Errors
    /// The device has gone.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        if self.pending.is_some() {
            return Ok(false);
        }
        let Self { device, queue, last, .. } = self;
        let sent = device.visit(|port| {
            crate::eal::register_thread();
            // A departure that became known too late is not this frame's.
            let mut late = 0;
            // SAFETY: a number, and one to write to.
            if unsafe { ffi::qd_times_left(port, &raw mut late) } == 1 {
                *last = late.max(*last);
            }
            let _lock = device.lock_tx(*queue);
            // SAFETY: D1, D2; the bytes are copied.
            unsafe { ffi::qd_times_tx(port, *queue, frame.as_ptr(), frame.len() as u32) }
        });
        let sent = done(sent)? == 1;
        if sent {
            self.pending = Some(Pending { frame: frame.to_vec(), until: Instant::now() + PATIENCE });
        }
        Ok(sent)
    }

    /// Takes a frame that has left: writes it to `buffer`, and gives its bytes and its time, ns of the card's clock; `None`
    /// where none waits. A frame that is longer than `buffer` is cut.
    ///
    /// # Errors
    /// The device has gone.
    pub fn departed(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        let Some(pending) = &self.pending else { return Ok(None) };
        let mut ns = 0;
        // SAFETY: a number, and one to write to.
        let left = self.device.visit(|port| unsafe { ffi::qd_times_left(port, &raw mut ns) });
        let known = done(left)? == 1 && ns > self.last;
        if !known && Instant::now() < pending.until {
            return Ok(None);
        }
        let length = copy(&pending.frame, buffer);
        self.pending = None;
        self.last = ns.max(self.last);
        Ok(Some((length, known.then_some(ns))))
    }
}

impl Drop for TimedTx {
    fn drop(&mut self) {
        self.device.leave_tx(self.queue);
    }
}

/// Gives the frames that a device has received and somebody looks for, with the times at which they came.
pub struct TimedRx {
    device: Arc<Device>,
    /// The card's clock when it began.
    since: u64,
}

impl TimedRx {
    /// From now on, until it is dropped: of the frames that `takes` takes.
    pub(crate) fn new(device: Arc<Device>, takes: Takes) -> Result<Self, TimesError> {
        let since = now(&device).map_err(|error| TimesError::refused(&device, error))?;
        device.listener.begin(takes);
        Ok(Self { device, since })
    }

    /// Takes a frame that has come: writes it to `buffer`, and gives its bytes and its time, ns of the card's clock; `None`
    /// where none waits. A frame that is longer than `buffer` is cut.
    ///
    /// # Errors
    /// The device has gone, or its driver gives frames times of another clock.
    pub fn arrived(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        let Some((frame, time)) = self.device.listener.next() else { return Ok(None) };
        if let Some(ns) = time {
            let now = now(&self.device)?;
            if !(self.since..=now).contains(&ns) {
                let (device, since) = (&self.device.name, self.since);
                let why =
                    format!("device {device}: a frame came at {ns} ns, and its card's clock went from {since} to {now} meanwhile");
                return Err(io::Error::other(why));
            }
        }
        Ok(Some((copy(&frame, buffer), time)))
    }
}

impl Drop for TimedRx {
    fn drop(&mut self) {
        self.device.listener.end();
    }
}

/// Copies what fits.
fn copy(frame: &[u8], buffer: &mut [u8]) -> usize {
    let length = frame.len().min(buffer.len());
    buffer[..length].copy_from_slice(&frame[..length]);
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_keeps_what_is_looked_for_and_no_more_than_it_has_room_for() {
        let listener = Listener::default();
        listener.look(&[1], || Some(5));
        assert!(!listener.listens() && listener.next().is_none());
        listener.begin(Box::new(|frame| frame.first() == Some(&1)));
        assert!(listener.listens());
        listener.look(&[2], || unreachable!("not looked for"));
        for n in 0..WAITING as u64 + 5 {
            listener.look(&[1, n as u8], || Some(n));
        }
        assert_eq!(listener.next(), Some((vec![1, 0], Some(0))));
        assert_eq!(std::iter::from_fn(|| listener.next()).count(), WAITING - 1);
        listener.look(&[1], || None);
        listener.end();
        assert!(!listener.listens() && listener.next().is_none());
    }

    #[test]
    fn a_frame_that_is_longer_than_the_room_is_cut() {
        let mut room = [0; 3];
        assert_eq!((copy(&[1, 2, 3, 4], &mut room), room), (3, [1, 2, 3]));
        assert_eq!((copy(&[9], &mut room), room), (1, [9, 2, 3]));
    }
}
