//! What a plugin exports, made of its declaration.

/// Declares the plugin: what the shared object exports.
///
/// ```
/// use quiver_plugin::{Batch, Error, Host, Node, Plugin};
///
/// struct Sample { host: Host }
///
/// impl Plugin for Sample {
///     fn start(host: Host, _options: &str) -> Result<Self, String> {
///         Ok(Self { host })
///     }
/// }
///
/// impl Sample {
///     fn enable(&self, request: &str) -> Result<String, Error> {
///         // A real one reads the JSON.
///         let on = request.contains("true");
///         self.host.feature("ip4-unicast", "sample", 1, on).then(String::new).ok_or("no interface 1".into())
///     }
/// }
///
/// struct DropAll;
///
/// impl Node for DropAll {
///     type Plugin = Sample;
///     fn open(_: &Sample, _thread: u32) -> Self { Self }
///     fn run(&mut self, batch: &mut Batch<'_>) {
///         (0..batch.len()).for_each(|packet| batch.drop(packet, 0));
///     }
/// }
///
/// quiver_plugin::export! {
///     plugin Sample { name: c"sample", version: c"1.0", about: c"Drops everything" }
///     nodes {
///         DropAll { name: c"sample", next: [c"ip4-lookup"], reasons: [{ c"sampled", c"The plugin drops everything.", info: 0 }] },
///     }
///     features { { arc: c"ip4-unicast", node: c"sample", before: [], after: [] }, }
///     counters { { name: c"/sample/packets", combined: 0, capacity: 1 }, }
///     operations { enable: cr#"{"name": "sample_enable", "access": "change", "about": "Drops everything", "commands": ["set sample"],
///         "arguments": [{"field": "on", "kind": "flag", "syntax": "on|off", "required": true}]}"#, }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    (
        plugin $plugin:ty { name: $name:expr, version: $version:expr, about: $about:expr }
        nodes { $( $node:ty { name: $node_name:expr, next: [$( $next:expr ),* $(,)?], reasons: [$( { $reason:expr, $why:expr, info: $info:expr } ),* $(,)?] } ),* $(,)? }
        features { $( { arc: $arc:expr, node: $feature:expr, before: [$( $before:expr ),* $(,)?], after: [$( $after:expr ),* $(,)?] } ),* $(,)? }
        counters { $( { name: $counter:expr, combined: $combined:expr, capacity: $capacity:expr } ),* $(,)? }
        operations { $( $run:ident: $declaration:expr ),* $(,)? }
    ) => {
        const _: () = {
            use std::ffi::{CStr, c_char, c_void};
            use $crate::abi;

            const fn text(text: &'static CStr) -> *const c_char {
                text.as_ptr()
            }

            const NODES: &[abi::Node] = &[$( {
                const NEXT: &[*const c_char] = &[$( text($next) ),*];
                const REASONS: &[abi::Reason] = &[$( abi::Reason { text: text($reason), about: text($why), is_info: $info, reserved: 0 } ),*];
                abi::Node {
                    name: text($node_name),
                    next: NEXT.as_ptr(),
                    reasons: REASONS.as_ptr(),
                    next_count: NEXT.len() as u32,
                    reason_count: REASONS.len() as u32,
                    open: Some($crate::calls::open::<$node>),
                    close: Some($crate::calls::close::<$node>),
                    run: Some($crate::calls::run::<$node>),
                }
            } ),*];
            const FEATURES: &[abi::Feature] = &[$( {
                const BEFORE: &[*const c_char] = &[$( text($before) ),*];
                const AFTER: &[*const c_char] = &[$( text($after) ),*];
                abi::Feature {
                    arc: text($arc),
                    node: text($feature),
                    before: BEFORE.as_ptr(),
                    after: AFTER.as_ptr(),
                    before_count: BEFORE.len() as u32,
                    after_count: AFTER.len() as u32,
                }
            } ),*];
            const COUNTERS: &[abi::Counter] =
                &[$( abi::Counter { name: text($counter), is_combined: $combined, capacity: $capacity } ),*];
            const OPERATIONS: &[abi::Operation] = &[$( {
                unsafe extern "C" fn run(plugin: *mut c_void, request: *const c_char, reply: *mut abi::Text) -> i32 {
                    // SAFETY: the router's arguments, of a plugin that `start` has made.
                    unsafe { $crate::calls::operation::<$plugin>(plugin, request, reply, <$plugin>::$run) }
                }
                abi::Operation { declaration: text($declaration), run: Some(run) }
            } ),*];

            #[unsafe(export_name = "quiver_plugin")]
            static PLUGIN: abi::Plugin = abi::Plugin {
                abi: abi::ABI,
                size: size_of::<abi::Plugin>() as u32,
                sizes: abi::Sizes::OWN,
                reserved: 0,
                name: text($name),
                version: text($version),
                about: text($about),
                nodes: NODES.as_ptr(),
                features: FEATURES.as_ptr(),
                counters: COUNTERS.as_ptr(),
                operations: OPERATIONS.as_ptr(),
                node_count: NODES.len() as u32,
                feature_count: FEATURES.len() as u32,
                counter_count: COUNTERS.len() as u32,
                operation_count: OPERATIONS.len() as u32,
                start: Some($crate::calls::start::<$plugin>),
                stop: Some($crate::calls::stop::<$plugin>),
                configuration: Some($crate::calls::configuration::<$plugin>),
                interface_gone: Some($crate::calls::interface_gone::<$plugin>),
            };
        };
    };
}

/// What the router calls. A panic is an error where one can be given, and otherwise the end of the program: no state is left to go on
/// with.
pub mod calls {
    use std::ffi::{CStr, c_char, c_void};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::abi;
    use crate::{Batch, Error, Host, Node, Plugin};

    /// The plugin's state, and the router that writes texts.
    struct State<P> {
        plugin: P,
        host: *const abi::Host,
    }

    /// # Safety
    /// `host` and `text` are the router's.
    unsafe fn write(host: *const abi::Host, text: *mut abi::Text, bytes: &str) {
        // SAFETY: the caller's promise.
        unsafe { ((*host).write)(text, bytes.as_ptr().cast(), bytes.len()) }
    }

    fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            format!("the plugin panicked: {text}")
        })
    }

    /// # Safety
    /// The router's arguments.
    pub unsafe extern "C" fn start<P: Plugin>(
        host: *const abi::Host,
        options: *const c_char,
        plugin: *mut *mut c_void,
        error: *mut abi::Text,
    ) -> i32 {
        // SAFETY: the router's string.
        let options = unsafe { CStr::from_ptr(options) }.to_string_lossy();
        // SAFETY: it stays as long as the plugin.
        let router = unsafe { Host::new(host) };
        match guarded(|| P::start(router, &options)).and_then(|started| started) {
            Ok(started) => {
                let state = Box::new(State { plugin: started, host });
                // SAFETY: the router's place for it.
                unsafe { *plugin = Box::into_raw(state).cast() };
                0
            }
            Err(text) => {
                // SAFETY: both are the router's.
                unsafe { write(host, error, &text) };
                -1
            }
        }
    }

    /// # Safety
    /// The state that `start` has made.
    unsafe fn state<'a, P>(plugin: *mut c_void) -> &'a State<P> {
        // SAFETY: the caller's promise; main alone uses it.
        unsafe { &*plugin.cast() }
    }

    /// # Safety
    /// The state that `start` has made, for the last time where 0 comes back.
    pub unsafe extern "C" fn stop<P: Plugin>(plugin: *mut c_void) -> i32 {
        // SAFETY: the caller's promise.
        let idle = guarded(|| unsafe { state::<P>(plugin) }.plugin.is_idle());
        if idle != Ok(true) {
            return 1;
        }
        // SAFETY: `start` has made it, and nobody uses it again.
        let state = unsafe { Box::from_raw(plugin.cast::<State<P>>()) };
        i32::from(guarded(|| drop(state)).is_err())
    }

    /// # Safety
    /// The state that `start` has made, and a text of the router.
    pub unsafe extern "C" fn configuration<P: Plugin>(plugin: *mut c_void, out: *mut abi::Text) {
        // SAFETY: the caller's promise.
        let state = unsafe { state::<P>(plugin) };
        if let Ok(text) = guarded(|| state.plugin.configuration()) {
            // SAFETY: both are the router's.
            unsafe { write(state.host, out, &text) };
        }
    }

    /// # Safety
    /// The state that `start` has made.
    pub unsafe extern "C" fn interface_gone<P: Plugin>(plugin: *mut c_void, interface: u32) {
        // SAFETY: the caller's promise.
        let state = unsafe { state::<P>(plugin) };
        // A panic has been printed; the plugin's state is its own.
        let _ = guarded(|| state.plugin.interface_gone(interface));
    }

    /// # Safety
    /// The state that `start` has made, a string and a text of the router.
    pub unsafe fn operation<P: Plugin>(
        plugin: *mut c_void,
        request: *const c_char,
        reply: *mut abi::Text,
        run: fn(&P, &str) -> Result<String, Error>,
    ) -> i32 {
        // SAFETY: the caller's promise.
        let (state, request) = unsafe { (state::<P>(plugin), CStr::from_ptr(request)) };
        let answer = guarded(|| run(&state.plugin, &request.to_string_lossy())).unwrap_or_else(|panic| Err(panic.into()));
        let (code, text) = match answer {
            Ok(text) => (0, text),
            Err(error) => (error.code.min(-1), error.text),
        };
        // SAFETY: both are the router's.
        unsafe { write(state.host, reply, &text) };
        code
    }

    /// # Safety
    /// The state that `start` has made.
    pub unsafe extern "C" fn open<N: Node>(plugin: *mut c_void, thread: u32) -> *mut c_void {
        // SAFETY: the caller's promise.
        let state = unsafe { state::<N::Plugin>(plugin) };
        Box::into_raw(Box::new(N::open(&state.plugin, thread))).cast()
    }

    /// # Safety
    /// What `open` has made, for the last time.
    pub unsafe extern "C" fn close<N: Node>(node: *mut c_void) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(node.cast::<N>()) });
    }

    /// # Safety
    /// What `open` has made, on one thread at a time, and a batch of the router.
    pub unsafe extern "C" fn run<N: Node>(node: *mut c_void, batch: *mut abi::Batch) {
        // SAFETY: the caller's promise.
        let (node, mut batch) = unsafe { (&mut *node.cast::<N>(), Batch::new(batch)) };
        node.run(&mut batch);
    }
}
