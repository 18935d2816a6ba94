//! DPDK's environment: started once a process, when the first device is opened.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Mutex;

use quiver_graph::topology;

use crate::ffi;

/// MB of memory of DPDK's own where there are no huge pages: address space, taken as it is used.
const SMALL_PAGES_MB: u32 = 256;
/// Free huge pages below which DPDK's own memory goes on small pages.
const HUGE_PAGES_MIN: u32 = 32;

/// Whether the environment runs; a start that failed cannot be repeated in the same process.
static STATE: Mutex<State> = Mutex::new(State::Off);

#[derive(Clone)]
enum State {
    Off,
    On { arguments: String },
    Failed(String),
}

fn state() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the environment is told.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// PCI devices that it may take.
    pub allowed: Vec<String>,
    /// Own memory on small pages.
    pub no_huge_pages: bool,
    /// Own memory of each NUMA node, MB.
    pub socket_mem: Option<String>,
    /// Widest vector instructions, bits.
    pub simd_bits: Option<u16>,
    /// Its telemetry socket.
    pub telemetry: bool,
    /// `pa` or `va`, where it is not to choose.
    pub iova_mode: Option<&'static str>,
}

impl Settings {
    /// Command-line words of DPDK. `cpus` are those of the main thread; our workers are not DPDK's.
    fn words(&self, cpus: &[u32], huge_pages: bool) -> Vec<String> {
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let mut words = vec!["quiver".to_owned(), "--lcores".into(), format!("0@({})", cpus.join(","))];
        words.extend(["--file-prefix".to_owned(), format!("quiver-{}", std::process::id())]);
        if huge_pages {
            words.push("--in-memory".into());
            self.socket_mem.iter().for_each(|mb| words.extend(["--socket-mem".to_owned(), mb.clone()]));
        } else {
            words.extend(["--no-huge", "--no-shconf", "-m"].map(str::to_owned));
            words.push(SMALL_PAGES_MB.to_string());
        }
        if !self.telemetry {
            words.push("--no-telemetry".into());
        }
        if self.allowed.is_empty() {
            words.push("--no-pci".into());
        }
        self.allowed.iter().for_each(|address| words.extend(["-a".to_owned(), address.clone()]));
        // Virtual devices alone leave the choice open, and physical addresses would need root for nothing.
        let mode = self.iova_mode.or(self.allowed.is_empty().then_some("va"));
        mode.iter().for_each(|mode| words.push(format!("--iova-mode={mode}")));
        self.simd_bits.iter().for_each(|bits| words.push(format!("--force-max-simd-bitwidth={bits}")));
        words
    }
}

/// Free 2 MB pages of the machine.
fn free_huge_pages() -> u32 {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Starts the environment, unless it runs already.
///
/// # Errors
/// DPDK's; then it cannot be started again in this process.
pub fn start(settings: &Settings) -> Result<(), String> {
    let mut state = state();
    match &*state {
        State::On { .. } => return Ok(()),
        State::Failed(error) => return Err(error.clone()),
        State::Off => {}
    }
    let cpus = topology::allowed_cpus().map_err(|error| format!("cannot ask for the main thread's cores: {error}"))?;
    let huge_pages = !settings.no_huge_pages && free_huge_pages() >= HUGE_PAGES_MIN;
    if !huge_pages && !settings.no_huge_pages {
        tracing::info!(target: "dpdk", "DPDK's own memory is on 4 kB pages; for 2 MB pages: sysctl -w vm.nr_hugepages=512");
    }
    let words = settings.words(&cpus, huge_pages);
    let arguments = words.join(" ");
    // DPDK keeps pointers to its arguments and may reorder them, so they are never freed.
    let words: Vec<*mut c_char> = words.into_iter().filter_map(|word| CString::new(word).ok().map(CString::into_raw)).collect();
    let words = words.leak();
    // SAFETY: as many words as said, each a C string, all of them for ever.
    let result = unsafe { ffi::qd_init(words.len() as c_int, words.as_mut_ptr(), log) };
    if result < 0 {
        let error = format!("DPDK does not start ({arguments}): {}", reason(result));
        *state = State::Failed(error.clone());
        return Err(error);
    }
    REGISTERED.with(|here| here.0.set(true));
    *state = State::On { arguments };
    Ok(())
}

/// The words that DPDK was started with, where it runs.
pub fn arguments() -> Option<String> {
    match &*state() {
        State::On { arguments } => Some(arguments.clone()),
        _ => None,
    }
}

/// DPDK's version.
pub fn version() -> String {
    // SAFETY: DPDK gives a C string that stays.
    unsafe { CStr::from_ptr(ffi::qd_version()) }.to_string_lossy().into_owned()
}

/// Takes a line of DPDK's log.
extern "C" fn log(level: c_int, text: *const c_char, len: usize) {
    // SAFETY: the shim passes len bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    for line in String::from_utf8_lossy(bytes).lines().filter(|line| !line.trim().is_empty()) {
        match level {
            ..=4 => tracing::error!(target: "dpdk", "{line}"),
            5 => tracing::warn!(target: "dpdk", "{line}"),
            6 => tracing::info!(target: "dpdk", "{line}"),
            _ => tracing::debug!(target: "dpdk", "{line}"),
        }
    }
}

/// What a negative error number of DPDK's means.
pub fn reason(error: c_int) -> String {
    std::io::Error::from_raw_os_error(error.saturating_neg()).to_string()
}

/// A thread's place among DPDK's, given back when the thread ends.
struct Registered(Cell<bool>, Cell<bool>);

thread_local! {
    static REGISTERED: Registered = const { Registered(Cell::new(false), Cell::new(false)) };
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.1.get() {
            ffi::qd_thread_unregister();
        }
    }
}

/// Makes the calling thread known to DPDK, if it is not. Some drivers keep things by thread.
#[inline(always)]
pub fn register_thread() {
    REGISTERED.with(|here| {
        if !here.0.get() {
            register_now(here);
        }
    });
}

#[cold]
fn register_now(here: &Registered) {
    here.0.set(true);
    match ffi::qd_thread_register() {
        1 => here.1.set(true),
        0 => {}
        error => tracing::warn!(target: "dpdk", "a worker is not known to DPDK: {}", reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_pci_devices_no_bus_is_looked_at() {
        let words = Settings::default().words(&[0, 2], false).join(" ");
        assert!(words.contains("--lcores 0@(0,2) ") && words.contains("--no-pci") && words.contains("--iova-mode=va"), "{words}");
        assert!(words.contains("--no-huge --no-shconf -m 256") && words.contains("--no-telemetry"), "{words}");
    }

    #[test]
    fn only_the_devices_named_are_taken() {
        let settings = Settings { allowed: vec!["0000:01:00.0".into()], simd_bits: Some(256), ..Settings::default() };
        let words = settings.words(&[1], true).join(" ");
        assert!(words.contains("-a 0000:01:00.0") && !words.contains("no-pci") && !words.contains("iova"), "{words}");
        assert!(words.contains("--in-memory") && words.contains("--force-max-simd-bitwidth=256"), "{words}");
    }
}
