//! What is punted, in the running configuration.

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;

use super::{SetPunt, SetRedirect, show, socket};
use crate::Router;
use crate::fib::ops::Family;

const FAMILIES: [Family; 2] = [Family::Ip4, Family::Ip6];

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::Services, |_| whole(ports))
        .configuration(Stage::Services, |_| whole(socket::configuration))
        .configuration(Stage::Services, |router| {
            each(FAMILIES.into_iter().flat_map(|family| show::redirects(router, family)).collect(), redirect)
        })
        .shapes(Stage::Services, SHAPES)
        .shapes(Stage::Services, socket::SHAPES)
        .covers(&["punt_set", "ip_punt_redirect_set", "punt_socket_set"]);
}

fn ports(router: &Router, out: &mut Configuration<Router>) {
    for set in FAMILIES.into_iter().flat_map(|family| show::ports(router, family)) {
        out.push(&set).undo(&SetPunt { remove: true, ..set.clone() });
    }
}

fn redirect(_: &Router, set: &SetRedirect, out: &mut Configuration<Router>) {
    out.push(set).undo(&SetRedirect { remove: true, paths: Vec::new(), ..set.clone() }).replaced();
}

const SHAPES: &[Shape] = &[
    Shape::new(
        "punt/ports/{family}/{protocol}",
        r#""{port#}""#,
        "punt_set",
        r#"{"family":"{family}","protocol":"{protocol}","port":"{port#}"}"#,
    )
    .list()
    .doc("Ports of packets for the router that are punted where nothing takes them, by family and upper layer."),
    Shape::new(
        "punt/all_ports/{family}/{protocol}",
        "true",
        "punt_set",
        r#"{"family":"{family}","protocol":"{protocol}","port":null}"#,
    )
    .doc("All such ports are punted."),
    Shape::new(
        "punt/redirects/{family}/{rx}",
        r#"{"*":"*"}"#,
        "ip_punt_redirect_set",
        r#"{"family":"{family}","rx":"{rx}","*":"*"}"#,
    )
    .doc("Where punted packets go, by family and by the interface that they came in on, or `all`.")
    .types(PATHS),
];

const PATHS: &[(&str, &str)] = &[(
    "paths",
    r#"{"type":"array","items":{"type":"object","properties":{"interface":{"type":"string"},"next_hop":{"type":"string"}},"required":["interface"],"additionalProperties":false}}"#,
)];

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    #[test]
    fn ports_and_redirects_are_configured_again() {
        assert_rebuilt(
            &[],
            Harness::new,
            "create packet-generator interface pg0
             create packet-generator interface pg1
             set punt udp 4500
             set punt ip6 udp 500
             set punt ip6 udp all
             set punt ipv4 tcp 179
             ip punt redirect add rx pg0 via 10.0.0.2 pg1
             ip punt redirect rx all via 10.0.0.3 pg1 via pg0
             ip6 punt redirect add rx pg1 via 2001:db8::2 pg0",
            &["show punt", "show ip punt redirect", "show ip6 punt redirect"],
        );
    }
}
