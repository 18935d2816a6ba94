//! Operations and commands of the daemon and of the drivers' interfaces, a file for each theme. Those of bridging, IP and so on
//! stand in their folders in `net`, see [`quiver_net::ops`].
//!
//! To add one: write `ops/<theme>.rs` with the requests, declared by [`request!`](quiver_command::request!), what they do, their
//! replies, and a `pub fn register(registry: &mut Registry<Router>)` that names them; name it in [`register`], or in a plugin of [`BUILT_IN`](crate::BUILT_IN) where VPP has a plugin for it. [`version`] is the
//! shortest example. A plugin does the same in its own crate and names its function in its [`Plugin`](quiver_net::Plugin).
//!
//! The rules: `execute` validates first and changes nothing on an error; a reply is a struct that serialises to what a program
//! wants to know and renders as VPP's text; parsing only makes requests.

pub mod absent;
pub mod af_xdp;
pub mod api;
pub mod apply;
pub mod arguments;
pub mod candidate;
pub mod clock;
pub mod configuration;
pub mod errors;
pub mod events;
pub mod examples;
pub mod explain;
pub mod features;
pub mod graph;
pub mod host_interface;
pub mod logging;
pub mod memif;
pub mod memory;
pub mod messages;
pub mod node;
pub mod pcap;
pub mod pcap_port;
pub mod perfmon;
pub mod plugins;
pub mod privileges;
pub mod restart;
pub mod rollback;
pub mod runtime;
pub mod sessions;
pub mod statistics;
pub mod tap;
pub mod threads;
pub mod trace;
pub mod version;
pub mod watchdog;
pub mod workers;

use quiver_command::operation::Registry;
use quiver_command::{script, session};
use quiver_net::Router;

use crate::system::Scripts;

/// Declares the operations and commands of all themes.
pub fn register(registry: &mut Registry<Router>) {
    script::register::<Router, Scripts>(registry);
    session::declare_commands(registry);
    registry.absent(absent::ABSENT).examples(examples::EXAMPLES).arguments(arguments::ARGUMENTS);
    registry.messages(messages::MESSAGES).messages_without_command(messages::WITHOUT_COMMAND);
    quiver_net::ops::register(registry);
    api::register(registry);
    apply::register(registry);
    candidate::register(registry);
    clock::register(registry);
    configuration::register(registry);
    rollback::register(registry);
    errors::register(registry);
    events::register(registry);
    explain::register(registry);
    features::register(registry);
    graph::register(registry);
    logging::register(registry);
    memory::register(registry);
    node::register(registry);
    pcap::register(registry);
    pcap_port::register(registry);
    perfmon::register(registry);
    plugins::register(registry);
    privileges::register(registry);
    restart::register(registry);
    runtime::register(registry);
    tap::register(registry);
    sessions::register(registry);
    statistics::register(registry);
    threads::register(registry);
    trace::register(registry);
    version::register(registry);
    watchdog::register(registry);
    workers::register(registry);
}

/// The commands of a router with these plugins.
fn registry_of(plugins: &[quiver_net::Plugin]) -> Registry<Router> {
    let mut registry = Registry::new();
    register(&mut registry);
    plugins.iter().for_each(|plugin| (plugin.register)(&mut registry));
    registry
}

/// The reference of the commands of a router with these plugins, in Markdown.
pub fn reference(plugins: &[quiver_net::Plugin], router: &Router) -> String {
    registry_of(plugins).markdown(router)
}

/// The JSON schema of the documents that a router with these plugins takes.
pub fn document_schema(plugins: &[quiver_net::Plugin]) -> String {
    format!("{:#}\n", registry_of(plugins).book().schema())
}

/// The operations of the running configuration, of a router with these plugins, that have no place in a document.
pub fn without_shape(plugins: &[quiver_net::Plugin]) -> Vec<&'static str> {
    let registry = registry_of(plugins);
    let placed: Vec<&str> = registry.book().operations().collect();
    registry.covered().iter().filter(|operation| !placed.contains(operation)).copied().collect()
}

/// Where that reference does not agree with the commands, or with the messages that these plugins answer.
pub fn reference_problems(plugins: &[quiver_net::Plugin]) -> Vec<String> {
    let table = crate::daemon::message_table(plugins);
    let answered: Vec<_> = table.accesses().map(|(message, _)| message).collect();
    registry_of(plugins).reference_problems(&answered)
}

/// The reference of `startup.conf` for a router with these plugins.
pub fn startup_reference(plugins: &[quiver_net::Plugin]) -> quiver_command::config::Reference {
    plugins.iter().fold(crate::startup::schema(), |schema, plugin| (plugin.schema)(schema)).reference()
}

/// Running command lines in tests, against all operations.
#[cfg(test)]
pub(crate) mod testing {
    use quiver_command::operation::Registry;
    use quiver_net::Router;
    pub use quiver_net::ops::testing::OwnFolder;
    use quiver_net::ops::testing::execute;

    /// All operations.
    pub fn registry() -> Registry<Router> {
        let mut registry = Registry::new();
        super::register(&mut registry);
        crate::BUILT_IN.iter().for_each(|plugin| (plugin.register)(&mut registry));
        assert!(registry.problems().is_empty(), "{:?}", registry.problems());
        registry
    }

    /// The text that a command answers with.
    pub fn run(router: &mut Router, line: &str) -> String {
        execute(&registry(), router, line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// The error of a command that must fail.
    pub fn error(router: &mut Router, line: &str) -> String {
        execute(&registry(), router, line).err().unwrap_or_else(|| panic!("{line}: no error"))
    }
}

#[cfg(test)]
mod tests {
    use quiver_command::operation::{Access, OpError, View, retval};
    use quiver_net::testing::Harness;

    use super::testing::registry;

    /// A new operation must say what it does, and its name must not say something else.
    #[test]
    fn every_operation_is_declared_to_read_or_to_change() {
        for (name, access) in registry().accesses() {
            let named_so = ["_show", "_dump", "_get", "_status", "_explain"].iter().any(|end| name.ends_with(end));
            // Draws the graph; with a file it is a change.
            let reads = named_so || name == "graph_draw";
            let expected = if reads { Access::Read } else { Access::Change };
            assert_eq!(access, expected, "{name}: declare `const ACCESS' beside its NAME");
        }
    }

    /// Completion lets each parser say what it takes: none may do without an answer, or go round for ever.
    #[test]
    fn something_is_known_to_follow_every_command_that_takes_arguments() {
        let h = Harness::new();
        let (registry, mut unknown) = (registry(), Vec::new());
        for command in registry.commands() {
            let line = format!("{} ", command.path);
            let completion = registry.complete(&line, line.len(), &h.router);
            if !command.syntax.is_empty() && completion.candidates.is_empty() && completion.hints.is_empty() {
                unknown.push(command.path);
            }
        }
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn completion_asks_parsers_that_are_written_by_hand_too() {
        let (h, registry) = (Harness::new(), registry());
        for (line, word, hint) in [
            ("create interface af_xdp host-if eth0 ", "busy-poll", ""),
            ("create interface af_xdp host-if eth0 busy-poll ", "", "<us>"),
            ("create interface af_xdp num-rx-queues ", "all", "<n>"),
            ("ip route add 10.0.0.0/8 via ", "", "<"),
            ("set interface state local0 ", "up", ""),
            ("show interface loc", "local0", ""),
            ("packet-generator new { name x li", "limit", ""),
            ("set ip6 dad enable tr", "transmits", ""),
        ] {
            let completion = registry.complete(line, line.len(), &h.router);
            let has = |all: &[quiver_command::grammar::Candidate], text: &str| all.iter().any(|c| c.text.starts_with(text));
            assert!(word.is_empty() || has(&completion.candidates, word), "{line}: {completion:?}");
            assert!(hint.is_empty() || has(&completion.hints, hint), "{line}: {completion:?}");
        }
    }

    #[test]
    fn who_may_only_read_is_refused_everything_else_before_it_runs() {
        let mut h = Harness::new();
        let registry = registry();
        let mut read =
            |line: &str| -> Result<(), OpError> { registry.execute_as(Access::Read, &mut h.router, line, &View::TEXT).map(drop) };
        for line in ["show interface", "show ip fib", "show errors", "show memory", "show packet-generator", "show trace", "show ?"]
        {
            assert!(!matches!(read(line), Err(error) if error.code == retval::NOT_RUNNING_AS_ROOT), "{line}");
        }
        for line in [
            "clear interfaces",
            "clear errors",
            "clear trace",
            "trace add pg-input 1",
            "pcap trace rx",
            "ping 192.0.2.1",
            "exec x",
            "define A b",
            "create loopback interface",
            "show vlib graph svg file x",
            "event-logger save x",
            "api trace save x",
            "set clock adjust 1",
        ] {
            let error = read(line).unwrap_err();
            assert_eq!(error.code, retval::NOT_RUNNING_AS_ROOT, "{line}: {error}");
            assert!(error.to_string().contains("permission denied"), "{error}");
        }
        assert_eq!(h.router.interfaces.iter().count(), 1);
    }
}
