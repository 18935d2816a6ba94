//! A line in, text out: `vppctl -s … COMMAND`, pipes, and people whose terminal edits lines itself.

use super::{Advance, LONGEST_LINE, MUCH_OUTPUT, Request, SessionOptions, push_text, result_text, terminal};
use crate::operation::{Answer, OpError, View, retval};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Lines {
    prompt: String,
    crlf: bool,
    /// Whether a NUL follows each command: what `vppctl` waits for.
    nul: bool,
    splitter: Splitter,
}

impl Lines {
    /// CR LF, and a NUL after each command.
    pub(super) fn for_vppctl() -> Self {
        Self { prompt: String::new(), crlf: true, nul: true, splitter: Splitter::default() }
    }

    /// Plain lines, nothing else.
    pub(super) fn for_pipe() -> Self {
        Self { prompt: String::new(), crlf: false, nul: false, splitter: Splitter::default() }
    }

    /// Banner and prompt, no echo.
    pub(super) fn for_people(options: &SessionOptions, crlf: bool, output: &mut Vec<u8>) -> Self {
        push_text(&options.banner, crlf, output);
        push_text(&options.prompt, crlf, output);
        Self { prompt: options.prompt.clone(), crlf, nul: false, splitter: Splitter::default() }
    }

    /// Of one that shows prompts.
    pub(super) fn set_prompt(&mut self, prompt: String) {
        if !self.prompt.is_empty() {
            self.prompt = prompt;
        }
    }

    pub(super) fn advance(&mut self, input: &mut VecDeque<u8>, ended: bool, output: &mut Vec<u8>) -> Advance {
        while output.len() < MUCH_OUTPUT {
            let line = match self.splitter.next(input, ended) {
                None => return Advance::Wait,
                Some(Ok(line)) => line,
                Some(Err(error)) => {
                    self.answer(Err(error), output);
                    continue;
                }
            };
            if terminal::is_quit(&line) {
                return Advance::Close;
            }
            if line.trim().is_empty() {
                self.answer(Ok(Answer::default()), output);
                continue;
            }
            return Advance::Request(Request::Command { line, view: View::TEXT });
        }
        Advance::Congested
    }

    pub(super) fn write(&self, text: &str, output: &mut Vec<u8>) {
        push_text(text, self.crlf, output);
    }

    pub(super) fn answer(&self, result: Result<Answer, OpError>, output: &mut Vec<u8>) {
        push_text(&result_text(result), self.crlf, output);
        if self.nul {
            output.push(0);
        }
        push_text(&self.prompt, self.crlf, output);
    }
}

/// Takes lines out of a stream of bytes; LF, CR LF, CR NUL and CR end a line.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The last byte taken was CR, so that an LF or NUL that follows belongs to it.
    after_cr: bool,
    /// Within a line that is too long: skip to its end.
    skipping: bool,
    /// How much of the input is known to have no line end, so that it is not searched again.
    searched: usize,
}

impl Splitter {
    /// The next complete line, or, when the input has `ended`, what is left.
    pub(super) fn next(&mut self, input: &mut VecDeque<u8>, ended: bool) -> Option<Result<String, OpError>> {
        if self.after_cr
            && let Some(first) = input.front()
        {
            if matches!(first, b'\n' | 0) {
                input.pop_front();
            }
            self.after_cr = false;
        }
        // The owner may have cleared the input since.
        self.searched = self.searched.min(input.len());
        let end = input.range(self.searched..).position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(end) = end.map(|end| end + self.searched) else {
            self.searched = input.len();
            if input.len() > LONGEST_LINE {
                self.skipping = true;
                input.clear();
            }
            let left = ended && (!input.is_empty() || self.skipping);
            return left.then(|| self.line(std::mem::take(input).into()));
        };
        self.searched = 0;
        let line: Vec<u8> = input.drain(..end).collect();
        self.after_cr = input.pop_front() == Some(b'\r');
        Some(self.line(line))
    }

    fn line(&mut self, mut line: Vec<u8>) -> Result<String, OpError> {
        if std::mem::take(&mut self.skipping) || line.len() > LONGEST_LINE {
            return Err(OpError::new(retval::LIMIT_EXCEEDED, format!("line longer than {LONGEST_LINE} bytes")));
        }
        line.retain(|byte| *byte != 0);
        String::from_utf8(line).map_err(|_| OpError::new(retval::INVALID_VALUE, "the line is not UTF-8 text"))
    }
}
