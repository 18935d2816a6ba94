//! Requests that several commands make, each with arguments of its own.

use super::{Argument, Request};
use crate::grammar::Args;
use crate::operation::OpError;

/// Commands with the same arguments, and the requests that they make.
pub struct Form<R> {
    /// The words of its commands.
    pub commands: fn() -> Vec<&'static str>,
    /// What they do.
    pub help: &'static str,
    /// Their syntax line.
    pub syntax: fn() -> &'static str,
    /// Their arguments; none where a parser of their own reads them.
    pub arguments: &'static [Argument],
    /// Reads the arguments.
    pub parse: fn(&mut Args<'_>) -> Result<R, OpError>,
    /// Whether all values are such as the arguments may have, where it is these commands' request.
    pub check: fn(&R) -> Result<(), OpError>,
    /// The command that makes a request; none where these commands cannot.
    pub command: fn(&R) -> Option<String>,
}

/// The arguments of a command, and the request that they make; [`commands!`](crate::commands!) implements it.
pub trait Arguments<R>: Request {
    /// The request of these arguments.
    fn make(self) -> R;

    /// The arguments of this request, where it is one that they make.
    fn of(request: &R) -> Option<Self>;
}

impl<R: Request> Form<R> {
    /// The one form of a request whose fields are the arguments.
    pub const fn of_fields() -> Self {
        Self {
            commands: words::<R>,
            help: R::HELP,
            syntax: R::syntax,
            arguments: R::ARGUMENTS,
            parse: R::parse,
            check: R::check_fields,
            command: |request| Some(request.command_of_fields()),
        }
    }
}

impl<R> Form<R> {
    /// The form of these arguments.
    pub const fn of<A: Arguments<R>>() -> Self {
        Self {
            commands: words::<A>,
            help: A::HELP,
            syntax: A::syntax,
            arguments: A::ARGUMENTS,
            parse: |args| A::parse(args).map(A::make),
            check: |request| A::of(request).map_or(Ok(()), |arguments| arguments.check_fields()),
            command: |request| A::of(request).map(|arguments| arguments.command_of_fields()),
        }
    }
}

fn words<R: Request>() -> Vec<&'static str> {
    R::COMMANDS.iter().map(|path| path.words).collect()
}

/// Declares the commands of a request, each with its arguments and the request that they make. The request is a type of its own, and
/// the same text after `=>` makes it of the arguments and finds the arguments in it:
///
/// ```
/// # use quiver_command::operation::{OpError, Outcome, Registry, View};
/// # use quiver_command::request::Execute;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Clone, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// pub struct SetLamp {
///     lamp: u8,
///     change: Change,
/// }
///
/// #[derive(Debug, Clone, Serialize, Deserialize)]
/// #[serde(rename_all = "kebab-case")]
/// pub enum Change {
///     State { on: bool },
///     Colour { name: String },
/// }
///
/// quiver_command::commands! {
///     change SetLamp "lamp_set" {
///         /// Switches a lamp.
///         ["set lamp state"] { lamp: u8 = "<n>" range(0..=9), on: bool = "on|off" required() } => { lamp, change: Change::State { on } },
///         /// Sets the colour of a lamp.
///         ["set lamp colour"] {
///             /// Number.
///             lamp: u8 = "<n>" range(0..=9),
///             /// Colour, such as red.
///             name: String = "<colour>",
///         } => { lamp, change: Change::Colour { name } },
///     }
/// }
///
/// # struct Lamps(Vec<bool>);
/// # impl Execute<Lamps> for SetLamp {
/// #     type Reply = ();
/// #     fn execute(self, lamps: &mut Lamps) -> Result<Outcome<Lamps, ()>, OpError> {
/// #         if let Change::State { on } = self.change { lamps.0[usize::from(self.lamp)] = on; }
/// #         Ok(Outcome::Done(()))
/// #     }
/// # }
/// let mut registry = Registry::new();
/// registry.declare::<SetLamp>();
/// let mut lamps = Lamps(vec![false; 10]);
/// registry.execute(&mut lamps, "set lamp state 3 on", &View::TEXT)?;
/// assert!(lamps.0[3]);
/// let json = serde_json::json!({"lamp": 10, "change": {"state": {"on": true}}});
/// let error = registry.request("lamp_set", json)?.run(&mut lamps, &View::JSON).err().unwrap();
/// assert_eq!(error.to_string(), "invalid n `10'; expected 0 to 9");
/// # Ok::<(), OpError>(())
/// ```
///
/// A command with another grammar has its syntax line and a parser, `fn(&mut Args) -> Result<Request, OpError>`:
/// `["set lamp scene"] "<n> [<n>] ..." by parse_scene`; behind `=>` may stand the contrary, `fn(&Request) -> Option<String>`, which
/// `show configuration` needs.
#[macro_export]
macro_rules! commands {
    ($access:ident $request:ident $operation:literal { $( $forms:tt )+ }) => {
        impl $crate::request::Declared for $request {
            const NAME: &'static str = $operation;
            const ACCESS: $crate::operation::Access = $crate::request!(@access $access);
            const FORMS: &'static [$crate::request::Form<Self>] = $crate::commands!(@forms $access $request $operation [] $( $forms )+);
        }
    };

    (@forms $access:ident $request:ident $operation:literal [$( $done:expr ),*]) => { &[$( $done ),*] };
    (@forms $access:ident $request:ident $operation:literal [$( $done:expr ),*]
        $(#[doc = $help:literal])+
        [$( $path:literal ),+] {
            $( $(#[doc = $doc:literal])* $field:ident : $type:ty = $syntax:literal $( $option:ident ( $($value:tt)* ) )* ),* $(,)?
        } => $made:tt, $( $rest:tt )*
    ) => {
        $crate::commands!(@forms $access $request $operation [$( $done, )* {
            $crate::request! {
                $(#[doc = $help])+
                $access Given $operation [$( $path ),+] {
                    $( #[doc = ""] $(#[doc = $doc])* pub $field: $type = $syntax $( $option ( $($value)* ) )* nested() ),*
                }
            }

            impl $crate::request::Arguments<$request> for Given {
                fn make(self) -> $request {
                    let Self { $( $field ),* } = self;
                    $request $made
                }

                fn of(request: &$request) -> Option<Self> {
                    #[allow(unreachable_patterns)]
                    match request.clone() {
                        $request $made => Some(Self { $( $field ),* }),
                        _ => None,
                    }
                }
            }

            $crate::request::Form::of::<Given>()
        }] $( $rest )*)
    };
    (@forms $access:ident $request:ident $operation:literal [$( $done:expr ),*]
        $(#[doc = $help:literal])+
        [$( $path:literal ),+] $syntax:literal by $parse:expr $( => $command:expr )?, $( $rest:tt )*
    ) => {
        $crate::commands!(@forms $access $request $operation [$( $done, )* $crate::request::Form {
            commands: || vec![$( $path ),+],
            help: concat!($( $help ),+),
            syntax: || $syntax,
            arguments: &[],
            parse: $parse,
            check: |_| Ok(()),
            command: $crate::commands!(@command $( $command )?),
        }] $( $rest )*)
    };

    (@command) => { |_| None };
    (@command $command:expr) => { $command };
}
