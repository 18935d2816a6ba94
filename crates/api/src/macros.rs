//! The notation of modules, in `defs` and elsewhere.
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
//! Only `messages` must be there, and the order is this one. `compatible` behind an enumerator says that it was added without changing any CRC.
//! `client`, `context` and `plain` say what stands before the fields (see [`Head`](crate::Head)); `->` names the reply, `=>`
//! the message that comes any number of times before it, `!` the events that a request asks for. Of a field, `= n` names the
//! field that counts it, `=> "text"` is the value that clients send where nothing is said.

/// Declares a module: `quiver_api::module! { … }`, with `use quiver_api::module::*` before it. Whoever answers its messages adds it to
/// the message table by `Handlers::module`.
#[macro_export]
macro_rules! module {
    (
        $module:ident $version:literal
        $( aliases { $( $alias:ident $alias_name:literal : $alias_of:ty; )* } )?
        $( enums { $( $enum:ident $enum_name:literal : $enum_base:ident {
            $( $value:ident = $number:literal $( $newer:ident )? ),*
        } )* } )?
        $( enumflags { $( $flags:ident $flags_name:literal : $flags_base:ident {
            $( $flag:ident = $bit:literal $( $newer_flag:ident )? ),*
        } )* } )?
        $( unions { $( $union:ident $union_name:literal { $( $arm:ident : $arm_type:ty ),* } )* } )?
        $( types { $( $type:ident $type_name:literal {
            $( $field:ident : $field_type:ty $( = $count:ident )? $( => $default:literal )? ),*
        } )* } )?
        messages { $( $prefix:ident $message:ident $message_name:literal
            $( -> $reply:ident )? $( => $stream:ident )? $( ! $( $event:ident )+ )? {
            $( $part:ident : $part_type:ty $( = $part_count:ident )? $( => $part_default:literal )? ),*
        } )* }
    ) => {
            $( $( $crate::module_newtype!($alias $alias_name ($alias_of) Alias []); )* )?
            $( $( $crate::module_newtype!($enum $enum_name ($enum_base) Enum [$( $value = $number $( $newer )? ),*]); )* )?
            $( $( $crate::module_newtype!($flags $flags_name ($flags_base) Flags [$( $flag = $bit $( $newer_flag )? ),*]); )* )?

            $( $(
                #[doc = concat!("The room of `", $union_name, "`: the bytes of one of its fields, the rest zero.")]
                #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
                pub struct $union(pub [u8; $crate::module::largest(&[$( <$arm_type as Wire>::SIZE ),*])]);

                impl $union {
                    /// Its description.
                    pub const DEFINITION: &'static Definition = &Definition {
                        name: $union_name,
                        kind: Kind::Union,
                        fields: &[$( $crate::module_field!($arm: $arm_type) ),*],
                        values: &[],
                    };
                }

                impl Wire for $union {
                    const TYPE: Type = $crate::module_named!($union_name);
                    const SIZE: usize = $crate::module::largest(&[$( <$arm_type as Wire>::SIZE ),*]);

                    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        Ok(Self(Wire::get(reader)?))
                    }

                    fn put(&self, out: &mut Vec<u8>) {
                        self.0.put(out);
                    }
                }
            )* )?

            $( $(
                #[doc = concat!("`", $type_name, "`.")]
                #[derive(Clone, Debug, Default, PartialEq)]
                pub struct $type { $( pub $field: $field_type ),* }

                impl $type {
                    /// Its description.
                    pub const DEFINITION: &'static Definition = &Definition {
                        name: $type_name,
                        kind: Kind::Struct,
                        fields: &[$( $crate::module_field!($field: $field_type $( = $count )? $( => $default )?) ),*],
                        values: &[],
                    };
                }

                impl Wire for $type {
                    const TYPE: Type = $crate::module_named!($type_name);
                    const SIZE: usize = $crate::module::sum(&[$( $crate::module_size!($field_type $( = $count )?) ),*]);

                    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        $( let $field = $crate::module_get!(reader $field_type $( = $count )?); )*
                        Ok(Self { $( $field ),* })
                    }

                    fn put(&self, out: &mut Vec<u8>) {
                        let _start = out.len();
                        $( $crate::module_put!(self out _start Self::DEFINITION.fields; $field $( = $count )?); )*
                    }
                }
            )* )?

            $(
                #[doc = concat!("Message `", $message_name, "`.")]
                #[derive(Clone, Debug, Default, PartialEq)]
                pub struct $message { $( pub $part: $part_type ),* }

                impl Message for $message {
                    const INFO: &'static MessageInfo = &MessageInfo {
                        name: $message_name,
                        prefix: $crate::module_prefix!($prefix),
                        fields: &[$( $crate::module_field!($part: $part_type $( = $part_count )? $( => $part_default )?) ),*],
                        reply: $crate::module_first!($( Some(stringify!($reply)), )? None),
                        stream: $crate::module_first!($( Some(stringify!($stream)), )? None),
                        events: &[$( $( stringify!($event) ),+ )?],
                        recode: |bytes| {
                            let message = <$message as Message>::read(&mut Reader::new(bytes))?;
                            let mut out = Vec::new();
                            message.write(&mut out);
                            Ok(out)
                        },
                    };

                    fn read(_reader: &mut Reader<'_>) -> Result<Self, WireError> {
                        $( let $part = $crate::module_get!(_reader $part_type $( = $part_count )?); )*
                        Ok(Self { $( $part ),* })
                    }

                    fn write(&self, out: &mut Vec<u8>) {
                        let _start = out.len();
                        $( $crate::module_put!(self out _start Self::INFO.fields; $part $( = $part_count )?); )*
                    }
                }
            )*

            /// The module's description.
            pub const fn $module() -> &'static Module {
                const DESCRIPTION: Module = Module {
                    name: stringify!($module),
                    version: $version,
                    definitions: &[
                        $( $( $alias::DEFINITION, )* )? $( $( $enum::DEFINITION, )* )? $( $( $flags::DEFINITION, )* )?
                        $( $( $union::DEFINITION, )* )? $( $( $type::DEFINITION, )* )?
                    ],
                    messages: &[$( <$message as Message>::INFO ),*],
                };
                &DESCRIPTION
            }
    };
}

/// An alias or enumeration: a structure around what it is on the wire.
#[doc(hidden)]
#[macro_export]
macro_rules! module_newtype {
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
                    compatible: $crate::module_first!($( $crate::module_compatible!($newer), )? false),
                } ),*],
            };
        }

        impl Wire for $name {
            const TYPE: Type = $crate::module_named!($text);
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
#[doc(hidden)]
#[macro_export]
macro_rules! module_named {
    ($name:literal) => {
        Type { name: concat!("vl_api_", $name, "_t"), array: Array::None, definition: Some(Self::DEFINITION) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_field {
    ($name:ident : $ty:ty = $count:ident) => {
        Field {
            name: $crate::module::plain_name(stringify!($name)),
            ty: Type { array: Array::Counted(stringify!($count)), ..<$ty as Many>::ONE },
            size: 0,
            default: None,
        }
    };
    ($name:ident : $ty:ty) => {
        Field {
            name: $crate::module::plain_name(stringify!($name)),
            ty: <$ty as Wire>::TYPE,
            size: <$ty as Wire>::SIZE,
            default: None,
        }
    };
    ($name:ident : $ty:ty => $default:literal) => {
        Field { default: Some($default), ..$crate::module_field!($name: $ty) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_size {
    ($ty:ty = $count:ident) => {
        0
    };
    ($ty:ty) => {
        <$ty as Wire>::SIZE
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_get {
    ($reader:ident $ty:ty = $count:ident) => {
        <$ty as Many>::get_many($reader, $count as usize)?
    };
    ($reader:ident $ty:ty) => {
        <$ty as Wire>::get($reader)?
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_put {
    ($self:ident $out:ident $start:ident $fields:expr; $field:ident = $count:ident) => {
        $self.$field.put_many($out, $start + $crate::module::offset($fields, stringify!($count)), size_of_val(&$self.$count))
    };
    ($self:ident $out:ident $start:ident $fields:expr; $field:ident) => {
        $self.$field.put($out)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_prefix {
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

#[doc(hidden)]
#[macro_export]
macro_rules! module_compatible {
    (compatible) => {
        true
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! module_first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}
