//! Plugins that run: how they start and end, and what is asked of them.

use std::borrow::Cow;
use std::ffi::{CString, c_void};
use std::rc::Rc;
use std::sync::Arc;

use quiver_command::change_log::Record;
use quiver_command::configuration::{Back, Configuration, Entry, Steps, Update, whole};
use quiver_command::operation::{Dynamic, DynamicReply, OpError, retval};
use quiver_command::request;
use quiver_graph::NodeId;
use quiver_net::interface::IfEvent;
use quiver_net::{IfIndex, Router};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use crate::declared::OperationDeclared;
use crate::host::{Counters, Handle, State, Written};
use crate::library::{Library, Refused};
use crate::node;

/// A plugin that runs.
pub struct Loaded {
    library: Library,
    handle: Rc<Handle>,
    state: State,
    /// Its nodes in the graph.
    nodes: Vec<NodeId>,
    operations: Vec<Rc<Dynamic<Router>>>,
    /// Its place among all that ever ran.
    number: u64,
}

/// A plugin as `show plugins` tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Its file.
    pub file: String,
    /// Its version.
    pub version: String,
    /// What it does.
    pub about: String,
}

/// The plugins that run: a part of the router.
#[derive(Default)]
pub struct Plugins {
    loaded: Vec<Rc<Loaded>>,
    /// Files of plugins that were told to stop and could not be unloaded.
    stuck: Vec<Info>,
    started: u64,
}

/// What a plugin says of its configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    operation: String,
    request: Value,
    undo: Option<Value>,
}

impl Plugins {
    /// Makes the router ready for plugins.
    pub fn prepare(router: &mut Router) {
        router.add_part(Self::default());
        router.listen(|router, event| {
            if let IfEvent::Deleted(index) = *event {
                gone(router, index);
            }
        });
    }

    /// Those of a router.
    pub fn of(router: &Router) -> &[Rc<Loaded>] {
        router.part::<Self>().map_or(&[], |plugins| &plugins.loaded)
    }

    /// Those that wait for the next start to be gone.
    pub fn stuck(router: &Router) -> &[Info] {
        router.part::<Self>().map_or(&[], |plugins| &plugins.stuck)
    }

    /// The one whose file or name this is.
    pub fn find(router: &Router, name: &str) -> Option<Rc<Loaded>> {
        let is = |loaded: &&Rc<Loaded>| crate::names(&loaded.library.file(), name) || crate::names(loaded.name(), name);
        Self::of(router).iter().find(is).cloned()
    }

    /// Starts a plugin. `options` are those of `startup.conf`.
    ///
    /// # Errors
    /// What it says, or what it declares that cannot be; then nothing of it is left, and it is unloaded.
    pub fn start(router: &mut Router, library: Library, options: &Map<String, Value>) -> Result<Rc<Loaded>, Refused> {
        let refused = |name: String, why: String| Refused { name, why };
        let file = library.file();
        if Self::find(router, &library.declared.name).is_some() {
            let why = format!("a plugin `{}' is loaded already", library.declared.name);
            // SAFETY: nothing of it has run.
            unsafe { library.unload() };
            return Err(refused(file, why));
        }
        let number = match router.part_mut::<Self>() {
            Some(plugins) => {
                plugins.started += 1;
                plugins.started
            }
            None => 0,
        };
        let loaded = Loaded::start(router, library, options, number).map_err(|why| refused(file, why))?;
        let loaded = Rc::new(loaded);
        if let Some(plugins) = router.part_mut::<Self>() {
            plugins.loaded.push(Rc::clone(&loaded));
        }
        Ok(loaded)
    }

    /// Ends a plugin and unloads it. `false`: it is off, but something of it runs, and it stays in memory until the router ends.
    ///
    /// Who calls it makes a registry without its operations.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn stop(router: &mut Router, name: &str) -> Result<bool, OpError> {
        let Some(loaded) = Self::find(router, name) else {
            let files: Vec<String> = Self::of(router).iter().map(|loaded| loaded.library.file()).collect();
            let error = OpError::new(retval::NO_SUCH_ENTRY, format!("no plugin `{name}' is loaded")).key("name").value(name);
            return Err(match files.is_empty() {
                true => error.remedy("`plugin unload' takes a plugin that `plugin load' or startup.conf has loaded; none is"),
                false => error.remedy(format!("loaded are: {}", files.join(", "))),
            });
        };
        if let Some(plugins) = router.part_mut::<Self>() {
            plugins.loaded.retain(|other| other.number != loaded.number);
        }
        loaded.leave(router);
        let info = loaded.info();
        // The operations have it only by number.
        let Ok(loaded) = Rc::try_unwrap(loaded).map_err(std::mem::forget) else { return Ok(false) };
        let unloaded = loaded.end(router);
        if !unloaded && let Some(plugins) = router.part_mut::<Self>() {
            plugins.stuck.push(info);
        }
        Ok(unloaded)
    }

    /// Ends all of them, the last first.
    pub fn stop_all(router: &mut Router) {
        while let Some(last) = Self::of(router).last().map(|loaded| loaded.library.file()) {
            if Self::stop(router, &last).is_err() {
                return;
            }
        }
    }
}

/// An interface is deleted.
fn gone(router: &mut Router, index: IfIndex) {
    for loaded in Plugins::of(router).to_vec() {
        if let Some(gone) = loaded.library.declared.interface_gone {
            // SAFETY: the plugin runs, and this is the main thread.
            loaded.handle.with(router, || unsafe { gone(loaded.state, index.0) });
        }
    }
}

/// What the plugins say of their configuration.
pub fn configuration(_: &Router) -> Steps<Router> {
    whole(|router, out| {
        for loaded in Plugins::of(router) {
            loaded.configuration(router, out);
        }
    })
}

impl Loaded {
    fn start(router: &mut Router, library: Library, options: &Map<String, Value>, number: u64) -> Result<Self, String> {
        let counters = match counters(router, &library) {
            Ok(counters) => counters,
            Err(why) => {
                // SAFETY: nothing of it has run.
                unsafe { library.unload() };
                return Err(why);
            }
        };
        let handle = Handle::new(&library.declared.name, counters);
        let options = CString::new(Value::Object(options.clone()).to_string()).unwrap_or_default();
        let (mut state, mut error): (State, _) = (std::ptr::null_mut(), Written::default());
        let start = library.declared.start;
        // SAFETY: the main thread; host and texts are there for the call, and the host as long as the plugin.
        let code = handle.with(router, || unsafe { start(handle.raw(), options.as_ptr(), &raw mut state, error.raw()) });
        let mut loaded = Self { library, handle, state, nodes: Vec::new(), operations: Vec::new(), number };
        if code != 0 {
            let why = match error.line() {
                line if line.is_empty() => format!("its start failed with {code}"),
                line => format!("it does not start: {line}"),
            };
            loaded.forget_counters(router);
            // SAFETY: it has not started: no node and no operation of it is anywhere.
            unsafe { loaded.library.unload() };
            return Err(why);
        }
        if let Err(why) = loaded.enter(router) {
            loaded.leave(router);
            loaded.end(router);
            return Err(why);
        }
        Ok(loaded)
    }

    /// Puts nodes into the graph, and makes operations of what it declares.
    fn enter(&mut self, router: &mut Router) -> Result<(), String> {
        let declared = &self.library.declared;
        let (host, state) = (&self.handle, self.state);
        let arc = |node: &str| declared.features.iter().find(|feature| feature.node == node).map(|feature| feature.arc);
        let specs = declared.nodes.iter().map(|node| node::spec(node, arc(&node.name), state, &host.counters)).collect();
        self.nodes = router.graph.add(specs).map_err(|error| error.to_string())?;
        for feature in &declared.features {
            host.features.borrow_mut().push((feature.arc, feature.node.clone()));
            router.graph.add_features(vec![feature.clone()]).map_err(|error| error.to_string())?;
        }
        let number = self.number;
        let operation = |(at, declared): (usize, &OperationDeclared)| {
            let request = request::Dynamic::read(&declared.text)?;
            Ok(Rc::new(Dynamic { request, run: Box::new(move |router, request| operate(router, number, at, request)) }))
        };
        self.operations = declared.operations.iter().enumerate().map(operation).collect::<Result<_, String>>()?;
        Ok(())
    }

    /// Takes features and nodes out of the graph. Each thread has done it when this returns.
    fn leave(&self, router: &mut Router) {
        for (arc, node) in self.handle.features.take() {
            // One that the graph did not take is not there.
            let _ = router.graph.remove_feature(arc, &node);
        }
        for id in &self.nodes {
            // It was added, and is there.
            let _ = router.graph.remove(*id);
        }
    }

    fn forget_counters(&self, router: &Router) {
        for counter in &self.library.declared.counters {
            router.graph.stats().remove(&counter.name);
        }
    }

    /// Ends it, and gives its memory back if nothing of it runs.
    fn end(self, router: &mut Router) -> bool {
        self.forget_counters(router);
        // SAFETY: the last call of the plugin, on the main thread.
        let idle = self.library.declared.stop.is_none_or(|stop| self.handle.with(router, || unsafe { stop(self.state) }) == 0);
        if !idle {
            // What still runs may call the host.
            std::mem::forget(self);
            return false;
        }
        drop(self.operations);
        // SAFETY: no node is in the graph, which `leave` has waited for; operations look it up by number, under which it is no more; and
        // the plugin says that it has no thread of its own.
        unsafe { self.library.unload() };
        true
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.library.declared.name
    }

    /// What it does, in words.
    pub fn info(&self) -> Info {
        let declared = &self.library.declared;
        Info { file: self.library.file(), version: declared.version.clone(), about: declared.about.clone() }
    }

    /// Its operations.
    pub fn operations(&self) -> &[Rc<Dynamic<Router>>] {
        &self.operations
    }

    /// Names of its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.library.declared.nodes.iter().map(|node| node.name.as_str())
    }

    fn configuration(&self, router: &Router, out: &mut Configuration<Router>) {
        let Some(configuration) = self.library.declared.configuration else { return };
        let mut text = Written::default();
        // SAFETY: the main thread, and a text for the call.
        self.handle.with_view(router, || unsafe { configuration(self.state, text.raw()) });
        let text = text.text();
        let configured: Vec<Configured> = match serde_json::from_str(if text.is_empty() { "[]" } else { &text }) {
            Ok(configured) => configured,
            Err(error) => {
                return tracing::error!(target: "plugin", "{}: its configuration is no list of requests: {error}", self.name());
            }
        };
        for one in configured {
            match self.entry(&one) {
                Ok(entry) => drop(out.push_entry(entry)),
                Err(error) => tracing::error!(target: "plugin", "{}: its configuration: {error}", self.name()),
            }
        }
    }

    fn entry(&self, configured: &Configured) -> Result<Entry, OpError> {
        let operation = self.operations.iter().find(|operation| operation.request.name == configured.operation);
        let Some(operation) = operation else {
            return Err(OpError::unspecified(format!("`{}' is no operation of the plugin", configured.operation)));
        };
        let wrong = |error: serde_json::Error| OpError::unspecified(error.to_string());
        let request = operation.request.of_json(configured.request.clone())?;
        let undo = configured.undo.clone().map(|undo| operation.request.of_json(undo)).transpose()?;
        let record = |undo: Map<String, Value>| {
            Ok::<_, OpError>(Record { operation: configured.operation.clone(), request: to_raw_value(&undo).map_err(wrong)? })
        };
        let undo = undo.map(record).transpose()?;
        Ok(Entry {
            operation: Cow::Borrowed(operation.request.name),
            command: operation.request.command(&request),
            request: to_raw_value(&request).map_err(wrong)?,
            back: Back { undo, update: Update::Replaced, ..Back::default() },
        })
    }
}

/// Counters of a plugin.
fn counters(router: &Router, library: &Library) -> Result<Arc<[Counters]>, String> {
    let stats = router.graph.stats();
    let declared = &library.declared.counters;
    let there = stats.entries();
    if let Some(counter) = declared.iter().find(|counter| there.iter().any(|(name, _)| *name == counter.name)) {
        return Err(format!("there are counters `{}' already", counter.name));
    }
    let mut counters = Vec::new();
    for counter in declared {
        let made = match counter.combined {
            true => stats.try_combined(&counter.name, counter.capacity).map(|made| {
                made.set_len(counter.capacity);
                Counters::Combined(made)
            }),
            false => stats.try_simple(&counter.name, counter.capacity).map(|made| {
                made.set_len(counter.capacity);
                Counters::Simple(made)
            }),
        };
        match made {
            Ok(made) => counters.push(made),
            Err(error) => {
                for counter in &declared[..counters.len()] {
                    stats.remove(&counter.name);
                }
                return Err(format!("counters `{}': {error}", counter.name));
            }
        }
    }
    Ok(counters.into())
}

/// Runs an operation of a plugin.
fn operate(router: &mut Router, number: u64, at: usize, request: &Map<String, Value>) -> Result<DynamicReply, OpError> {
    let loaded = Plugins::of(router).iter().find(|loaded| loaded.number == number).cloned();
    let Some(loaded) = loaded else { return Err(OpError::new(retval::UNSUPPORTED, "the plugin of this operation is unloaded")) };
    let run = loaded.library.declared.operations[at].run;
    let request = CString::new(Value::Object(request.clone()).to_string()).unwrap_or_default();
    let mut reply = Written::default();
    let state: *mut c_void = loaded.state;
    // SAFETY: the main thread; the plugin runs, and the texts are there for the call.
    let code = loaded.handle.with(router, || unsafe { run(state, request.as_ptr(), reply.raw()) });
    if code != 0 {
        let text = match reply.line() {
            line if line.is_empty() => format!("the plugin answers {code}"),
            line => line,
        };
        return Err(OpError::new(code.min(-1), text));
    }
    match reply.text() {
        text if text.trim().is_empty() => Ok(DynamicReply::default()),
        text => serde_json::from_str(&text)
            .map_err(|error| OpError::unspecified(format!("done, but the plugin's answer is no JSON: {error}"))),
    }
}
