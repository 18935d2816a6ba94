//! What a plugin exports, read once into values of Rust.

use std::ffi::{CStr, c_char, c_void};

use quiver_command::request::{Dynamic, Kept, keep};
use quiver_graph::{ErrorText, FeatureSpec, Severity};
use quiver_plugin::abi;

/// Of each kind at most.
const MOST: u32 = 256;
/// Bytes of a text at most.
const LONGEST: usize = 64 << 10;

pub(crate) type Run = unsafe extern "C" fn(*mut c_void, *mut abi::Batch);
pub(crate) type Open = unsafe extern "C" fn(*mut c_void, u32) -> *mut c_void;
pub(crate) type Close = unsafe extern "C" fn(*mut c_void);
pub(crate) type Operate = unsafe extern "C" fn(*mut c_void, *const c_char, *mut abi::Text) -> i32;
pub(crate) type Start = unsafe extern "C" fn(*const abi::Host, *const c_char, *mut *mut c_void, *mut abi::Text) -> i32;

/// What a plugin is and brings.
pub(crate) struct Declared {
    pub name: String,
    pub version: String,
    pub about: String,
    pub nodes: Vec<NodeDeclared>,
    pub features: Vec<FeatureSpec>,
    pub counters: Vec<CounterDeclared>,
    pub operations: Vec<OperationDeclared>,
    pub start: Start,
    pub stop: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    pub configuration: Option<unsafe extern "C" fn(*mut c_void, *mut abi::Text)>,
    pub interface_gone: Option<unsafe extern "C" fn(*mut c_void, u32)>,
}

pub(crate) struct NodeDeclared {
    pub name: String,
    pub next: Vec<String>,
    /// The last one is the router's: for reasons that the plugin has not declared.
    pub reasons: &'static [ErrorText],
    pub open: Option<Open>,
    pub close: Option<Close>,
    pub run: Run,
}

pub(crate) struct CounterDeclared {
    pub name: String,
    pub combined: bool,
    pub capacity: u32,
}

pub(crate) struct OperationDeclared {
    pub text: String,
    pub run: Operate,
}

/// A text of the plugin.
///
/// # Safety
/// Null, or a string that ends with zero.
unsafe fn text(from: *const c_char, what: &str) -> Result<String, String> {
    if from.is_null() {
        return Err(format!("{what} is missing"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(from) };
    let text = text.to_str().map_err(|_| format!("{what} is no UTF-8"))?;
    if text.len() > LONGEST {
        return Err(format!("{what} has more than {LONGEST} bytes"));
    }
    Ok(text.to_owned())
}

/// A list of the plugin.
///
/// # Safety
/// Null, or so many of them.
unsafe fn list<'a, T>(from: *const T, count: u32, what: &str) -> Result<&'a [T], String> {
    match count {
        0 => Ok(&[]),
        _ if from.is_null() => Err(format!("the list of {what} is missing")),
        1..=MOST => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(from, count as usize) })
        }
        _ => Err(format!("{count} {what} are more than {MOST}")),
    }
}

/// Texts of the plugin.
///
/// # Safety
/// As of [`list`] and [`text`].
unsafe fn texts(from: *const *const c_char, count: u32, what: &str) -> Result<Vec<String>, String> {
    // SAFETY: the caller's promise.
    unsafe { list(from, count, what)?.iter().map(|one| text(*one, what)).collect() }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

static REASONS: Kept<ErrorText> = Kept::new();

impl Declared {
    /// Reads what a plugin exports.
    ///
    /// # Safety
    /// A constant of a plugin whose version and sizes are this router's.
    pub unsafe fn read(plugin: *const abi::Plugin) -> Result<Self, String> {
        if plugin.is_null() {
            return Err("its symbol is nowhere".to_owned());
        }
        // SAFETY: the caller's promise, for all below.
        let plugin = unsafe { &*plugin };
        // SAFETY: as above.
        let (name, version, about) = unsafe {
            (text(plugin.name, "its name")?, text(plugin.version, "its version")?, text(plugin.about, "what it is about")?)
        };
        if !is_name(&name) {
            return Err("its name may have letters, digits, `-' and `_', 64 at most".to_owned());
        }
        // SAFETY: as above.
        let (nodes, features, counters, operations) = unsafe {
            (
                list(plugin.nodes, plugin.node_count, "nodes")?,
                list(plugin.features, plugin.feature_count, "features")?,
                list(plugin.counters, plugin.counter_count, "counters")?,
                list(plugin.operations, plugin.operation_count, "operations")?,
            )
        };
        // SAFETY: as above.
        let nodes = nodes.iter().map(|node| unsafe { NodeDeclared::read(node) }).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: as above.
        let features = features.iter().map(|feature| unsafe { read_feature(feature) }).collect::<Result<Vec<_>, _>>()?;
        for (at, feature) in features.iter().enumerate() {
            if features[..at].iter().any(|other| other.node == feature.node) {
                return Err(format!("node `{}' is a feature of two arcs; it can be of one", feature.node));
            }
            if !nodes.iter().any(|node| node.name == feature.node) {
                return Err(format!("the feature `{}' is no node of the plugin", feature.node));
            }
        }
        // SAFETY: as above.
        let counters = counters.iter().map(|counter| unsafe { CounterDeclared::read(counter) }).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: as above.
        let operations =
            operations.iter().map(|operation| unsafe { OperationDeclared::read(operation) }).collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            version,
            about,
            nodes,
            features,
            counters,
            operations,
            start: plugin.start.ok_or("it has no function `start'")?,
            stop: plugin.stop,
            configuration: plugin.configuration,
            interface_gone: plugin.interface_gone,
        })
    }
}

impl NodeDeclared {
    unsafe fn read(node: &abi::Node) -> Result<Self, String> {
        // SAFETY: of a plugin (`Declared::read`).
        let name = unsafe { text(node.name, "the name of a node")? };
        if !is_name(&name) {
            return Err(format!("a node cannot be called `{name}'"));
        }
        // SAFETY: as above.
        let (next, reasons) =
            unsafe { (texts(node.next, node.next_count, "next nodes")?, list(node.reasons, node.reason_count, "reasons")?) };
        let mut kept = Vec::new();
        for reason in reasons {
            // SAFETY: as above.
            let (short, about) =
                unsafe { (text(reason.text, "a reason")?, text(reason.about, "what a reason is about").unwrap_or_default()) };
            let severity = if reason.is_info != 0 { Severity::Info } else { Severity::Error };
            kept.push(ErrorText::new(keep(&short), keep(&about), severity));
        }
        kept.push(ErrorText::new(
            "dropped by the plugin",
            "A node of a plugin dropped the packet, for a reason that the plugin does not declare.",
            Severity::Error,
        ));
        let run = node.run.ok_or_else(|| format!("node `{name}' has no function `run'"))?;
        Ok(Self { name, next, reasons: REASONS.keep(kept), open: node.open, close: node.close, run })
    }
}

unsafe fn read_feature(feature: &abi::Feature) -> Result<FeatureSpec, String> {
    // SAFETY: of a plugin (`Declared::read`).
    unsafe {
        let kept = |from, count| Ok::<_, String>(texts(from, count, "features")?.iter().map(|name| keep(name)).collect());
        Ok(FeatureSpec {
            arc: keep(&text(feature.arc, "the arc of a feature")?),
            node: text(feature.node, "the node of a feature")?,
            before: kept(feature.before, feature.before_count)?,
            after: kept(feature.after, feature.after_count)?,
        })
    }
}

impl CounterDeclared {
    unsafe fn read(counter: &abi::Counter) -> Result<Self, String> {
        // SAFETY: of a plugin (`Declared::read`).
        let name = unsafe { text(counter.name, "the name of a counter")? };
        if counter.capacity == 0 || counter.capacity > 1 << 20 {
            return Err(format!("counter `{name}' may have 1 to 1048576 numbers, not {}", counter.capacity));
        }
        Ok(Self { name, combined: counter.is_combined != 0, capacity: counter.capacity })
    }
}

impl OperationDeclared {
    unsafe fn read(operation: &abi::Operation) -> Result<Self, String> {
        // SAFETY: of a plugin (`Declared::read`).
        let text = unsafe { text(operation.declaration, "the declaration of an operation")? };
        let request = Dynamic::read(&text)?;
        let run = operation.run.ok_or_else(|| format!("operation `{}' has no function `run'", request.name))?;
        Ok(Self { text, run })
    }
}
