//! Parses tool calls from a streamed completion. Text is withheld only while it could still become a call.

use super::family::Family;
use super::tool::ToolCall;
use super::written_calls::{calls_of, cut_calls};
use std::collections::BTreeSet;

/// A part of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Call(ToolCall),
}

/// Parses one completion.
#[derive(Debug)]
pub(crate) struct ToolReader {
    family: Family,
    /// The tools of the request. Bare JSON counts as a call only if it names a tool.
    names: BTreeSet<String>,
    most_calls: usize,
    calls: usize,
    /// Text that has not been emitted.
    held: String,
    state: ReaderState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// Only white space so far; JSON here may be a call.
    Beginning,
    Text,
    /// After the opening marker, or in JSON that may be a call.
    Call {
        is_opened: bool,
    },
}

impl ToolReader {
    pub fn new(family: Family, names: BTreeSet<String>, parallel: bool) -> Self {
        Self {
            family,
            names,
            most_calls: if parallel { usize::MAX } else { 1 },
            calls: 0,
            held: String::new(),
            state: ReaderState::Beginning,
        }
    }

    /// Returns true if a call was parsed.
    pub fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Adds the next piece of the completion.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// Returns the rest after the last piece. If the token limit ended the completion (`is_cut`), an incomplete call is returned
    /// with its arguments so far, as in OpenAI's API, and never as text.
    pub fn finish(&mut self, is_cut: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            ReaderState::Call { is_opened } => {
                let is_call = self.calls(calls_of(&held), is_opened, &mut parts)
                    || (is_cut && self.cut(&held, is_opened, &mut parts));
                if !is_call {
                    let opening = self.family.opening().filter(|_| is_opened);
                    text(format!("{}{held}", opening.unwrap_or_default()), &mut parts);
                }
            }
            // White space after calls is dropped.
            ReaderState::Beginning | ReaderState::Text
                if held.trim().is_empty() && self.has_calls() => {}
            ReaderState::Beginning | ReaderState::Text => {
                // Drops an incomplete opening marker if a call may begin here.
                let is_due = is_cut && (self.state == ReaderState::Beginning || self.has_calls());
                let opening = self.family.opening().filter(|_| is_due);
                let length = opening.map_or(held.len(), |opening| certain_length(&held, opening));
                text(held[..length].to_owned(), &mut parts);
            }
        }
        parts
    }

    /// Advances the parser by one step. Returns false if more text is needed.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            ReaderState::Call { .. } => self.close(parts),
            ReaderState::Beginning | ReaderState::Text => self.open(parts),
        }
    }

    fn close(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(closing) = self.family.closing() else {
            return false;
        };
        let Some((call, rest)) = self.held.split_once(closing) else {
            return false;
        };
        let (call, rest) = (call.to_owned(), rest.to_owned());
        self.read(&call, parts);
        self.held = rest;
        self.state = ReaderState::Text;
        true
    }

    fn open(&mut self, parts: &mut Vec<Part>) -> bool {
        let begins_json = || self.held.trim_start().starts_with(['{', '[']);
        let opening = self.family.opening().unwrap_or("\0");
        if let Some(place) = self.held.find(opening) {
            let before: String = self.held.drain(..place + opening.len()).collect();
            // White space around calls belongs to the format, not the text.
            text(before[..place].trim_end().to_owned(), parts);
            self.state = ReaderState::Call { is_opened: true };
            return true;
        }
        if self.state == ReaderState::Beginning && self.family != Family::Hermes && begins_json() {
            // It may still be the opening marker, which also begins with a bracket.
            if !opening.starts_with(self.held.trim_start()) {
                self.state = ReaderState::Call { is_opened: false };
            }
            return false;
        }
        // Withholds trailing white space, and text that may become the opening marker.
        let certain = certain_length(&self.held, opening);
        let kept = self.held.split_off(certain);
        let released = std::mem::replace(&mut self.held, kept);
        if !released.is_empty() {
            self.state = ReaderState::Text;
        }
        text(released, parts);
        false
    }

    /// Parses the calls of a finished text. A text without calls is emitted unchanged.
    fn read(&mut self, written: &str, parts: &mut Vec<Part>) {
        if !self.calls(calls_of(written), true, parts) {
            let opening = self.family.opening().unwrap_or_default();
            let closing = self.family.closing().unwrap_or_default();
            text(format!("{opening}{written}{closing}"), parts);
        }
    }

    /// Emits calls. Returns false if `calls` is empty or not valid.
    fn calls(
        &mut self,
        calls: Option<Vec<ToolCall>>,
        is_opened: bool,
        parts: &mut Vec<Part>,
    ) -> bool {
        let is_known = |call: &ToolCall| is_opened || self.names.contains(&call.name);
        let calls = calls.filter(|calls| !calls.is_empty() && calls.iter().all(is_known));
        let Some(calls) = calls else {
            return false;
        };
        for call in calls {
            if self.calls < self.most_calls {
                self.calls += 1;
                parts.push(Part::Call(call));
            }
        }
        true
    }

    /// Emits the calls of a truncated text. Returns false if it might not be a call.
    fn cut(&mut self, written: &str, is_opened: bool, parts: &mut Vec<Part>) -> bool {
        // Only calls follow an opening marker, even if the name is incomplete.
        self.calls(Some(cut_calls(written)), is_opened, parts) || is_opened
    }
}

fn text(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
}

/// Length of `held` without trailing white space and without a trailing prefix of `opening`, in bytes.
fn certain_length(held: &str, opening: &str) -> usize {
    let partial = held
        .char_indices()
        .map(|(place, _)| place)
        .find(|place| opening.starts_with(&held[*place..]));
    held[..partial.unwrap_or(held.len())].trim_end().len()
}

#[cfg(test)]
mod tests;
