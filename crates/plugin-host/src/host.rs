//! What the router does for a plugin: the functions behind `quiver_host`.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_graph::stats::{CombinedCounters, SimpleCounters};
use quiver_net::Router;
use quiver_plugin::abi::{ABI, Host, NO_INTERFACE, Text};

/// Bytes that a plugin can write at most as an answer.
const LONGEST: usize = 16 << 20;

/// A text that a plugin writes.
#[derive(Default)]
pub(crate) struct Written(Vec<u8>);

impl Written {
    pub fn raw(&mut self) -> *mut Text {
        std::ptr::from_mut(self).cast()
    }

    /// The text, in one line.
    pub fn line(self) -> String {
        self.text().replace(['\n', '\r', '\0'], " ").trim().to_owned()
    }

    pub fn text(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Counters of a plugin.
pub(crate) enum Counters {
    Simple(Arc<SimpleCounters>),
    Combined(Arc<CombinedCounters>),
}

impl Counters {
    pub fn add(&self, thread: usize, index: u32, packets: u64, bytes: u64) {
        match self {
            Self::Simple(counters) => counters.add(thread, index, packets),
            Self::Combined(counters) => counters.add(thread, index, packets, bytes),
        }
    }

    fn sum(&self, index: u32) -> (u64, u64) {
        match self {
            Self::Simple(counters) => (counters.sum(index), 0),
            Self::Combined(counters) => counters.sum(index),
        }
    }
}

/// The router as one plugin has it. It stays where it is until the plugin is gone.
pub(crate) struct Handle {
    raw: Host,
    name: String,
    /// While a function of the plugin runs that may change the router.
    router: Cell<*mut Router>,
    /// While a function of the plugin runs.
    seen: Cell<*const Router>,
    pub counters: Arc<[Counters]>,
    /// Its own features, by arc and node.
    pub features: RefCell<Vec<(&'static str, String)>>,
}

impl Handle {
    pub fn new(name: &str, counters: Arc<[Counters]>) -> Rc<Self> {
        Rc::new_cyclic(|own: &Weak<Self>| {
            let raw = Host {
                abi: ABI,
                size: size_of::<Host>() as u32,
                router: own.as_ptr().cast_mut().cast(),
                write,
                log,
                feature,
                interface,
                interface_name,
                sum,
            };
            let (router, seen, features) = (Cell::new(null_mut()), Cell::new(null()), RefCell::default());
            Self { raw, name: name.to_owned(), router, seen, counters, features }
        })
    }

    pub fn raw(&self) -> *const Host {
        &raw const self.raw
    }

    /// Calls a function of the plugin that may change the router.
    pub fn with<T>(&self, router: &mut Router, call: impl FnOnce() -> T) -> T {
        let router = &raw mut *router;
        self.router.set(router);
        self.seen.set(router);
        let done = call();
        self.router.set(null_mut());
        self.seen.set(null());
        done
    }

    /// Calls a function of the plugin that only asks.
    pub fn with_view<T>(&self, router: &Router, call: impl FnOnce() -> T) -> T {
        self.seen.set(router);
        let done = call();
        self.seen.set(null());
        done
    }

    /// The router, while a function of the plugin runs.
    fn router(&self) -> Option<&Router> {
        // SAFETY: the main thread is in `with` or `with_view`, which have borrowed it and do not use it meanwhile.
        unsafe { self.seen.get().as_ref() }
    }
}

/// The handle of a plugin that calls.
///
/// # Safety
/// The host that the plugin was given.
unsafe fn handle<'a>(host: *const Host) -> &'a Handle {
    // SAFETY: the caller's promise; `new` has put it there, and it stays as long as the plugin.
    unsafe { &*(*host).router.cast::<Handle>() }
}

/// A string of the plugin; empty for null.
///
/// # Safety
/// Null, or a string that ends with zero.
unsafe fn text<'a>(from: *const c_char) -> std::borrow::Cow<'a, str> {
    if from.is_null() {
        return "".into();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_string_lossy()
}

unsafe extern "C" fn write(text: *mut Text, bytes: *const c_char, length: usize) {
    if text.is_null() || bytes.is_null() {
        return;
    }
    // SAFETY: a text that the plugin was given, and so many bytes of the plugin.
    let (text, bytes) = unsafe { (&mut *text.cast::<Written>(), std::slice::from_raw_parts(bytes.cast::<u8>(), length)) };
    let room = LONGEST.saturating_sub(text.0.len());
    text.0.extend_from_slice(&bytes[..length.min(room)]);
}

unsafe extern "C" fn log(host: *const Host, level: u32, line: *const c_char) {
    // SAFETY: the plugin's arguments.
    let (handle, line) = unsafe { (handle(host), text(line)) };
    let (name, line) = (&handle.name, line.replace('\n', " "));
    match level {
        1 => tracing::error!(target: "plugin", "{name}: {line}"),
        2 => tracing::warn!(target: "plugin", "{name}: {line}"),
        3 => tracing::info!(target: "plugin", "{name}: {line}"),
        _ => tracing::debug!(target: "plugin", "{name}: {line}"),
    }
}

unsafe extern "C" fn feature(host: *const Host, arc: *const c_char, node: *const c_char, interface: u32, on: i32) -> i32 {
    // SAFETY: the plugin's arguments.
    let (handle, arc, node) = unsafe { (handle(host), text(arc), text(node)) };
    // SAFETY: the main thread is in `with`, which has borrowed it and does not use it meanwhile.
    let Some(router) = (unsafe { handle.router.get().as_mut() }) else { return -1 };
    let own = handle.features.borrow().iter().any(|(other, feature)| *other == arc && *feature == node);
    let index = IfIndex(interface);
    if !own || router.interfaces.get(index).is_none() {
        return -1;
    }
    router.graph.set_feature(&arc, &node, index, on != 0).map_or(-1, |_| 0)
}

unsafe extern "C" fn interface(host: *const Host, name: *const c_char) -> u32 {
    // SAFETY: the plugin's arguments.
    let (handle, name) = unsafe { (handle(host), text(name)) };
    handle.router().and_then(|router| router.interfaces.find(&name).ok()).map_or(NO_INTERFACE, |index| index.0)
}

unsafe extern "C" fn interface_name(host: *const Host, interface: u32, name: *mut c_char, room: usize) -> i32 {
    // SAFETY: the plugin's argument.
    let handle = unsafe { handle(host) };
    let found = handle.router().and_then(|router| router.interfaces.get(IfIndex(interface)));
    let Some(text) = found.map(|interface| interface.name.as_bytes()).filter(|text| text.len() < room && !name.is_null()) else {
        return -1;
    };
    // SAFETY: the plugin has room for them, and for a zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len());
        *name.add(text.len()) = 0;
    }
    text.len() as i32
}

unsafe extern "C" fn sum(host: *const Host, counter: u32, index: u32, packets: *mut u64, bytes: *mut u64) {
    // SAFETY: the plugin's argument.
    let handle = unsafe { handle(host) };
    let sums = handle.counters.get(counter as usize).map_or((0, 0), |counters| counters.sum(index));
    // SAFETY: null, or numbers of the plugin.
    unsafe {
        if let Some(packets) = packets.as_mut() {
            *packets = sums.0;
        }
        if let Some(bytes) = bytes.as_mut() {
            *bytes = sums.1;
        }
    }
}

/// What a call of the plugin gets for its state.
pub(crate) type State = *mut c_void;
