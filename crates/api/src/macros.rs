//! The notation of `defs`.
//!
//! ```text
//! module! {
//!     pg "2.1.0"
//!     aliases { InterfaceIndex "interface_index": u32; }
//!     enums { PgInterfaceMode "pg_interface_mode": u8 { PG_API_MODE_ETHERNET = 0, … } }
//!     enumflags { … }
//!     unions { AddressUnion "address_union" { ip4: Ip4Address, ip6: Ip6Address } }
//!     types { IpRoute "ip_route" { n_paths: u8, paths: Vec<FibPath> = n_paths } }
//!     messages {
//!         client PgCapture "pg_capture" -> pg_capture_reply { is_enabled: bool => "true", … }
//!         client IpTableDump "ip_table_dump" => ip_table_details { }
//!         context IpTableDetails "ip_table_details" { table: IpTable }
//!     }
//! }
//! ```
//!
//! `compatible` behind an enumerator says that it was added without changing any CRC.
//! `client`, `context` and `plain` say what stands before the fields (see [`Head`](crate::Head)); `->` names the reply, `=>`
//! the message that comes any number of times before it, `!` the events that a request asks for. Of a field, `= n` names the
//! field that counts it, `=> "text"` is the value that clients send where nothing is said.

/// Declares a module; see the notation above.
macro_rules! module {
    (
        $module:ident $version:literal
        aliases { $( $alias:ident $alias_name:literal : $alias_of:ty; )* }
        enums { $( $enum:ident $enum_name:literal : $enum_base:ident { $( $value:ident = $number:literal $( $newer:ident )? ),* } )* }
        enumflags { $( $flags:ident $flags_name:literal : $flags_base:ident { $( $flag:ident = $bit:literal $( $newer_flag:ident )? ),* } )* }
        unions { $( $union:ident $union_name:literal { $( $arm:ident : $arm_type:ty ),* } )* }
        types { $( $type:ident $type_name:literal {
            $( $field:ident : $field_type:ty $( = $count:ident )? $( => $default:literal )? ),*
        } )* }
        messages { $( $prefix:ident $message:ident $message_name:literal
            $( -> $reply:ident )? $( => $stream:ident )? $( ! $( $event:ident )+ )? {
            $( $part:ident : $part_type:ty $( = $part_count:ident )? $( => $part_default:literal )? ),*
        } )* }
    ) => {
            $( $crate::macros::newtype!($alias $alias_name ($alias_of) Alias []); )*
            $( $crate::macros::newtype!($enum $enum_name ($enum_base) Enum [$( $value = $number $( $newer )? ),*]); )*
            $( $crate::macros::newtype!($flags $flags_name ($flags_base) Flags [$( $flag = $bit $( $newer_flag )? ),*]); )*

            $(
                #[doc = concat!("The room of `", $union_name, "`: the bytes of one of its fields, the rest zero.")]
                #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
                pub struct $union(pub [u8; $crate::schema::largest(&[$( <$arm_type as Wire>::SIZE ),*])]);

                impl $union {
                    /// Its description.
                    pub const DEFINITION: &'static Definition = &Definition {
                        name: $union_name,
                        kind: Kind::Union,
                        fields: &[$( $crate::macros::field!($arm: $arm_type) ),*],
                        values: &[],
                    };
                }

                impl Wire for $union {
                    const TYPE: Type = $crate::macros::named!($union_name);
                    const SIZE: usize = $crate::schema::largest(&[$( <$arm_type as Wire>::SIZE ),*]);

                    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        Ok(Self(Wire::get(reader)?))
                    }

                    fn put(&self, out: &mut Vec<u8>) {
                        self.0.put(out);
                    }
                }
            )*

            $(
                #[doc = concat!("`", $type_name, "`.")]
                #[derive(Clone, Debug, Default, PartialEq)]
                pub struct $type { $( pub $field: $field_type ),* }

                impl $type {
                    /// Its description.
                    pub const DEFINITION: &'static Definition = &Definition {
                        name: $type_name,
                        kind: Kind::Struct,
                        fields: &[$( $crate::macros::field!($field: $field_type $( = $count )? $( => $default )?) ),*],
                        values: &[],
                    };
                }

                impl Wire for $type {
                    const TYPE: Type = $crate::macros::named!($type_name);
                    const SIZE: usize = $crate::schema::sum(&[$( $crate::macros::size!($field_type $( = $count )?) ),*]);

                    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        $( let $field = $crate::macros::get!(reader $field_type $( = $count )?); )*
                        Ok(Self { $( $field ),* })
                    }

                    fn put(&self, out: &mut Vec<u8>) {
                        let _start = out.len();
                        $( $crate::macros::put!(self out _start Self::DEFINITION.fields; $field $( = $count )?); )*
                    }
                }
            )*

            $(
                #[doc = concat!("Message `", $message_name, "`.")]
                #[derive(Clone, Debug, Default, PartialEq)]
                pub struct $message { $( pub $part: $part_type ),* }

                impl Message for $message {
                    const INFO: &'static MessageInfo = &MessageInfo {
                        name: $message_name,
                        prefix: $crate::macros::prefix!($prefix),
                        fields: &[$( $crate::macros::field!($part: $part_type $( = $part_count )? $( => $part_default )?) ),*],
                        reply: $crate::macros::first!($( Some(stringify!($reply)), )? None),
                        stream: $crate::macros::first!($( Some(stringify!($stream)), )? None),
                        events: &[$( $( stringify!($event) ),+ )?],
                        recode: |bytes| {
                            let message = <$message as Message>::read(&mut Reader::new(bytes))?;
                            let mut out = Vec::new();
                            message.write(&mut out);
                            Ok(out)
                        },
                    };

                    fn read(_reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        $( let $part = $crate::macros::get!(_reader $part_type $( = $part_count )?); )*
                        Ok(Self { $( $part ),* })
                    }

                    fn write(&self, out: &mut Vec<u8>) {
                        let _start = out.len();
                        $( $crate::macros::put!(self out _start Self::INFO.fields; $part $( = $part_count )?); )*
                    }
                }
            )*

            /// The module's description.
            pub const fn $module() -> &'static Module {
                const DESCRIPTION: Module = Module {
                    name: stringify!($module),
                    version: $version,
                    definitions: &[
                        $( $alias::DEFINITION, )* $( $enum::DEFINITION, )* $( $flags::DEFINITION, )* $( $union::DEFINITION, )*
                        $( $type::DEFINITION, )*
                    ],
                    messages: &[$( <$message as Message>::INFO ),*],
                };
                &DESCRIPTION
            }
    };
}

/// An alias or enumeration: a structure around what it is on the wire.
macro_rules! newtype {
    ($name:ident $text:literal ($of:ty) $kind:ident [$( $value:ident = $number:literal $( $newer:ident )? ),*]) => {
        #[doc = concat!("`", $text, "`.")]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name(pub $of);

        impl $name {
            $( pub const $value: Self = Self($number); )*

            /// Its description.
            pub const DEFINITION: &'static Definition = &Definition {
                name: $text,
                kind: Kind::$kind,
                fields: &[Field { name: "", ty: <$of as Wire>::TYPE, size: <$of as Wire>::SIZE, default: None }],
                values: &[$( Value {
                    name: stringify!($value),
                    number: $number,
                    compatible: $crate::macros::first!($( $crate::macros::compatible!($newer), )? false),
                } ),*],
            };
        }

        impl Wire for $name {
            const TYPE: Type = $crate::macros::named!($text);
            const SIZE: usize = <$of as Wire>::SIZE;

            fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok(Self(Wire::get(reader)?))
            }

            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
        }
    };
}

/// The type of fields of a defined type.
macro_rules! named {
    ($name:literal) => {
        Type { name: concat!("vl_api_", $name, "_t"), array: Array::None, definition: Some(Self::DEFINITION) }
    };
}

macro_rules! field {
    ($name:ident : $ty:ty = $count:ident) => {
        Field {
            name: $crate::schema::plain_name(stringify!($name)),
            ty: Type { array: Array::Counted(stringify!($count)), ..<$ty as Many>::ONE },
            size: 0,
            default: None,
        }
    };
    ($name:ident : $ty:ty) => {
        Field {
            name: $crate::schema::plain_name(stringify!($name)),
            ty: <$ty as Wire>::TYPE,
            size: <$ty as Wire>::SIZE,
            default: None,
        }
    };
    ($name:ident : $ty:ty => $default:literal) => {
        Field { default: Some($default), ..$crate::macros::field!($name: $ty) }
    };
}

macro_rules! size {
    ($ty:ty = $count:ident) => {
        0
    };
    ($ty:ty) => {
        <$ty as Wire>::SIZE
    };
}

macro_rules! get {
    ($reader:ident $ty:ty = $count:ident) => {
        <$ty as Many>::get_many($reader, $count as usize)?
    };
    ($reader:ident $ty:ty) => {
        <$ty as Wire>::get($reader)?
    };
}

macro_rules! put {
    ($self:ident $out:ident $start:ident $fields:expr; $field:ident = $count:ident) => {
        $self.$field.put_many($out, $start + $crate::schema::offset($fields, stringify!($count)), size_of_val(&$self.$count))
    };
    ($self:ident $out:ident $start:ident $fields:expr; $field:ident) => {
        $self.$field.put($out)
    };
}

macro_rules! prefix {
    (client) => {
        Head::Client
    };
    (context) => {
        Head::Context
    };
    (plain) => {
        Head::Plain
    };
}

macro_rules! compatible {
    (compatible) => {
        true
    };
}

macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

pub(crate) use {compatible, field, first, get, module, named, newtype, prefix, put, size};
