#![doc = include_str!("../README.md")]

pub mod abi;
mod batch;
mod export;
mod host;

pub use batch::Batch;
pub use host::{Host, Level};

#[doc(hidden)]
pub use export::calls;

/// What a plugin is: its state, which the main thread has.
pub trait Plugin: Sized + 'static {
    /// Starts it. `options` is a JSON object of strings: what `startup.conf` says by `option`.
    ///
    /// # Errors
    /// Why it cannot start, in a line. The router goes on without it.
    fn start(host: Host, options: &str) -> Result<Self, String>;

    /// Whether nothing of it runs any more (threads that it has started), so that it can be unloaded.
    fn is_idle(&self) -> bool {
        true
    }

    /// What is configured, as a JSON list of `{"operation": …, "request": …, "undo": {…}}`.
    fn configuration(&self) -> String {
        "[]".to_owned()
    }

    /// An interface is deleted: its features are off, and its index may become another's.
    fn interface_gone(&self, _interface: u32) {}
}

/// A node of the graph, with the state of one thread.
pub trait Node: Send + Sized + 'static {
    /// Whose node it is.
    type Plugin: Plugin;

    /// Makes the state of a thread; on the main thread.
    fn open(plugin: &Self::Plugin, thread: u32) -> Self;

    /// Handles a vector. Packets go on by themselves unless it says something else.
    fn run(&mut self, batch: &mut Batch<'_>);
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// As VPP's API has it; negative.
    pub code: i32,
    /// What is wrong, in a line.
    pub text: String,
}

impl Error {
    /// A value that is not allowed.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { code: -73, text: text.into() }
    }
}

impl<T: Into<String>> From<T> for Error {
    fn from(text: T) -> Self {
        Self { code: -1, text: text.into() }
    }
}
