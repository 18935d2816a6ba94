//! Huge pages and lockable memory.

use super::{Finding, Level, Machine};

const PAGES: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const NODES: &str = "sys/devices/system/node";
/// What a router with the usual number of buffers takes, and as much again.
const ENOUGH: u64 = 64;

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![huge_pages(machine)];
    findings.extend(nodes(machine));
    findings.push(locked(machine));
    findings
}

fn huge_pages(machine: &Machine) -> Finding {
    let topic = "huge pages";
    let fix = format!("sysctl -w vm.nr_hugepages={ENOUGH} (in /etc/sysctl.d to keep it)");
    let Some(total) = machine.number(&format!("{PAGES}/nr_hugepages")) else {
        return Finding::new(topic, Level::Note, "this kernel has no 2 MB pages: packet memory uses 4 kB pages");
    };
    let free = machine.number(&format!("{PAGES}/free_hugepages")).unwrap_or(0);
    if total == 0 {
        return Finding::new(topic, Level::Warning, "none of 2 MB: packet memory uses 4 kB pages, AF_XDP copies").fix(fix);
    }
    let text = format!("{total} of 2 MB, {free} free");
    if free == 0 {
        return Finding::new(topic, Level::Note, format!("{text}: in use by a router that runs, or too few")).fix(fix);
    }
    Finding::new(topic, Level::Good, text)
}

/// On several memory nodes, each needs pages of its own.
fn nodes(machine: &Machine) -> Vec<Finding> {
    let nodes: Vec<String> = machine.list(NODES).into_iter().filter(|n| n.strip_prefix("node").is_some_and(is_number)).collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let file = |node: &str| format!("{NODES}/{node}/hugepages/hugepages-2048kB/nr_hugepages");
    let empty = |node: &&String| machine.number(&file(node)) == Some(0);
    let finding = |node: &String| {
        Finding::new("huge pages", Level::Warning, format!("none on memory {node}: its workers' packets lie on 4 kB pages"))
            .fix(format!("echo {ENOUGH} > /{}", file(node)))
    };
    nodes.iter().filter(empty).map(finding).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn locked(machine: &Machine) -> Finding {
    let topic = "locked memory";
    let limits = machine.read("proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|rest| rest.split_whitespace().next()).unwrap_or("unknown");
    let free = soft == "unlimited" || super::rights::has(machine, super::rights::IPC_LOCK);
    match soft.parse::<u64>() {
        _ if free => Finding::new(topic, Level::Good, "not limited"),
        Ok(bytes) if bytes >= 256 << 20 => Finding::new(topic, Level::Good, format!("up to {} MB", bytes >> 20)),
        Ok(bytes) => {
            Finding::new(topic, Level::Warning, format!("up to {} kB: AF_XDP and DPDK need to lock packet memory", bytes >> 10))
                .fix("ulimit -l unlimited, or LimitMEMLOCK=infinity in the service")
        }
        Err(_) => Finding::new(topic, Level::Note, "the limit is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::testing::Tree;
    use super::*;

    fn levels(tree: &Tree) -> Vec<Level> {
        check(&tree.machine()).iter().map(|f| f.level).collect()
    }

    #[test]
    fn huge_pages_that_are_missing_are_told_with_the_command() {
        let tree = Tree::new("pages");
        tree.write(&format!("{PAGES}/nr_hugepages"), "0\n").write(&format!("{PAGES}/free_hugepages"), "0\n");
        let finding = &check(&tree.machine())[0];
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.fix.as_ref().unwrap().contains("vm.nr_hugepages=64"));
        tree.write(&format!("{PAGES}/nr_hugepages"), "64\n");
        assert_eq!(levels(&tree)[0], Level::Note, "all taken");
        tree.write(&format!("{PAGES}/free_hugepages"), "44\n");
        assert_eq!(check(&tree.machine())[0].text, "64 of 2 MB, 44 free");
    }

    #[test]
    fn a_memory_node_without_pages_is_named() {
        let tree = Tree::new("nodes");
        for (node, pages) in [("node0", "64"), ("node1", "0")] {
            tree.write(&format!("{NODES}/{node}/hugepages/hugepages-2048kB/nr_hugepages"), pages);
        }
        tree.write(&format!("{NODES}/possible"), "0-1");
        let findings = nodes(&tree.machine());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("node1") && findings[0].fix.as_ref().unwrap().contains("/node1/"));
    }

    #[test]
    fn a_small_limit_of_locked_memory_matters_to_who_may_not_pass_it() {
        let tree = Tree::new("locked");
        let limits = |n: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax locked memory         {n}              {n}              bytes\n")
        };
        for (limit, status, level) in [
            ("65536", "CapEff:\t0000000000000000", Level::Warning),
            ("65536", "CapEff:\t0000000000004000", Level::Good),
            ("unlimited", "CapEff:\t0000000000000000", Level::Good),
            ("536870912", "CapEff:\t0000000000000000", Level::Good),
        ] {
            tree.write("proc/self/limits", &limits(limit)).write("proc/self/status", status);
            assert_eq!(locked(&tree.machine()).level, level, "{limit} {status}");
        }
    }
}
