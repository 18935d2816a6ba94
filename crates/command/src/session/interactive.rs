//! A person at a terminal: prompt, echo, editing, history, completion, pages.

use super::{
    Advance, MUCH_OUTPUT, Request, SessionOptions,
    editor::Editor,
    keys::{self, Key},
    push_text, result_text,
    terminal::{self, Own},
};
use crate::{
    grammar::Completion,
    operation::{Answer, OpError, Render, View},
};
use std::{collections::VecDeque, fmt::Write as _};

const MORE: &str = "-- more --";
/// What a terminal is taken for that does not tell its size.
const USUAL_SIZE: (u16, u16) = (80, 24);

#[derive(Debug)]
pub(super) struct Interactive {
    prompt: String,
    terminal: String,
    ansi: bool,
    pager: bool,
    pager_limit: usize,
    history_limit: usize,
    size: Option<(u16, u16)>,
    keys: keys::Decoder,
    editor: Editor,
    /// Output that waits for a key.
    pages: VecDeque<String>,
    /// A completion is being looked for; true when the candidates are only to be listed.
    completing: Option<bool>,
}

impl Interactive {
    pub(super) fn new(options: &SessionOptions, terminal: &str, size: Option<(u16, u16)>, output: &mut Vec<u8>) -> Self {
        push_text(&options.banner, true, output);
        push_text(&options.prompt, true, output);
        let dumb = matches!(terminal, "" | "dumb" | "unknown" | "network");
        Self {
            prompt: options.prompt.clone(),
            terminal: terminal.to_owned(),
            ansi: options.ansi && !dumb,
            pager: options.pager,
            pager_limit: options.pager_limit,
            history_limit: options.history_limit,
            size: size.filter(|(width, height)| *width > 0 && *height > 0),
            keys: keys::Decoder::default(),
            editor: Editor::new(options.history_limit),
            pages: VecDeque::new(),
            completing: None,
        }
    }

    pub(super) fn set_prompt(&mut self, prompt: String) {
        self.prompt = prompt;
    }

    pub(super) fn resize(&mut self, width: u16, height: u16) {
        self.size = (width > 0 && height > 0).then_some((width, height));
    }

    fn size(&self) -> (usize, usize) {
        let (width, height) = self.size.unwrap_or(USUAL_SIZE);
        (usize::from(width), usize::from(height))
    }

    pub(super) fn advance(&mut self, input: &mut VecDeque<u8>, output: &mut Vec<u8>) -> Advance {
        while output.len() < MUCH_OUTPUT {
            let Some(byte) = input.pop_front() else { return Advance::Wait };
            let Some(key) = self.keys.push(byte) else { continue };
            if !self.pages.is_empty() {
                self.turn_page(key, output);
                continue;
            }
            match self.key(key, output) {
                Advance::Wait => {}
                advance => return advance,
            }
        }
        Advance::Congested
    }

    fn key(&mut self, key: Key, output: &mut Vec<u8>) -> Advance {
        match key {
            Key::Enter => return self.enter(output),
            Key::Tab => return self.complete(false),
            Key::Character('?') => return self.complete(true),
            Key::Control('d') if self.editor.is_empty() => {
                output.extend_from_slice(b"\r\n");
                return Advance::Close;
            }
            Key::Control('c') => {
                output.extend_from_slice(b"^C");
                self.editor.clear();
                self.new_prompt(output);
            }
            Key::Control('l') => {
                output.extend_from_slice(if self.ansi { b"\x1b[H\x1b[2J" } else { b"\r\n" });
                push_text(&self.prompt, true, output);
                self.editor.redraw(output);
            }
            Key::Character(character) => self.editor.insert(character, output),
            Key::Backspace | Key::Control('h') => self.editor.backspace(output),
            Key::Delete | Key::Control('d') => self.editor.delete(output),
            Key::Left | Key::Control('b') => self.editor.left(output),
            Key::Right | Key::Control('f') => self.editor.right(output),
            Key::WordLeft => self.editor.move_word_left(output),
            Key::WordRight => self.editor.move_word_right(output),
            Key::Home | Key::Control('a') => self.editor.home(output),
            Key::End | Key::Control('e') => self.editor.end(output),
            Key::Up | Key::Control('p') => self.editor.recall(true, output),
            Key::Down | Key::Control('n') => self.editor.recall(false, output),
            Key::Control('u') => self.editor.delete_to_start(output),
            Key::Control('k') => self.editor.delete_to_end(output),
            Key::Control('w') => self.editor.delete_word(output),
            Key::PageDown | Key::Control(_) => {}
        }
        Advance::Wait
    }

    fn enter(&mut self, output: &mut Vec<u8>) -> Advance {
        output.extend_from_slice(b"\r\n");
        let line = self.editor.finish();
        if terminal::is_quit(&line) {
            return Advance::Close;
        }
        if line.trim().is_empty() {
            push_text(&self.prompt, true, output);
            return Advance::Wait;
        }
        match terminal::own_command(&line) {
            Some(own) => {
                let text = own.map(|own| self.run(own)).unwrap_or_else(|error| format!("{error}\n"));
                self.show(text, output);
                Advance::Wait
            }
            None => {
                let width = self.size.map(|(width, _)| width);
                let view = View { render: Render::Text, width, ansi: self.ansi };
                Advance::Request(Request::Command { line, view })
            }
        }
    }

    fn run(&mut self, own: Own) -> String {
        let mut text = String::new();
        match own {
            Own::History => {
                for (number, line) in self.editor.history().enumerate() {
                    let _ = writeln!(text, "{:5}  {line}", number + 1);
                }
            }
            Own::ShowTerminal => {
                let (width, height) = self.size();
                let name = if self.terminal.is_empty() { "unknown" } else { &self.terminal };
                let on_off = |on| if on { "on" } else { "off" };
                let _ = write!(
                    text,
                    "Terminal name:   {name}\nTerminal width:  {width}\nTerminal height: {height}\n\
                     ANSI:            {}\nHistory:         {}\nHistory limit:   {}\nPager:           {}\nPager limit:     {}\n",
                    on_off(self.ansi),
                    on_off(self.editor.history_limit > 0),
                    self.history_limit,
                    on_off(self.pager),
                    self.pager_limit
                );
            }
            Own::Ansi(on) => self.ansi = on,
            Own::Pager(on) => self.pager = on,
            Own::PagerLimit(limit) => self.pager_limit = limit,
            Own::Keep(on) => self.editor.history_limit = if on { self.history_limit } else { 0 },
            Own::KeepLimit(limit) => (self.history_limit, self.editor.history_limit) = (limit, limit),
        }
        text
    }

    fn complete(&mut self, list: bool) -> Advance {
        self.completing = Some(list);
        Advance::Request(Request::Complete { line: self.editor.text(), cursor: self.editor.cursor_byte() })
    }

    pub(super) fn completed(&mut self, completion: &Completion, output: &mut Vec<u8>) {
        let list = self.completing.take().unwrap_or(true);
        let line = self.editor.text();
        let typed = line.get(completion.start..self.editor.cursor_byte()).unwrap_or_default();
        let common = common_start(completion);
        match completion.candidates.as_slice() {
            [] if !list && completion.hints.is_empty() => output.push(7),
            [only] if !list => {
                let word = format!("{} ", only.text);
                self.editor.replace_from(completion.start, &word, output);
            }
            _ if !list && common.len() > typed.len() => {
                let common = common.to_owned();
                self.editor.replace_from(completion.start, &common, output);
            }
            _ => {
                let text = format!("\n{}\n", completion.lines().join("\n"));
                push_text(&text, true, output);
                push_text(&self.prompt, true, output);
                self.editor.redraw(output);
            }
        }
    }

    pub(super) fn print(&self, text: &str, output: &mut Vec<u8>) {
        push_text(text, true, output);
    }

    pub(super) fn answer(&mut self, result: Result<Answer, OpError>, output: &mut Vec<u8>) {
        if self.completing.take().is_none() {
            self.show(result_text(result), output);
        }
    }

    /// Shows text, by pages where they are wanted, and then the prompt.
    fn show(&mut self, text: String, output: &mut Vec<u8>) {
        let lines = text.lines().count();
        if !self.pager || lines < self.size().1 || lines > self.pager_limit {
            push_text(&text, true, output);
            push_text(&self.prompt, true, output);
            return;
        }
        self.pages = text.lines().map(str::to_owned).collect();
        self.show_page(self.size().1 - 1, output);
    }

    fn show_page(&mut self, lines: usize, output: &mut Vec<u8>) {
        for line in self.pages.drain(..lines.min(self.pages.len())) {
            push_text(&line, true, output);
            output.extend_from_slice(b"\r\n");
        }
        push_text(if self.pages.is_empty() { &self.prompt } else { MORE }, true, output);
    }

    fn turn_page(&mut self, key: Key, output: &mut Vec<u8>) {
        output.push(b'\r');
        output.extend(std::iter::repeat_n(b' ', MORE.len()));
        output.push(b'\r');
        match key {
            Key::Character('q') | Key::Control('c' | 'd') => {
                self.pages.clear();
                self.show_page(0, output);
            }
            Key::Enter | Key::Down => self.show_page(1, output),
            _ => self.show_page(self.size().1 - 1, output),
        }
    }

    fn new_prompt(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"\r\n");
        push_text(&self.prompt, true, output);
    }
}

/// The text that all candidates begin with.
fn common_start(completion: &Completion) -> &str {
    let Some((first, others)) = completion.candidates.split_first() else { return "" };
    let mut common = first.text.as_str();
    for other in others {
        let same = common.chars().zip(other.text.chars()).take_while(|(a, b)| a == b);
        let bytes: usize = same.map(|(character, _)| character.len_utf8()).sum();
        common = &common[..bytes];
    }
    common
}
