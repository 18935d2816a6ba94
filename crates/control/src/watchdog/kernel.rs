//! What `/proc` tells of a thread of this process.

use std::fs;
use std::time::Duration;

use super::judge::Kernel;

/// Clock ticks of `/proc` are a hundredth of a second on all machines that Quiver is for (USER_HZ).
const TICK_MS: u64 = 10;

/// State, processor time and switches of a thread; nothing where it is gone or `/proc` is not there.
pub fn thread(lwp: u64) -> Option<Kernel> {
    let stat = fs::read_to_string(format!("/proc/self/task/{lwp}/stat")).ok()?;
    let (state, ticks) = parse_stat(&stat)?;
    // Only the waits of a thread in the state D are told apart by this.
    let status = if state == 'D' { fs::read_to_string(format!("/proc/self/task/{lwp}/status")).ok()? } else { String::new() };
    // A kernel without this file does not tell it.
    let queued = fs::read_to_string(format!("/proc/self/task/{lwp}/schedstat")).ok().and_then(|text| parse_schedstat(&text));
    let cpu = Duration::from_millis(ticks.saturating_mul(TICK_MS));
    Some(Kernel { state, cpu, queued: queued.unwrap_or_default(), switches: switches(&status) })
}

/// State, and clock ticks in user and kernel mode. The name before them may hold anything, also brackets.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((state, user + system))
}

/// Time that a thread could have run and got no processor.
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

fn switches(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_proc_5() {
        let stat = "30887 (a) R 9 (b) S 30879 30879 22334 0 -1 4194304 101 0 0 0 12 30 0 0 20 0 1 0 93018 3133440 383";
        assert_eq!(parse_stat(stat), Some(('S', 42)));
        assert_eq!(parse_stat("nothing"), None);
        assert_eq!(switches("Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t5\n"), 150);
    }

    #[test]
    fn time_in_the_queue_of_a_processor_is_the_second_number() {
        assert_eq!(parse_schedstat("83444 592253 2\n"), Some(Duration::from_nanos(592_253)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn this_thread_runs() {
        let lwp = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        assert_eq!(thread(lwp).unwrap().state, 'R');
        assert_eq!(thread(u64::MAX), None);
    }
}
