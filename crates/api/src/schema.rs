//! How messages and types are described, for CRCs and JSON.

use crate::codec::{Reader, WireError};

/// How a field repeats its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// Not at all.
    None,
    /// So many times.
    Fixed(usize),
    /// As often as an earlier field says.
    Counted(&'static str),
    /// Text in so many bytes, zero-padded.
    Text(usize),
    /// Text behind its length.
    OpenText,
}

/// A type as fields name it.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// `u32`, `vl_api_address_t`, `string`.
    pub name: &'static str,
    /// How it repeats.
    pub array: Array,
    /// What it is, unless it is built in.
    pub definition: Option<&'static Definition>,
}

impl Type {
    /// A built-in type.
    pub const fn plain(name: &'static str) -> Self {
        Self { name, array: Array::None, definition: None }
    }
}

/// A field of a message, structure or union.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub ty: Type,
    /// Least size, bytes.
    pub size: usize,
    /// What clients send where nothing is said.
    pub default: Option<&'static str>,
}

/// A named value of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Name.
    pub name: &'static str,
    /// Number.
    pub number: i64,
    /// Added later, without a change of any CRC.
    pub compatible: bool,
}

/// What a definition defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fields one after the other.
    Struct,
    /// One of its fields, in the room of the largest.
    Union,
    /// One of its values.
    Enum,
    /// Any of its values together.
    Flags,
    /// Another name of its only field's type.
    Alias,
}

/// A type that a module defines.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Name, without `vl_api_` and `_t`.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Fields of a structure or union; the type of an enumeration or alias as a field without a name.
    pub fields: &'static [Field],
    /// Values of an enumeration.
    pub values: &'static [Value],
}

/// What stands between a message's number and its own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// `client_index` and `context`: requests.
    Client,
    /// `context`: replies and details.
    Context,
    /// Nothing: events.
    Plain,
}

impl Head {
    /// Bytes, without the message's number.
    pub const fn size(self) -> usize {
        match self {
            Self::Client => 8,
            Self::Context => 4,
            Self::Plain => 0,
        }
    }

    /// As fields.
    pub const fn fields(self) -> &'static [Field] {
        const CLIENT: Field = Field { name: "client_index", ty: Type::plain("u32"), size: 4, default: None };
        const CONTEXT: Field = Field { name: "context", ty: Type::plain("u32"), size: 4, default: None };
        match self {
            Self::Client => &[CLIENT, CONTEXT],
            Self::Context => &[CONTEXT],
            Self::Plain => &[],
        }
    }
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct MessageInfo {
    /// Name.
    pub name: &'static str,
    /// What stands before its fields.
    pub prefix: Head,
    /// Its fields, without the prefix.
    pub fields: &'static [Field],
    /// What answers it, last.
    pub reply: Option<&'static str>,
    /// What answers it any number of times.
    pub stream: Option<&'static str>,
    /// What is sent later because of it.
    pub events: &'static [&'static str],
    /// Reads its fields (without number and prefix) and writes them again.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, WireError>,
}

/// What VPP declares in one file.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Name.
    pub name: &'static str,
    /// Version of its interface.
    pub version: &'static str,
    /// Types.
    pub definitions: &'static [&'static Definition],
    /// Messages.
    pub messages: &'static [&'static MessageInfo],
}

/// A message as a Rust structure.
pub trait Message: Sized + Default {
    /// Its description.
    const INFO: &'static MessageInfo;

    /// Reads its fields; the number and the prefix have been read.
    ///
    /// # Errors
    /// Bytes that end too early.
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError>;

    /// Appends its fields.
    fn write(&self, out: &mut Vec<u8>);
}

/// Offset of a field whose predecessors all have a fixed size.
pub fn offset(fields: &[Field], name: &str) -> usize {
    fields.iter().take_while(|field| field.name != name).map(|field| field.size).sum()
}

/// `type` of `r#type`.
pub const fn plain_name(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// Largest of some sizes.
pub const fn largest(sizes: &[usize]) -> usize {
    let (mut most, mut at) = (0, 0);
    while at < sizes.len() {
        if sizes[at] > most {
            most = sizes[at];
        }
        at += 1;
    }
    most
}

/// Sum of some sizes.
pub const fn sum(sizes: &[usize]) -> usize {
    let (mut all, mut at) = (0, 0);
    while at < sizes.len() {
        all += sizes[at];
        at += 1;
    }
    all
}
