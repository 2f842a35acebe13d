//! The `max_tokens` sent for conversations that set no limit.

use serde_json::Value;

use super::entry::Entry;
use crate::engines::EngineKind;
use crate::recipes::Recipe;
use crate::recipes::engine_options::kind_of_command;

/// Effectively unlimited, and too small to overflow any engine's arithmetic.
const ROOM_MAX: u32 = 1_000_000;

impl Entry {
    /// `max_tokens` for a conversation without a limit, for engines whose text route would otherwise stop after a few tokens. The
    /// embedded engine bounds it by the space the prompt leaves; null means the same to vLLM; others refuse a sum above their
    /// context and get a quarter of it. llama-server has no limit by default.
    pub fn room_for_responses(&self) -> Option<Value> {
        let kind = match &self.recipe {
            Recipe::Candle(_) => return Some(Value::from(ROOM_MAX)),
            Recipe::Server(server) => server.engine.kind,
            Recipe::Command(command) => kind_of_command(&command.command),
            Recipe::Remote(_) | Recipe::RayServe(_) => EngineKind::Other,
        };
        let context = match &self.recipe {
            Recipe::Server(server) => server.context,
            Recipe::Command(command) => command.context,
            Recipe::Candle(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        };
        match kind {
            EngineKind::Vllm => Some(Value::Null),
            EngineKind::LlamaCpp => None,
            _ => context.map(|tokens| Value::from((tokens / 4).max(1))),
        }
    }
}
