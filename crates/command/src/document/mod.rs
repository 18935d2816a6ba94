//! The configuration as a document: YAML or JSON by subject, in place of a list of operations.
//!
//! ```text
//!   interfaces:                      interface_set {"interface": "loop0", "change": {"mtu": {"which": "packet", "bytes": 1400}}}
//!     loop0:                ◄──────► sw_interface_add_del_address {"interface": "loop0", "address": "10.0.0.1", "len": 24}
//!       mtu: 1400             Shape
//!       addresses:
//!         - 10.0.0.1/24
//! ```
//!
//! Each subject, and each plugin, says by [`Shape`]s where its operations stand: two templates with the same variables, one of the document's
//! path and value, one of the request. Reading, writing, the published schema and the names of parts follow from them. An operation
//! without a shape stands under `operations` as it is.
//!
//! - [`Book::read`] makes the entries of a configuration of a document, and names line and column of what is wrong.
//! - [`Book::write`] makes a document of a configuration; reading it again gives the same entries.
//! - [`Book::plan`] says what leads from what runs to what a document wants, of which [`Restore`](crate::configuration::Restore) is the
//!   machinery: only what differs is changed, all of it or nothing.
//! - [`Book::schema`] is the JSON schema of documents.
//!
//! All of it takes time in proportion to the document, and none of it needs the router: another thread does it.

mod book;
mod plan;
mod schema;
mod shape;
mod template;
mod tree;
mod yaml;

pub use book::{Book, Normalise, Normalised, NotNormal, Wanted, Wish};
pub use plan::{Changes, LISTED, Line, Plan, Sign};
pub(crate) use shape::Rank;
pub use shape::Shape;
pub use tree::Place;

#[cfg(test)]
mod tests;
