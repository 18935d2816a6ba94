//! Cores for workers, and whether they are left alone.

use std::collections::BTreeMap;

use super::machine::{numbers, ranges};
use super::{Finding, Level, Machine};

const CPUS: &str = "sys/devices/system/cpu";

pub fn check(machine: &Machine) -> Vec<Finding> {
    let cpus = usable(machine);
    vec![cores(machine, &cpus), isolation(machine, &cpus), governor(machine, &cpus), clock(machine)]
}

/// CPUs that are on and that whoever asks may use.
fn usable(machine: &Machine) -> Vec<u32> {
    let list = |text: Option<String>| text.map(|text| numbers(&text));
    let allowed = list(machine.field("proc/self/status", "Cpus_allowed_list"));
    let online = list(machine.read(&format!("{CPUS}/online"))).or_else(|| allowed.clone()).unwrap_or_default();
    online.into_iter().filter(|cpu| allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu))).collect()
}

fn cores(machine: &Machine, cpus: &[u32]) -> Finding {
    let topic = "cores";
    // The first CPU of each core stands for it.
    let first = |cpu: &u32| {
        let siblings = machine.read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"));
        siblings.map(|text| numbers(&text)).and_then(|list| list.first().copied()).unwrap_or(*cpu)
    };
    let mut cores: Vec<u32> = cpus.iter().map(first).collect();
    cores.sort_unstable();
    cores.dedup();
    let text = match cpus.len() - cores.len() {
        0 => format!("{} CPUs ({})", cpus.len(), ranges(cpus)),
        _ => format!("{} CPUs ({}) on {} cores: two workers on one core share it", cpus.len(), ranges(cpus), cores.len()),
    };
    match cpus {
        [] => Finding::new(topic, Level::Note, "this machine does not say which CPUs it has"),
        [_] => Finding::new(topic, Level::Warning, format!("{text}: main thread and workers share it"))
            .fix("give the machine or the cpuset a second CPU, or run without workers"),
        _ => Finding::new(topic, Level::Good, text),
    }
}

fn isolation(machine: &Machine, cpus: &[u32]) -> Finding {
    let topic = "isolation";
    let list = |name: &str| machine.read(&format!("{CPUS}/{name}")).map(|text| numbers(&text)).unwrap_or_default();
    let (isolated, tickless) = (list("isolated"), list("nohz_full"));
    if !isolated.is_empty() {
        let tick = if tickless.is_empty() { "their timer ticks" } else { "some without timer tick" };
        return Finding::new(topic, Level::Good, format!("CPUs {} are kept free of other work, {tick}", ranges(&isolated)));
    }
    let finding = Finding::new(topic, Level::Note, "no CPU is kept free of other work: rare delays of milliseconds under load");
    match cpus {
        [] | [_] => finding,
        [_, rest @ ..] => {
            let rest = ranges(rest);
            finding.fix(format!("boot with isolcpus={rest} nohz_full={rest} rcu_nocbs={rest}, and put workers there"))
        }
    }
}

fn governor(machine: &Machine, cpus: &[u32]) -> Finding {
    let topic = "governor";
    let mut by_name: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        if let Some(name) = machine.read(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor")) {
            by_name.entry(name).or_default().push(*cpu);
        }
    }
    if by_name.is_empty() {
        return Finding::new(topic, Level::Good, "the clock rate is not in the hands of this system");
    }
    let text = by_name.iter().map(|(name, cpus)| format!("CPUs {}: {name}", ranges(cpus))).collect::<Vec<_>>().join("; ");
    if by_name.keys().all(|name| name == "performance") {
        return Finding::new(topic, Level::Good, text);
    }
    Finding::new(topic, Level::Warning, text).fix("cpupower frequency-set -g performance")
}

fn clock(machine: &Machine) -> Finding {
    let topic = "clock";
    let source = machine.read("sys/devices/system/clocksource/clocksource0/current_clocksource");
    let flags = machine.field("proc/cpuinfo", "flags").unwrap_or_default();
    let invariant = ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split_whitespace().any(|have| have == *flag));
    let arm = machine.field("proc/cpuinfo", "CPU implementer").is_some();
    match source.as_deref() {
        _ if invariant || arm => Finding::new(topic, Level::Good, "the cycle counter runs evenly"),
        Some("tsc" | "arch_sys_counter") => Finding::new(topic, Level::Good, "the kernel trusts the cycle counter"),
        Some(other) => {
            Finding::new(topic, Level::Warning, format!("the kernel's clock is {other}: the router asks the kernel for time"))
                .fix("let the virtual machine see an invariant TSC (host CPU model, invtsc)")
        }
        None => Finding::new(topic, Level::Note, "the kernel's clock source is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::testing::Tree;
    use super::*;

    #[test]
    fn cores_are_counted_once_and_a_single_cpu_is_warned_of() {
        let tree = Tree::new("cores");
        tree.write(&format!("{CPUS}/online"), "0-3\n").write("proc/self/status", "Cpus_allowed_list:\t0-2\n");
        for cpu in 0..4 {
            let siblings = format!("{},{}\n", cpu % 2, cpu % 2 + 2);
            tree.write(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"), &siblings);
        }
        let cpus = usable(&tree.machine());
        assert_eq!(cpus, [0, 1, 2]);
        let finding = cores(&tree.machine(), &cpus);
        assert_eq!(
            (finding.level, finding.text.as_str()),
            (Level::Good, "3 CPUs (0-2) on 2 cores: two workers on one core share it")
        );
        tree.write("proc/self/status", "Cpus_allowed_list:\t1\n");
        assert_eq!(cores(&tree.machine(), &usable(&tree.machine())).level, Level::Warning);
    }

    #[test]
    fn isolation_says_what_to_boot_with() {
        let tree = Tree::new("isolation");
        tree.write(&format!("{CPUS}/isolated"), "\n");
        let finding = isolation(&tree.machine(), &[0, 1, 2, 3]);
        assert_eq!(finding.level, Level::Note);
        assert!(finding.fix.unwrap().contains("isolcpus=1-3 nohz_full=1-3"));
        tree.write(&format!("{CPUS}/isolated"), "2-3\n").write(&format!("{CPUS}/nohz_full"), "2-3\n");
        assert!(isolation(&tree.machine(), &[0, 1, 2, 3]).text.starts_with("CPUs 2-3 are kept free"));
    }

    #[test]
    fn a_governor_that_saves_power_is_named_with_its_cpus() {
        let tree = Tree::new("governor");
        assert_eq!(governor(&tree.machine(), &[0, 1]).level, Level::Good);
        for (cpu, name) in [(0, "performance"), (1, "powersave"), (2, "powersave")] {
            tree.write(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"), name);
        }
        let finding = governor(&tree.machine(), &[0, 1, 2]);
        assert_eq!((finding.level, finding.text.as_str()), (Level::Warning, "CPUs 0: performance; CPUs 1-2: powersave"));
        assert_eq!(governor(&tree.machine(), &[0]).level, Level::Good);
    }

    #[test]
    fn a_clock_that_is_slow_to_ask_is_warned_of() {
        let tree = Tree::new("clock");
        tree.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n");
        assert_eq!(clock(&tree.machine()).level, Level::Warning);
        tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc\n");
        assert_eq!(clock(&tree.machine()).level, Level::Good);
    }
}
