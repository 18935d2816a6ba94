//! Typed operations: what can be asked of the router, whatever the face that asks.
//!
//! An operation runs on the main thread, in one total order with all others: it validates, then
//! publishes. One that takes long hands back a [`Job`], which the main loop steps in slices so that a
//! main thread that also forwards never stalls.
//!
//! ```
//! use quiver_command::operation::{Access, OpError, Operation, Outcome, Text, View, retval};
//! use serde::{Deserialize, Serialize};
//!
//! struct Lamps(Vec<bool>);
//!
//! #[derive(Serialize, Deserialize)]
//! struct Switch { lamp: usize, on: bool }
//!
//! #[derive(Serialize)]
//! struct Switched { was_on: bool }
//!
//! impl Text for Switched {
//!     fn text(&self, out: &mut String, _view: &View) {
//!         out.push_str(if self.was_on { "was on\n" } else { "was off\n" });
//!     }
//! }
//!
//! struct SwitchLamp;
//! impl Operation<Lamps> for SwitchLamp {
//!     const NAME: &'static str = "lamp_switch";
//!     const ACCESS: Access = Access::Change;
//!     type Request = Switch;
//!     type Reply = Switched;
//!     fn run(lamps: &mut Lamps, switch: Switch) -> Result<Outcome<Lamps, Switched>, OpError> {
//!         let lamp = lamps.0.get_mut(switch.lamp).ok_or_else(|| {
//!             OpError::new(retval::NO_SUCH_ENTRY, "no such lamp").key("lamp").value(switch.lamp)
//!         })?;
//!         let was_on = std::mem::replace(lamp, switch.on);
//!         Ok(Outcome::Done(Switched { was_on }))
//!     }
//! }
//! ```

mod access;
mod dynamic;
mod error;
mod invocation;
mod job;
mod normal;
mod reference;
mod registry;
pub mod retval;
mod table;
mod text;

pub use access::Access;
pub use dynamic::{Dynamic, DynamicReply};
pub use error::OpError;
pub(crate) use error::excerpt;
pub use invocation::{Answer, Invocation, json_of};
pub use job::{Chain, Job, Outcome, Step, run_to_end};
pub use reference::Argument;
pub(crate) use reference::Notes;
pub use registry::{Absent, Live, Registry};
pub use table::{Align, TextTable};
pub use text::{Render, Text, View};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A request without parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// One thing that can be asked of the control state `C`.
pub trait Operation<C>: 'static {
    /// The name by which JSON clients call it; words joined by `_`, unique in the registry.
    const NAME: &'static str;
    /// Whether it reads or changes; see [`Access`]. What is not declared counts as a change.
    const ACCESS: Access = Access::Undeclared;
    /// What it needs to know.
    type Request: Serialize + DeserializeOwned + 'static;
    /// What it answers.
    type Reply: Serialize + Text + 'static;

    /// What this request does, where that depends on more than the operation: `show ... file NAME` makes a file.
    fn access(_request: &Self::Request) -> Access {
        Self::ACCESS
    }

    /// Validates the request, changes or reads `control`, and answers. On `Err` nothing has changed.
    fn run(control: &mut C, request: Self::Request) -> Result<Outcome<C, Self::Reply>, OpError>;
}
