//! The grammars that were compiled last, within a bound on their memory, and those that were refused for their cost.

use super::compiler::Compiled;
use llguidance::Matcher;
use std::collections::VecDeque;

/// Memory of all kept grammars together.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// Refusals are texts; each has the grammar with it.
const REFUSED_MAX: usize = 64;

/// Both by the text of the grammar, the ones that were used last at the end.
#[derive(Default)]
pub(super) struct Kept {
    compiled: VecDeque<(String, Compiled)>,
    bytes: usize,
    refused: VecDeque<(String, String)>,
}

impl Kept {
    /// The grammar, or the reason it was refused for; `None` where it is not known.
    pub fn find(&mut self, text: &str) -> Option<Result<Matcher, String>> {
        let refused = self.refused.iter().find(|(known, _)| known == text);
        if let Some((_, reason)) = refused {
            return Some(Err(reason.clone()));
        }
        let place = self.compiled.iter().position(|(known, _)| known == text)?;
        let entry = self.compiled.remove(place)?;
        let matcher = entry.1.matcher.clone();
        self.compiled.push_back(entry);
        Some(Ok(matcher))
    }

    pub fn keep(&mut self, text: String, compiled: Compiled) {
        // One that was given up may have ended after all.
        self.refused.retain(|(known, _)| *known != text);
        // Another request may have compiled it meanwhile.
        if self.compiled.iter().any(|(known, _)| *known == text) {
            return;
        }
        self.bytes += text.len() + compiled.bytes;
        self.compiled.push_back((text, compiled));
        while self.bytes > BYTES_MAX
            && let Some((text, compiled)) = self.compiled.pop_front()
        {
            self.bytes -= text.len() + compiled.bytes;
        }
    }

    /// Keeps a refusal that was dear to find, unless the grammar was compiled meanwhile.
    pub fn refuse(&mut self, text: String, reason: String) {
        if self.compiled.iter().any(|(known, _)| *known == text) {
            return;
        }
        self.refused.retain(|(known, _)| *known != text);
        self.refused.push_back((text, reason));
        if self.refused.len() > REFUSED_MAX {
            self.refused.pop_front();
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.compiled.len()
    }

    #[cfg(test)]
    pub const fn bytes_max() -> usize {
        BYTES_MAX
    }
}
