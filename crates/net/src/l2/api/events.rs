//! `want_l2_macs_events`: one client gets an event for each MAC address that is learned, moves or is forgotten. `want_l2_arp_term_events`: clients
//! get an event for each host that ARP termination hears.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};

use crate::Router;
use crate::api::{Clients, Flow, Handlers, perform};
use crate::l2::ops::l2fib::SetScanDelay;
use crate::l2::{Flush, MAC_LIMIT};

pub(super) fn add(handlers: &mut Handlers) {
    handlers.call::<WantL2MacsEvents>(|call, m| {
        let wish = Wish { on: m.enable_disable, pid: m.pid, tens: m.max_macs_in_event, limit: Some(m.learn_limit) };
        let result = want(call.router, call.client, &wish, Some(m.scan_delay));
        call.answer(result.map(|()| WantL2MacsEventsReply::default()));
        Flow::Done
    });
    handlers.call::<WantL2MacsEvents2>(|call, m| {
        let wish = Wish { on: m.enable_disable, pid: m.pid, tens: m.max_macs_in_event, limit: None };
        let result = want(call.router, call.client, &wish, None);
        call.answer(result.map(|()| WantL2MacsEvents2Reply::default()));
        Flow::Done
    });
    handlers.call::<WantL2ArpTermEvents>(|call, m| {
        let result = want_hosts(call.router, call.client, m.enable, m.pid);
        call.answer(result.map(|()| WantL2ArpTermEventsReply::default()));
        Flow::Done
    });
    handlers.reads::<WantL2ArpTermEvents>();
    handlers.reads::<WantL2MacsEvents>();
    handlers.reads::<WantL2MacsEvents2>();
    handlers.act::<L2fibSetScanDelay, L2fibSetScanDelayReply>(|router, m| set_delay(router, m.scan_delay));
}

/// Begins or ends to tell a client of the hosts that ARP termination hears.
fn want_hosts(router: &mut Router, client: u32, on: bool, pid: u32) -> Result<(), OpError> {
    let refused = || OpError::new(retval::INVALID_REGISTRATION, "it is so already, or there is no such client");
    let clients = router.part_mut::<Clients>().ok_or_else(refused)?;
    if clients.want::<L2ArpTermEvent>(client, on, pid) != 0 {
        return Err(refused());
    }
    // The process notices when the last one has gone.
    if on {
        router.l2.hosts.begin();
    } else {
        router.wake_process(crate::l2::PROCESS, 0);
    }
    Ok(())
}

/// What a client asks for.
struct Wish {
    on: bool,
    pid: u32,
    /// Addresses in one event, in tens.
    tens: u8,
    /// Most learned addresses in all domains.
    limit: Option<u32>,
}

fn out_of_range(key: &'static str) -> OpError {
    OpError::new(retval::INVALID_VALUE, "a value out of range").key(key)
}

fn set_delay(router: &mut Router, delay: u16) -> Result<(), OpError> {
    if delay == 0 {
        return Err(out_of_range("scan_delay"));
    }
    perform::<SetScanDelay>(router, SetScanDelay { delay }).map(drop)
}

/// Begins or ends to tell a client. What was learned before is forgotten, so that the client gets to know all addresses.
fn want(router: &mut Router, client: u32, wish: &Wish, delay: Option<u8>) -> Result<(), OpError> {
    let refused = || OpError::new(retval::INVALID_REGISTRATION, "no such client");
    let other = router.part::<Clients>().ok_or_else(refused)?.wanting::<L2MacsEvent>().filter(|other| *other != client);
    if !wish.on {
        // As VPP answers one who was not told anything.
        if other.is_none() {
            router.part_mut::<Clients>().ok_or_else(refused)?.want::<L2MacsEvent>(client, false, wish.pid);
            router.l2.events.end();
        }
        return Ok(());
    }
    if other.is_some() {
        return Err(OpError::new(retval::L2_MACS_EVENT_CLIENT_PRESENT, "another client gets the events of MAC addresses"));
    }
    if wish.tens == 0 {
        return Err(out_of_range("max_macs_in_event"));
    }
    if wish.limit.is_some_and(|limit| !(1..=MAC_LIMIT).contains(&limit)) {
        return Err(out_of_range("learn_limit"));
    }
    if let Some(delay) = delay {
        set_delay(router, delay.into())?;
    }
    router.part_mut::<Clients>().ok_or_else(refused)?.want::<L2MacsEvent>(client, true, wish.pid);
    router.l2.events.end();
    router.flush_macs(Flush::All)?;
    router.l2.events.begin(usize::from(wish.tens) * 10, wish.limit);
    Ok(())
}
