//! The notation of declarations.

/// Declares a request; see the [module](crate::request).
///
/// ```text
/// request! {
///     /// What it does: its comment is the help of its commands.
///     pub change Name "operation_name" ["command path", "another path"] {
///         /// What it is.
///         pub field: Type = "syntax" option(…) …,
///     } ignores {
///         /// Why it has no effect.
///         "syntax",
///     }
/// }
/// ```
///
/// A path can say fields: `["ip table" { family: Family::Ip4 }, "ip6 table" { family: Family::Ip6 }]`; the syntax of such a field is
/// empty. `change` or `read` is what the request does. Of the type follows whether a field must be given: `Option`, `bool` and `Vec` need not be.
/// A type is a [`Value`](crate::request::Value), a `bool`, or `Option` or `Vec` of a value. Options:
///
/// | option | meaning |
/// |---|---|
/// | `default(value)` | its value where it is not given |
/// | `range(a..=b)` | values that it may have |
/// | `required()` | of a `bool`: one of its two words must be given |
/// | `said()` | a command must say it, JSON and messages need not |
/// | `negates()` | of an `Option<bool>`: its one word says no |
/// | `name("…")` | what errors call it, where that is not its keyword |
/// | `unicast()` | of a MAC address: that of one station |
/// | `with(read, write)` | how its value is read, `fn(&mut Args, &Argument, lead: usize) -> Result<Type, OpError>`, and how it is written behind its keyword, `fn(&Type) -> String` |
#[macro_export]
macro_rules! request {
    (
        $(#[doc = $help:literal])+
        $vis:vis $access:ident $name:ident $operation:literal
        [$( $path:literal $( { $( $preset:ident : $is:expr ),* $(,)? } )? ),* $(,)?] {
            $( $(#[doc = $doc:literal])+ $field_vis:vis $field:ident : $type:ty = $syntax:literal $( $option:ident ( $($value:tt)* ) )* ),* $(,)?
        } $( ignores { $( $(#[doc = $why:literal])+ $ignored:literal ),* $(,)? } )?
    ) => {
        $(#[doc = $help])+
        #[derive(Debug, Clone, PartialEq, $crate::request::serde::Serialize)]
        #[serde(crate = "quiver_command::request::serde")]
        $vis struct $name {
            $( $(#[doc = $doc])+ $field_vis $field: $type ),*
        }

        const _: () = {
            #[derive(Default, $crate::request::serde::Deserialize)]
            #[serde(crate = "quiver_command::request::serde", default, deny_unknown_fields)]
            #[doc(hidden)]
            pub struct Draft {
                $( pub $field: Option<$type> ),*
            }

            impl $crate::request::Declared for $name {
                const NAME: &'static str = $operation;
                const ACCESS: $crate::operation::Access = $crate::request!(@access $access);
                const FORMS: &'static [$crate::request::Form<Self>] = &[$crate::request::Form::of_fields()];
            }

            impl $crate::request::Request for $name {
                const COMMANDS: &'static [$crate::request::Path<Draft>] = &[$( $crate::request::Path {
                    words: $path,
                    preset: |_draft| { $( $( _draft.$preset = Some($is); )* )? },
                } ),*];
                const HELP: &'static str = concat!($( $help ),+);
                const ARGUMENTS: &'static [$crate::request::Argument] = &[
                    $( {
                        let argument = $crate::request::Argument::of_field::<$type>(stringify!($field), $syntax, concat!($( $doc ),+));
                        $( let argument = $crate::request!(@option argument $option ( $($value)* )); )*
                        argument
                    }, )*
                    $( $( $crate::request::Argument::ignored($ignored, concat!($( $why ),+)) ),* )?
                ];
                type Draft = Draft;

                fn syntax() -> &'static str {
                    static SYNTAX: std::sync::LazyLock<String> =
                        std::sync::LazyLock::new(|| $crate::request::syntax_line(<$name as $crate::request::Request>::ARGUMENTS));
                    &SYNTAX
                }

                fn parse(args: &mut $crate::grammar::Args<'_>) -> Result<Self, $crate::operation::OpError> {
                    const TAKES: &[$crate::request::Take<Draft>] = &[
                        $( |_draft, _args, _argument, _lead| {
                            $crate::request!(@take _draft _args _argument _lead $field: $type; $( $option ( $($value)* ) )*)
                        }, )*
                        $( $( |_, args, argument, _| { let _ = $ignored; $crate::request::take_ignored(args, argument) } ),* )?
                    ];
                    let mut draft = Draft::default();
                    if let Some(path) = Self::COMMANDS.iter().find(|path| path.words == args.command()) {
                        (path.preset)(&mut draft);
                    }
                    $crate::request::read(args, Self::ARGUMENTS, TAKES, &mut draft)?;
                    Self::complete(draft).map_err(|argument| args.missing(argument.what()))
                }

                fn complete(_draft: Draft) -> Result<Self, &'static $crate::request::Argument> {
                    let mut _arguments = Self::ARGUMENTS.iter();
                    Ok(Self {
                        $( $field: {
                            let _argument = _arguments.next().expect("an argument for each field");
                            match _draft.$field {
                                Some(value) => value,
                                None => $crate::request!(@absent _argument $type; $( $option ( $($value)* ) )*),
                            }
                        } ),*
                    })
                }

                fn command_of_fields(&self) -> String {
                    let is_said_by = |path: &&$crate::request::Path<Draft>| {
                        let mut _draft = Draft::default();
                        (path.preset)(&mut _draft);
                        true $( && _draft.$field.as_ref().is_none_or(|value| *value == self.$field) )*
                    };
                    let Some(path) = Self::COMMANDS.iter().find(is_said_by) else { return String::new() };
                    let mut _words = vec![path.words.to_owned()];
                    let mut _arguments = Self::ARGUMENTS.iter();
                    $( {
                        let argument = _arguments.next().expect("an argument for each field");
                        let default: Option<$type> = $crate::request!(@default $type; $( $option ( $($value)* ) )*);
                        if argument.is_said(default.is_some_and(|default| default == self.$field)) {
                            $crate::request!(@write self _words argument $field: $type; $( $option ( $($value)* ) )*);
                        }
                    } )*
                    _words.join(" ")
                }

                fn check_fields(&self) -> Result<(), $crate::operation::OpError> {
                    let mut _arguments = Self::ARGUMENTS.iter();
                    $( $crate::request!(@check self _arguments $field: $type; $( $option ( $($value)* ) )*); )*
                    Ok(())
                }
            }

            impl<'de> $crate::request::serde::Deserialize<'de> for $name {
                fn deserialize<D: $crate::request::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let draft = <Draft as $crate::request::serde::Deserialize>::deserialize(deserializer)?;
                    <Self as $crate::request::Request>::complete(draft).map_err(|argument| $crate::request::serde::de::Error::missing_field(argument.field))
                }
            }
        };
    };

    (@access change) => { $crate::operation::Access::Change };
    (@access read) => { $crate::operation::Access::Read };

    (@option $argument:ident default($default:expr)) => { $argument.with_default(stringify!($default)) };
    (@option $argument:ident range($range:expr)) => { $argument.range($range) };
    (@option $argument:ident negates()) => { $argument.negates() };
    (@option $argument:ident said()) => { $argument.required() };
    (@option $argument:ident required()) => { $argument.required() };
    (@option $argument:ident name($name:expr)) => { $argument.name($name) };
    (@option $argument:ident nested()) => { $argument.nested() };
    (@option $argument:ident unicast()) => { $argument.unicast() };
    (@option $argument:ident with($with:expr, $write:expr)) => { $argument };

    (@take $draft:ident $args:ident $argument:ident $lead:ident $field:ident : $type:ty; with($with:expr, $write:expr) $( $rest:tt )*) => {
        $with($args, $argument, $lead).map(|value| $draft.$field = Some(value))
    };
    (@take $draft:ident $args:ident $argument:ident $lead:ident $field:ident : $type:ty; $option:ident $value:tt $( $rest:tt )*) => {
        $crate::request!(@take $draft $args $argument $lead $field: $type; $( $rest )*)
    };
    (@take $draft:ident $args:ident $argument:ident $lead:ident $field:ident : $type:ty;) => {
        <$type as $crate::request::Field>::take(&mut $draft.$field, $args, $argument, $lead)
    };

    (@absent $argument:ident $type:ty; default($default:expr) $( $rest:tt )*) => { $default };
    (@absent $argument:ident $type:ty; required() $( $rest:tt )*) => { return Err($argument) };
    (@absent $argument:ident $type:ty; $option:ident $value:tt $( $rest:tt )*) => { $crate::request!(@absent $argument $type; $( $rest )*) };
    (@absent $argument:ident $type:ty;) => { <$type as $crate::request::Field>::absent().ok_or($argument)? };

    (@default $type:ty; default($default:expr) $( $rest:tt )*) => { Some($default) };
    (@default $type:ty; required() $( $rest:tt )*) => { None };
    (@default $type:ty; $option:ident $value:tt $( $rest:tt )*) => { $crate::request!(@default $type; $( $rest )*) };
    (@default $type:ty;) => { <$type as $crate::request::Field>::absent() };

    (@write $self:ident $words:ident $argument:ident $field:ident : $type:ty; with($with:expr, $write:expr) $( $rest:tt )*) => {{
        $words.extend($argument.leads().next().map(str::to_owned));
        $words.push($write(&$self.$field));
    }};
    (@write $self:ident $words:ident $argument:ident $field:ident : $type:ty; $option:ident $value:tt $( $rest:tt )*) => {
        $crate::request!(@write $self $words $argument $field: $type; $( $rest )*)
    };
    (@write $self:ident $words:ident $argument:ident $field:ident : $type:ty;) => {
        $crate::request::Field::write(&$self.$field, $argument, &mut $words)
    };

    (@check $self:ident $arguments:ident $field:ident : $type:ty; with($with:expr, $write:expr) $( $rest:tt )*) => { $arguments.next() };
    (@check $self:ident $arguments:ident $field:ident : $type:ty; $option:ident $value:tt $( $rest:tt )*) => {
        $crate::request!(@check $self $arguments $field: $type; $( $rest )*)
    };
    (@check $self:ident $arguments:ident $field:ident : $type:ty;) => {
        $crate::request::Field::check(&$self.$field, $arguments.next().expect("an argument for each field"))?
    };
}

/// Makes a request of a message: `field` takes the message's field of that name, `field = other` one of another name, and
/// `field: value` a value. Fields that are not named are not given. How a message's field becomes a request's is what
/// `convert` of the module that is named first says.
///
/// ```text
/// from_message!(given, m => CreateAfXdp { host_if, rx_size = rxq_size, name })?
/// ```
#[macro_export]
macro_rules! from_message {
    ($convert:path, $message:ident => $request:ident { $( $field:ident $( = $other:ident )? $( : $value:expr )? ),* $(,)? }) => {{
        let mut draft = <$request as $crate::request::Request>::Draft::default();
        $( draft.$field = $crate::from_message!(@field $convert, $message, $field $( = $other )? $( : $value )?); )*
        <$request as $crate::request::Request>::complete(draft).map_err($crate::request::missing)
    }};
    (@field $convert:path, $message:ident, $field:ident) => { $convert($message.$field) };
    (@field $convert:path, $message:ident, $field:ident = $other:ident) => { $convert($message.$other) };
    (@field $convert:path, $message:ident, $field:ident : $value:expr) => { Some($value) };
}
