//! Limits of ICMP errors and of reassembly in the running configuration.

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::operation::Registry;

use super::reassembly::{SetExtended, SetLocal, SetReassembly};
use super::{FAMILIES, SetRateLimit, SetUnreachable};
use crate::Router;
use crate::fib::ops::Family;
use crate::icmp::RateLimit;
use crate::local::reassembly::{Limits, Through};

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::System, |_| whole(limits))
        .shapes(Stage::System, LIMITS)
        .covers(&["icmp_rate_limit_set", "icmp_unreachable_set"])
        .covers(&["ip_reassembly_set", "ip_local_reassembly_set", "ip_extended_reassembly_set"])
        // Features of an interface, which it says.
        .covers(&["interface_reassembly_set"]);
}

fn limits(router: &Router, out: &mut Configuration<Router>) {
    for family in FAMILIES {
        let (limit, usual) = (router.icmp_rate_limit(family.into()), RateLimit::default());
        if limit != usual {
            let all = |RateLimit { total, per_worker, burst }| SetRateLimit {
                family: Some(family),
                total: Some(total),
                per_worker: Some(per_worker),
                burst: Some(burst),
            };
            let differing = SetRateLimit {
                family: Some(family),
                total: (limit.total != usual.total).then_some(limit.total),
                per_worker: (limit.per_worker != usual.per_worker).then_some(limit.per_worker),
                burst: (limit.burst != usual.burst).then_some(limit.burst),
            };
            out.push(&differing).undo(&all(usual)).replaced_by(&all(limit));
        }
        for shallow in [false, true] {
            reassembly(router, family, shallow, out);
        }
        if !router.answers_no_route(family.into()) {
            out.push(&SetUnreachable { family, on: false }).undo(&SetUnreachable { family, on: true });
        }
        if !router.joins_local(family.into()) {
            out.push(&SetLocal { family, on: false }).undo(&SetLocal { family, on: true });
        }
        if router.extended_reassembly(family.into()) {
            let family = Some(family);
            out.push(&SetExtended { family, on: true }).undo(&SetExtended { family, on: false });
        }
    }
}

fn reassembly(router: &Router, family: Family, shallow: bool, out: &mut Configuration<Router>) {
    let through = Through::of(shallow);
    let (limits, usual) = (router.reassembly_limits(family.into(), through), Limits::default_of(family.into(), through));
    if limits == usual {
        return;
    }
    let milliseconds = |limits: &Limits| u32::try_from(limits.timeout.as_millis()).unwrap_or(u32::MAX);
    let all = |limits: &Limits| SetReassembly {
        family,
        shallow,
        timeout_ms: Some(milliseconds(limits)),
        max_reassemblies: Some(limits.datagrams),
        max_per_source: Some(limits.per_source),
        max_reassembly_length: Some(limits.fragments),
        max_memory_kb: Some(limits.kilobytes),
    };
    let differing = SetReassembly {
        family,
        shallow,
        timeout_ms: (limits.timeout != usual.timeout).then(|| milliseconds(&limits)),
        max_reassemblies: (limits.datagrams != usual.datagrams).then_some(limits.datagrams),
        max_per_source: (limits.per_source != usual.per_source).then_some(limits.per_source),
        max_reassembly_length: (limits.fragments != usual.fragments).then_some(limits.fragments),
        max_memory_kb: (limits.kilobytes != usual.kilobytes).then_some(limits.kilobytes),
    };
    out.push(&differing).undo(&all(&usual)).replaced_by(&all(&limits));
}

/// Limits by family.
const LIMITS: &[Shape] = &[
    Shape::new("icmp_limits/{family}", r#"{"*":"*"}"#, "icmp_rate_limit_set", r#"{"family":"{family}","*":"*"}"#)
        .doc("ICMP errors that are sent at most, by family."),
    Shape::new("icmp_unreachable/{family}", r#""{on}""#, "icmp_unreachable_set", r#"{"family":"{family}","on":"{on}"}"#)
        .doc("Whether packets that no route carries on are answered, by family.")
        .types(&[("on", r#"{"type":"boolean"}"#)]),
    Shape::new("reassembly/{family}", r#"{"*":"*"}"#, "ip_reassembly_set", r#"{"family":"{family}","shallow":false,"*":"*"}"#)
        .doc("Limits of reassembly, by family."),
    Shape::new(
        "shallow_reassembly/{family}",
        r#"{"*":"*"}"#,
        "ip_reassembly_set",
        r#"{"family":"{family}","shallow":true,"*":"*"}"#,
    )
    .doc("Limits of shallow reassembly, by family."),
    Shape::new("local_reassembly/{family}", r#""{on}""#, "ip_local_reassembly_set", r#"{"family":"{family}","on":"{on}"}"#)
        .doc("Whether fragmented packets for the router itself are put together, by family.")
        .types(&[("on", r#"{"type":"boolean"}"#)]),
    Shape::new("extended_reassembly/{family}", r#""{on}""#, "ip_extended_reassembly_set", r#"{"family":"{family}","on":"{on}"}"#)
        .doc("Whether fragments of shallow reassembly wait for the last one, too, by family.")
        .types(&[("on", r#"{"type":"boolean"}"#)]),
];

#[cfg(test)]
mod tests {
    use crate::ops::testing::assert_rebuilt;
    use crate::testing::Harness;

    #[test]
    fn limits_are_set_again() {
        assert_rebuilt(
            &[],
            Harness::new,
            "set ip icmp-rate-limit ip6 total unlimited per-worker 50 burst 7
             set ip icmp-rate-limit total 9 ip4
             set ip4-full-reassembly timeout 1000 max-reassemblies 5 max-per-source 6
             set ip6-full-reassembly max-reassembly-length 9 max-memory 100
             set ip reassembly extended ip6 on
             set ip6-sv-reassembly timeout 70 max-reassembly-length 9 max-memory 100
             set ip icmp-unreachable ip4 off
             set ip local-reassembly ip6 off",
            &["show ip icmp-rate-limit", "show ip4-full-reassembly", "show ip6-full-reassembly", "show ip6-sv-reassembly"],
        );
    }
}
