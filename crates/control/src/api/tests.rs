//! Rules that hold for all handlers.

use std::rc::Rc;

use quiver_api::defs::*;
use quiver_api::{Head, Message, Reader, Wire as _, frame};
use quiver_command::operation::{Access, Answer, OpError, Outcome, Registry, run_to_end};
use quiver_command::session::Request;
use quiver_net::Router;
use quiver_net::api::{Call, Flow, Table, Trace, install};
use quiver_net::testing::Harness;

use super::handlers;
use crate::ops::testing::registry;

mod replace;
mod tools;

fn bed() -> (Harness, Rc<Table>) {
    let mut h = Harness::new();
    h.interface(0);
    h.interface(1);
    let table = Rc::new(Table::new(handlers::all()));
    install(&mut h.router, &table, Trace::new(false, None));
    (h, table)
}

/// A message as it comes from a client, and everything that is sent back, unframed.
fn ask(h: &mut Harness, table: &Table, message: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut call = Call { router: &mut h.router, table, client: 1, context: 0, out: &mut out };
    match table.dispatch(&mut call, message) {
        Flow::More(mut more) => while !more(&mut call) {},
        Flow::Run(run) => {
            let mut printed = String::new();
            let result = run_request(call.router, run.request, &mut printed);
            (run.then)(&mut call, printed, result);
        }
        _ => {}
    }
    let (mut answers, mut at) = (Vec::new(), 0);
    while let frame::Front::Message(answer, taken) = frame::front(&out[at..]) {
        answers.push(answer.to_vec());
        at += taken;
    }
    assert_eq!(at, out.len(), "everything is framed");
    answers
}

/// Runs a request to its end, as the engine does.
fn run_request(router: &mut Router, request: Request, printed: &mut String) -> Result<Answer, OpError> {
    thread_local!(static REGISTRY: Registry<Router> = registry());
    let outcome = REGISTRY.with(|registry| match &request {
        Request::Command { line, view } => registry.execute(router, line, view),
        Request::Operation { name, request, view } => registry.request(name, request.clone())?.run(router, view),
        Request::Complete { .. } => Err(OpError::unspecified("no message completes")),
    })?;
    match outcome {
        Outcome::Done(answer) => Ok(answer),
        Outcome::Job(mut job) => run_to_end(&mut *job, router, printed, std::thread::sleep),
    }
}

fn bytes<M: Message>(table: &Table, message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.catalog().id::<M>().put(&mut bytes);
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 7]);
    message.write(&mut bytes);
    bytes
}

/// The one answer to a request, and its code where it has one.
fn request<M: Message, R: Message>(h: &mut Harness, table: &Table, message: &M) -> (R, i32) {
    let answers = ask(h, table, &bytes(table, message));
    let [answer] = answers.as_slice() else { panic!("{} answers to {}", answers.len(), M::INFO.name) };
    let mut reader = Reader::new(answer);
    assert_eq!(u16::get(&mut reader), Ok(table.catalog().id::<R>()));
    assert_eq!(u32::get(&mut reader), Ok(7), "the context comes back");
    let code = i32::get(&mut reader.clone()).unwrap();
    (R::read(&mut reader).unwrap(), code)
}

#[test]
fn every_request_that_is_announced_is_answered() {
    let table = Table::new(handlers::all());
    for entry in table.catalog().entries() {
        let is_request = entry.info.reply.is_some() || entry.info.stream.is_some();
        assert_eq!(table.handles(entry.id), is_request, "{}", entry.info.name);
        // Clients tell replies from events by the context.
        let answered_by = entry.info.reply.and_then(|reply| table.catalog().named(reply));
        assert!(answered_by.is_none_or(|reply| reply.info.prefix != Head::Plain), "{}", entry.info.name);
    }
}

#[test]
fn whatever_a_client_says_the_router_goes_on_and_answers_what_was_asked() {
    let (mut h, table) = bed();
    // Requests of these open devices and files of the machine.
    let outside = ["memif", "tapv2", "af_packet", "af_xdp", "pg"];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let requests: Vec<_> = table.catalog().entries().iter().filter(|e| !outside.contains(&e.module)).copied().collect();
    for round in 0..60 {
        for entry in &requests {
            let mut message = Vec::new();
            entry.id.put(&mut message);
            let length = random() as usize % 300;
            // Small numbers meet what is there, others what is not.
            let small = round % 2 == 0;
            message.extend((0..length).map(|at| if small && at % 4 != 3 { 0 } else { random() as u8 >> (random() % 8) }));
            for answer in ask(&mut h, &table, &message) {
                let id = u16::from_be_bytes([answer[0], answer[1]]);
                let name = table.catalog().get(id).unwrap().info.name;
                assert!([entry.info.reply, entry.info.stream].contains(&Some(name)), "{name} answers {}", entry.info.name);
            }
        }
    }
    for message in [&[][..], &[0], &[0, 0], &[0xff, 0xff, 1, 2, 3], &[0, 15]] {
        assert!(ask(&mut h, &table, message).is_empty());
    }
    let (version, code) = request::<ShowVersion, ShowVersionReply>(&mut h, &table, &ShowVersion {});
    assert_eq!((version.program.as_str(), code), ("quiver", 0));
}

#[test]
fn refusals_have_the_codes_of_vpp() {
    let (mut h, table) = bed();
    let none = InterfaceIndex(99);
    let code = |h: &mut Harness, m: &SwInterfaceSetFlags| request::<_, SwInterfaceSetFlagsReply>(h, &table, m).1;
    assert_eq!(code(&mut h, &SwInterfaceSetFlags { sw_if_index: none.clone(), ..Default::default() }), -2);
    let vlan = |vlan_id| CreateVlanSubif { sw_if_index: InterfaceIndex(1), vlan_id };
    let code = |h: &mut Harness, id| request::<_, CreateVlanSubifReply>(h, &table, &vlan(id)).1;
    assert_eq!([code(&mut h, 0), code(&mut h, 4095), code(&mut h, 10), code(&mut h, 10)], [-55, -55, 0, -56]);
    let sub = CreateSubif { sw_if_index: InterfaceIndex(1), sub_id: 10, sub_if_flags: SubIfFlags(2), ..Default::default() };
    assert_eq!(request::<_, CreateSubifReply>(&mut h, &table, &sub).1, -68);
    let delete = DeleteSubif { sw_if_index: InterfaceIndex(1) };
    assert_eq!(request::<_, DeleteSubifReply>(&mut h, &table, &delete).1, -98);
    let delete = DeleteLoopback { sw_if_index: InterfaceIndex(1) };
    assert_eq!(request::<_, DeleteLoopbackReply>(&mut h, &table, &delete).1, -2);
    let bind = SwInterfaceSetTable { sw_if_index: InterfaceIndex(1), is_ipv6: false, vrf_id: 5 };
    assert_eq!(request::<_, SwInterfaceSetTableReply>(&mut h, &table, &bind).1, -3);
    let route = |table_id, paths| IpRouteAddDel {
        is_add: true,
        route: IpRoute { table_id, paths, ..Default::default() },
        ..Default::default()
    };
    let code = |h: &mut Harness, m: &IpRouteAddDel| request::<_, IpRouteAddDelReply>(h, &table, m).1;
    assert_eq!(code(&mut h, &route(0, vec![])), -52);
    assert_eq!(code(&mut h, &route(5, vec![FibPath { sw_if_index: 1, ..Default::default() }])), -3);
    assert_eq!(code(&mut h, &route(0, vec![FibPath { sw_if_index: 99, ..Default::default() }])), -54);
    let lookup = IpRouteLookup { prefix: Prefix { len: 24, ..Default::default() }, exact: 1, ..Default::default() };
    assert_eq!(request::<_, IpRouteLookupReply>(&mut h, &table, &lookup).1, -6);
    let domain = |bd_id, is_add| BridgeDomainAddDel { bd_id, is_add, ..Default::default() };
    let code = |h: &mut Harness, id, add| request::<_, BridgeDomainAddDelReply>(h, &table, &domain(id, add)).1;
    assert_eq!([code(&mut h, 0, true), code(&mut h, 7, false), code(&mut h, 1 << 24, true)], [-121, -6, -122]);
    assert_eq!([code(&mut h, 7, true), code(&mut h, 7, true), code(&mut h, 7, false)], [0, -119, 0]);
}

#[test]
fn a_route_is_added_found_dumped_and_removed() {
    let (mut h, table) = bed();
    let prefix = Prefix { address: quiver_net::api::address("10.1.0.0".parse().unwrap()), len: 16 };
    let nh = FibPathNh { address: AddressUnion([10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), ..Default::default() };
    let path = FibPath { sw_if_index: 1, weight: 1, nh, ..Default::default() };
    let route = IpRoute { prefix: prefix.clone(), paths: vec![path.clone()], ..Default::default() };
    let add = IpRouteAddDel { is_add: true, is_multipath: false, route };
    let (reply, code) = request::<_, IpRouteAddDelReply>(&mut h, &table, &add);
    assert_eq!(code, 0);
    let lookup = IpRouteLookup { prefix: prefix.clone(), exact: 1, ..Default::default() };
    let (found, code) = request::<_, IpRouteLookupReply>(&mut h, &table, &lookup);
    assert_eq!((code, found.route.stats_index, &found.route.paths), (0, reply.stats_index, &vec![path]));
    let dumped = |h: &mut Harness| {
        let answers = ask(h, &table, &bytes(&table, &IpRouteDump::default()));
        let read = |a: &Vec<u8>| IpRouteDetails::read(&mut Reader::new(&a[6..])).unwrap().route.prefix;
        answers.iter().map(read).collect::<Vec<_>>()
    };
    assert!(dumped(&mut h).contains(&prefix));
    let remove = IpRouteAddDel { is_add: false, ..add };
    assert_eq!(request::<_, IpRouteAddDelReply>(&mut h, &table, &remove).1, 0);
    assert!(!dumped(&mut h).contains(&prefix));
    assert_eq!(request::<_, IpRouteAddDelReply>(&mut h, &table, &remove).1, 0, "what is not there has not to be removed");
}

#[test]
fn events_reach_those_who_asked_once_each() {
    let (mut h, table) = bed();
    let waker = std::task::Waker::noop();
    let clients = |h: &mut Harness| h.router.part_mut::<quiver_net::api::Clients>().map(|c| c.join("one")).unwrap();
    let one = clients(&mut h);
    let events = |h: &mut Harness| h.router.part_mut::<quiver_net::api::Clients>().map(|c| c.take_events(one, waker)).unwrap();
    let want =
        |h: &mut Harness, on| h.router.part_mut::<quiver_net::api::Clients>().map(|c| c.want_interfaces(one, on, 42)).unwrap();
    assert_eq!([want(&mut h, false), want(&mut h, true), want(&mut h, true)], [-31, 0, -31]);
    let index = h.router.create_loopback(None, None).unwrap();
    h.router.set_interface_up(index, true).unwrap();
    h.router.delete_interface(index).unwrap();
    let bytes = events(&mut h);
    let (mut seen, mut at) = (Vec::new(), 0);
    while let frame::Front::Message(message, taken) = frame::front(&bytes[at..]) {
        assert_eq!(u16::from_be_bytes([message[0], message[1]]), table.catalog().id::<SwInterfaceEvent>());
        let event = SwInterfaceEvent::read(&mut Reader::new(&message[2..])).unwrap();
        assert_eq!((event.pid, event.sw_if_index.0), (42, index.0));
        seen.push((event.flags.0 & 1 != 0, event.deleted));
        at += taken;
    }
    assert_eq!(seen.first(), Some(&(true, false)));
    assert_eq!(seen.last(), Some(&(false, true)));
    assert_eq!(want(&mut h, false), 0);
    h.router.set_interface_up(quiver_net::IfIndex(1), false).unwrap();
    assert!(events(&mut h).is_empty());
}

/// Whether a message reads, by the words of its name; these hold for VPP's messages.
fn reads(name: &str) -> bool {
    let by_word = name.ends_with("_dump")
        || name.ends_with("_get")
        || name.starts_with("get_")
        || name.starts_with("show_")
        || name.contains("_get_")
        || name.contains("_lookup")
        || (name.starts_with("want_") && name != "want_ping_finished_events");
    // What a line of `cli_inband` does is decided when it is known.
    by_word || ["sockclnt_create", "sockclnt_delete", "control_ping", "api_versions", "cli_inband"].contains(&name)
}

#[test]
fn every_message_is_declared_to_read_or_to_change() {
    let table = Table::new(handlers::all());
    assert!(table.accesses().count() > 100);
    for (name, access) in table.accesses() {
        let expected = if reads(name) { Access::Read } else { Access::Change };
        assert_eq!(access, expected, "{name}: declare it by Handlers::reads or Handlers::changes");
    }
}

#[test]
fn a_client_that_may_only_read_has_changes_refused_with_a_code_and_everything_else_answered() {
    let (mut h, table) = bed();
    let mut ask = |message: &[u8]| {
        let mut out = Vec::new();
        let mut call = Call { router: &mut h.router, table: &table, client: 1, context: 0, out: &mut out };
        let _ = table.dispatch_as(Access::Read, &mut call, message);
        let frame::Front::Message(answer, _) = frame::front(&out) else { panic!("no answer") };
        // Its number, its context, its code.
        i32::from_be_bytes(answer[6..10].try_into().unwrap())
    };
    let denied = quiver_command::operation::retval::NOT_RUNNING_AS_ROOT;
    assert_eq!(ask(&bytes(&table, &CreateLoopback::default())), denied);
    assert_eq!(ask(&bytes(&table, &SwInterfaceClearStats::default())), denied);
    assert_eq!(ask(&bytes(&table, &WantPingFinishedEvents::default())), denied);
    assert_eq!(ask(&bytes(&table, &PgCapture::default())), denied);
    assert_eq!(ask(&bytes(&table, &ControlPing::default())), 0);
    assert_eq!(ask(&bytes(&table, &ShowVersion::default())), 0);
    assert_eq!(h.router.interfaces.iter().count(), 3, "no loopback");
}
