//! A memory-bounded cache of compiled grammars, and of grammars that were refused for their cost.

use super::compiler::CompiledGrammar;
use llguidance::Matcher;
use std::collections::VecDeque;

/// Memory limit for all cached grammars.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// Maximum number of cached refusals; each stores its grammar's text.
const REFUSED_MAX: usize = 64;

/// Both queues are keyed by the text of the grammar, with the most recent entries at the end.
#[derive(Default)]
pub(super) struct GrammarCache {
    compiled: VecDeque<(String, CompiledGrammar)>,
    bytes: usize,
    refused: VecDeque<(String, String)>,
}

impl GrammarCache {
    /// Returns the grammar, or the reason for its refusal; `None` if it is not cached.
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

    pub fn keep(&mut self, text: String, compiled: CompiledGrammar) {
        // A compilation that timed out may have finished after all.
        self.refused.retain(|(known, _)| *known != text);
        // Another request may have compiled it in the meantime.
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

    /// Caches a refusal that was expensive to determine, unless the grammar has been compiled in the meantime.
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
