//! The parser of declared commands.

use super::{Argument, Need};
use crate::grammar::Args;
use crate::operation::{OpError, retval};

/// Takes the value of a field, behind the word at this place among those that its argument may begin with.
pub type Take<D> = fn(&mut D, &mut Args<'_>, &Argument, usize) -> Result<(), OpError>;

/// Reads arguments into a draft. Completing the draft finds what is missing.
///
/// # Errors
/// The word that is wrong.
pub fn read<D>(args: &mut Args<'_>, arguments: &'static [Argument], takes: &[Take<D>], draft: &mut D) -> Result<(), OpError> {
    read_each(args, arguments, &mut |args, at, lead| takes[at](draft, args, &arguments[at], lead))
}

/// Takes the value of an argument, by the argument's place and that of the word it began with.
type TakeAt<'a> = &'a mut dyn FnMut(&mut Args<'_>, usize, usize) -> Result<(), OpError>;

/// The same for all drafts.
fn read_each(args: &mut Args<'_>, arguments: &'static [Argument], take_at: TakeAt<'_>) -> Result<(), OpError> {
    let mut given = vec![false; arguments.len()];
    let mut take = |args: &mut Args<'_>, at: usize, lead: usize, given: &mut [bool]| {
        args.begin(Some(&arguments[at]));
        let taken = take_at(args, at, lead);
        args.begin(None);
        given[at] = true;
        taken
    };
    let fixed = |at: &usize| arguments[*at].is_positional() && arguments[*at].need == Need::Required;
    let said: Vec<usize> = (0..arguments.len()).filter(|at| !arguments[*at].is_hidden()).collect();
    let (in_front, behind) = said.split_at(said.iter().take_while(|at| fixed(at)).count());
    for at in in_front {
        take(args, *at, 0, &mut given)?;
    }
    while !args.is_empty() {
        let again = |at: usize| !given[at] || arguments[at].need == Need::Repeated;
        // What is given twice counts the second time; that is not suggested.
        let suggested = |at: usize| args.at_cursor().is_none() || again(at);
        let words: Vec<usize> = behind.iter().copied().filter(|at| !arguments[*at].is_positional() && suggested(*at)).collect();
        let place = behind.iter().copied().find(|at| arguments[*at].is_positional() && again(*at));
        let lead = |at: &usize| arguments[*at].leads().position(|word| args.take_keyword(word)).map(|lead| (*at, lead));
        match words.iter().find_map(lead) {
            Some((at, lead)) => take(args, at, lead, &mut given)?,
            None => match place {
                Some(at) => take(args, at, 0, &mut given)?,
                None => return Err(args.unexpected()),
            },
        }
    }
    // Words that must be given: asked for, so that the error says which.
    if let Some(at) = behind.iter().find(|at| !given[**at] && arguments[**at].need == Need::Required) {
        return Err(missing_in(args, &arguments[*at]));
    }
    Ok(())
}

fn missing_in(args: &mut Args<'_>, argument: &Argument) -> OpError {
    if argument.is_positional() {
        return args.missing(argument.what());
    }
    if argument.rest().is_empty() {
        argument.leads().any(|word| args.take_keyword(word));
        return args.unexpected();
    }
    args.missing(argument.syntax)
}

/// The error for an argument that a request lacks.
pub fn missing(argument: &Argument) -> OpError {
    OpError::new(retval::INVALID_ARGUMENT, format!("missing {}", argument.what())).key(argument.field)
}

/// Takes the value of an argument that has no effect.
///
/// # Errors
/// There is none.
pub fn take_ignored(args: &mut Args<'_>, argument: &Argument) -> Result<(), OpError> {
    match argument.placeholder() {
        Some("n") => args.number::<u32>(argument.what()).map(drop),
        Some(_) => args.word(argument.what()).map(drop),
        None => Ok(()),
    }
}

/// The syntax line of a command with these arguments.
pub fn syntax_line(arguments: &[Argument]) -> String {
    let pieces: Vec<String> = arguments.iter().filter(|argument| !argument.is_hidden()).map(Argument::in_brackets).collect();
    pieces.join(" ")
}
