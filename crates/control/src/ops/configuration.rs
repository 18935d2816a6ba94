//! `show configuration`: the running configuration, as commands or requests that make it again; and the daemon's own part of it.

use std::collections::BTreeMap;

use quiver_command::configuration::{Configuration, Entry, Stage, whole};
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_command::script::{Define, DefineRequest, ScriptState};
use quiver_net::Router;
use quiver_net::interface::ops::placement::{Mode, SetDefaultMode};

use super::logging::{SetClassRequest, SetLogging, SetLoggingClass, SetLoggingRequest};
use super::workers::SetWorkers;
use crate::log::Level;
use crate::system::{Scripts, System};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .declare::<ShowConfiguration>()
        .configuration(Stage::System, |_| whole(logging))
        .configuration(Stage::System, |_| whole(threads))
        .configuration(Stage::System, |_| whole(macros))
        .configuration(Stage::Sockets, |_| whole(sockets));
}

request! {
    /// Shows the running configuration as commands that make it again, and to programs as requests.
    pub read ShowConfiguration "configuration_show" ["show configuration"] {}
}

impl Execute<Router> for ShowConfiguration {
    type Reply = Configuration<Router>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Configuration<Router>>, OpError> {
        Ok(System::of(router)?.registry.collect().outcome())
    }
}

/// What operations have set that differs from `startup.conf`.
#[derive(Debug, Default)]
pub struct Said {
    /// Lines of the log.
    pub log_size: Option<usize>,
    /// Seconds for which a class is not heard.
    pub log_unthrottle: Option<u32>,
    /// Threshold and lines a second of classes of the log.
    pub log_classes: BTreeMap<String, (Option<Level>, Option<u32>)>,
    /// Sockets of memif interfaces by number.
    pub memif_sockets: BTreeMap<u32, Entry>,
}

impl Said {
    /// What a router's operations have set.
    pub fn of(router: &mut Router) -> &mut Self {
        if router.part::<Self>().is_none() {
            router.add_part(Self::default());
        }
        router.part_mut().unwrap_or_else(|| unreachable!("it was added above"))
    }
}

fn logging(router: &Router, out: &mut Configuration<Router>) {
    let Some(said) = router.part::<Said>() else { return };
    if let Some(size) = said.log_size {
        let request = SetLoggingRequest { size: Some(size), unthrottle: None };
        out.push_as::<SetLogging>(&request, format!("set logging size {size}"));
    }
    if let Some(seconds) = said.log_unthrottle {
        let request = SetLoggingRequest { size: None, unthrottle: Some(seconds) };
        out.push_as::<SetLogging>(&request, format!("set logging unthrottle-time {seconds}"));
    }
    for (class, (level, rate_limit)) in &said.log_classes {
        let mut command = format!("set logging class {class}");
        rate_limit.iter().for_each(|lines| command += &format!(" rate-limit {lines}"));
        level.iter().for_each(|level| command += &format!(" level {}", level.name()));
        let request = SetClassRequest { class: class.clone(), level: *level, rate_limit: *rate_limit };
        out.push_as::<SetLoggingClass>(&request, command);
    }
}

/// Workers where there are more or fewer than at start, and how queues of new interfaces are waited for.
fn threads(router: &Router, out: &mut Configuration<Router>) {
    let Some(system) = router.part::<System>() else { return };
    let workers: Vec<_> = router.graph.thread_info().into_iter().filter(|thread| thread.thread > 0).collect();
    if workers.len() != system.workers {
        let joined = workers.iter().skip(system.workers).map(|worker| worker.cpu);
        let corelist = joined.collect::<Option<Vec<u32>>>().unwrap_or_default();
        out.push(&SetWorkers { count: workers.len(), corelist });
    }
    if router.rx_default() != system.startup.rx_mode {
        out.push(&SetDefaultMode { mode: Mode::of(router.rx_default()) });
    }
}

fn macros(router: &Router, out: &mut Configuration<Router>) {
    for (name, value) in router.part::<ScriptState>().iter().flat_map(|state| state.macros.iter()) {
        let request = DefineRequest { name: name.to_owned(), value: value.to_owned() };
        out.push_as::<Define<Scripts>>(&request, format!("define {name} {value}"));
    }
}

fn sockets(router: &Router, out: &mut Configuration<Router>) {
    router.part::<Said>().iter().flat_map(|said| said.memif_sockets.values()).for_each(|socket| out.push_entry(socket.clone()));
}

#[cfg(test)]
mod tests {
    use quiver_net::ops::testing::{configuration, execute};
    use quiver_net::testing::Harness;

    use super::super::testing::registry;

    /// What two routers with the same configuration must show alike.
    const SHOWN: &[&str] = &[
        "show interface address",
        "show interface tag",
        "show mode",
        "show ip table",
        "show ip6 table",
        "show ip pmtu",
        "show macro",
    ];

    /// Runs commands on a router of its own.
    fn router(lines: &str) -> Harness {
        let (registry, mut h) = (registry(), Harness::new());
        for line in lines.lines().map(str::trim) {
            execute(&registry, &mut h.router, line).unwrap_or_else(|error| panic!("{line}: {error}\n{lines}"));
        }
        h
    }

    /// Tables of routes, without the numbers of what is shared.
    fn routes(h: &Harness) -> Vec<String> {
        use quiver_net::ip::FamilyId::{V4, V6};
        let mut all = Vec::new();
        for family in [V4, V6] {
            for table in h.router.tables(family) {
                for route in h.router.routes(family, table.id, None, usize::MAX).unwrap() {
                    let sources: Vec<_> = route.sources.iter().map(|said| (said.source, &said.paths)).collect();
                    all.push(format!("{family:?} {} {} {:?} {sources:?}", table.id, table.name, route.prefix));
                }
            }
        }
        all
    }

    /// The configuration of a router makes a router with the same one, and the same state.
    fn made_again(h: &mut Harness) -> String {
        let registry = registry();
        let said = configuration(&registry, &h.router);
        let mut again = router(&said);
        assert_eq!(configuration(&registry, &again.router), said);
        for show in SHOWN {
            let of = |h: &mut Harness| execute(&registry, &mut h.router, show).unwrap();
            assert_eq!(of(&mut again), of(h), "{show}\n{said}");
        }
        // By name: sub-interfaces are made last, so numbers may differ.
        let of = |h: &Harness| {
            let all = h.router.interfaces.iter().map(|i| (i.name.clone(), (i.mac, i.mtu, i.admin_up)));
            all.collect::<std::collections::BTreeMap<_, _>>()
        };
        assert_eq!(of(&again), of(h), "{said}");
        assert_eq!(routes(&again), routes(h), "{said}");
        said
    }

    #[test]
    fn an_empty_router_has_no_configuration() {
        assert_eq!(made_again(&mut Harness::new()), "");
    }

    #[test]
    fn what_was_configured_is_said_in_an_order_that_makes_it_again() {
        let said = made_again(&mut router(
            "create packet-generator interface pg0
             set interface ip address pg0 10.0.0.1/24
             set interface ip address pg0 2001:db8::1/64
             set interface state pg0 up
             create packet-generator interface pg3 hw-addr 2:0:0:0:0:7
             set interface mac address pg3 2:0:0:0:0:8
             create loopback interface
             create loopback interface mac 2:0:0:0:0:9
             create sub-interfaces pg0 7
             create sub-interfaces pg0 8 dot1ad 9 inner-dot1q any
             ip table add 5 name blue
             ip6 table add 5
             set interface ip table loop1 5
             set interface ip address loop1 192.0.2.1/32
             set interface unnumbered pg0.7 use loop0
             set interface mtu 1400 pg0
             set interface mtu ip6 1300 pg0
             set interface tag pg0 to the  cellar
             set interface promiscuous on pg0
             set interface ip directed-broadcast pg0 enable
             set interface l2 xconnect pg3 pg0.8
             set ip flow-hash table 5 src dst
             ip route add 10.9.0.0/16 table 5 via 10.0.0.2 pg0 weight 2 via 10.0.0.3 pg0 preference 1
             ip route add source api 10.9.0.0/16 via drop
             ip route add 10.9.0.0/16 via 10.0.0.9 next-hop-table 5 resolve-via-attached
             ip route add 2001:db8:9::/48 via lookup in table 5
             ip route add 10.8.0.1 via loop0
             set ip pmtu 10.0.0.2 900
             set interface feature pg0 worker-handoff arc device-input disable
             define LINK pg0",
        ));
        let expected = "\
define LINK pg0
create packet-generator interface pg0
create packet-generator interface pg3 hw-addr 02:00:00:00:00:07
create loopback interface instance 0
create loopback interface mac 02:00:00:00:00:09 instance 1
create sub-interfaces pg0 7
create sub-interfaces pg0 8 dot1ad 9 inner-dot1q any
ip table add 5 name blue
set ip flow-hash table 5 src dst
ip6 table add 5
set interface mtu packet 1400 pg0
set interface mtu ip6 1300 pg0
set interface promiscuous on pg0
set interface ip directed-broadcast pg0 enable
set interface tag pg0 to the  cellar
set interface mac address pg3 02:00:00:00:00:08
set interface l2 xconnect pg3 pg0.8
set interface ip table loop1 5
";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn interfaces_have_their_names_again_whoever_had_them_before() {
        let said = made_again(&mut router(
            "create loopback interface instance 0
             create loopback interface instance 1
             create sub-interfaces loop0 5
             set interface name loop0 free
             set interface name loop1 loop0
             set interface name free loop1
             create loopback interface instance 2
             set interface name loop2 a
             create sub-interfaces a 5
             set interface name a.5 s
             create loopback interface instance 3
             set interface name loop3 a.5",
        ));
        assert!(said.contains("set interface name loop0 loop1~\n"), "{said}");
    }
}
