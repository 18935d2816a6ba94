//! What the declaration of a module needs, here or in the crate of a plugin:
//!
//! ```
//! use quiver_api::module::*;
//!
//! quiver_api::module! {
//!     greeting "1.0.0"
//!     messages {
//!         client Greet "greet" -> greet_reply { name: Text<64> }
//!         context GreetReply "greet_reply" { retval: i32, greeting: Text<64> }
//!     }
//! }
//!
//! let catalog = quiver_api::Catalog::of([greeting()]);
//! assert_eq!(catalog.named("greet").map(|entry| entry.module), Some("greeting"));
//! ```

pub use crate::codec::{Bytes, Many, Reader, Text, Wire, WireError};
pub use crate::schema::{Array, Definition, Field, Head, Kind, Message, MessageInfo, Module, Type, Value};
#[doc(hidden)]
pub use crate::schema::{largest, offset, plain_name, sum};
