//! Sessions outlive the process: with their keys, ages, TCP states and counts.
//!
//! A session belongs to the thread whose ports it has. The next process may have another number of threads: each session goes to the one
//! that is to have it there ([`crate::moved`]). Addresses of pools and hosts inside are counted anew from the sessions.

use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::restart::{Damaged, Load, Names, Round, Save, Subject};

use crate::control::{Nat, on_thread, seconds, threads};
use crate::session::{Key, Session, Words};
use crate::thread::ThreadNat;

/// Bytes of a session.
const EACH: usize = size_of::<Words>();
/// The bit of a key's second word that says the direction, and where the FIB stands there.
const OUTSIDE: u64 = 1 << 40;
const FIB_SHIFT: u32 = 48;

/// Adds the subject.
pub fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("nat44 sessions", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let all: Vec<Vec<u8>> = threads(router)
        .into_iter()
        .map(|thread| on_thread(router, thread, |nat: &mut ThreadNat| bytes_of(nat)).unwrap_or_default())
        .collect();
    save.u64(all.len() as u64);
    for bytes in all {
        save.u64((bytes.len() / EACH) as u64).raw(&bytes);
    }
}

fn bytes_of(nat: &mut ThreadNat) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(nat.sessions.len() as usize * EACH);
    for session in (0..nat.sessions.end()).filter_map(|id| nat.sessions.get(id)) {
        session.pack().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
    bytes
}

/// A session, with FIBs by their numbers here; `None` where one is gone.
fn session(bytes: &[u8], names: &Names, now: u32) -> Result<Option<Session>, Damaged> {
    let mut load = Load::new(bytes);
    let mut words: Words = [0; 8];
    for word in &mut words {
        *word = load.u64()?;
    }
    let mut session = Session::unpack(&words);
    session.last_heard = session.last_heard.min(now);
    // Interfaces may have other numbers here.
    session.output = 0;
    let fib_of = |key: Key| names.fib(FamilyId::V4, key.fib().into()).and_then(|fib| u16::try_from(fib).ok());
    let (Some(inside), Some(outside)) = (fib_of(session.i2o), fib_of(session.o2i)) else { return Ok(None) };
    let with = |key: Key, fib: u16| Key([key.0[0], key.0[1] & !(0xffff << FIB_SHIFT) | u64::from(fib) << FIB_SHIFT]);
    (session.i2o, session.o2i) = (with(session.i2o, inside), with(session.o2i, outside));
    // A key of the wrong direction would be found by the other direction's packets.
    let is_sound = session.i2o.0[1] & OUTSIDE == 0 && session.o2i.0[1] & OUTSIDE != 0 && session.i2o.proto() == session.o2i.proto();
    if is_sound { Ok(Some(session)) } else { Err(Damaged) }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, round: Round) -> Result<u64, Damaged> {
    let (mut all, now) = (Vec::<Session>::new(), seconds(router));
    for _ in 0..load.count(8)? {
        let n = load.count(EACH)?;
        let bytes = load.raw(n * EACH)?;
        let sessions = bytes.chunks_exact(EACH).map(|bytes| session(bytes, names, now)).collect::<Result<Vec<_>, _>>()?;
        all.extend(sessions.into_iter().flatten());
    }
    let Some(mut nat) = router.take_part::<Nat>() else { return Ok(0) };
    let n = if nat.enabled.is_some() { nat.take_up(router, &all, round == Round::Last) } else { 0 };
    router.add_part(nat);
    Ok(n)
}
