//! `ping`: echo requests that the router sends while the client goes on, and an event when they are over.

use quiver_api::defs::*;
use quiver_command::operation::{OpError, Operation, View, retval};
use quiver_command::session::Request;

use crate::Router;
use crate::api::{Behind, Clients, Flow, Handlers, from_address};
use crate::icmp::ops::ping::SendPing;

/// Between two requests, at least, s.
const INTERVAL_MIN: f64 = 0.0001;
/// Between two requests, at most, s.
const INTERVAL_MAX: f64 = 86_400.0;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.call::<WantPingFinishedEvents>(|call, m| {
        if !(0.0..=INTERVAL_MAX).contains(&m.interval) {
            let error = OpError::new(retval::INVALID_VALUE, format!("an interval of {} s", m.interval)).key("interval");
            call.answer::<WantPingFinishedEventsReply>(Err(error));
            return Flow::Done;
        }
        call.send(&WantPingFinishedEventsReply::default());
        if m.repeat == 0 {
            told(call.router.part_mut::<Clients>(), call.client, 0, 0);
            return Flow::Done;
        }
        let request = serde_json::json!({
            "address": from_address(&m.address),
            "repeat": m.repeat,
            "interval": m.interval.max(INTERVAL_MIN),
        });
        let request = Request::Operation { name: <SendPing as Operation<Router>>::NAME.into(), request, view: View::JSON };
        let client = call.client;
        Flow::Behind(Behind {
            request,
            then: Box::new(move |router, result| {
                // What could not begin has sent nothing, which is what VPP's event says then.
                let json = result.ok().and_then(|answer| answer.json).unwrap_or_default();
                let summary: serde_json::Value = serde_json::from_str(&json).unwrap_or_default();
                let count = |name: &str| summary[name].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
                told(router.part_mut::<Clients>(), client, count("sent"), count("received"));
            }),
        })
    });
    handlers.changes::<WantPingFinishedEvents, WantPingFinishedEventsReply>();
}

fn told(clients: Option<&mut Clients>, client_index: u32, request_count: u32, reply_count: u32) {
    if let Some(clients) = clients {
        clients.send(client_index, &PingFinishedEvent { client_index, request_count, reply_count });
    }
}
