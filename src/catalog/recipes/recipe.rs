//! Recipes for starting a model's engine, and its known properties: the embedded engine, any command, an engine from the table, a
//! remote server, or an application in Ray. Starts nothing.

mod candle;
mod command;

pub use candle::{CandleRecipe, JoiningRule, Speculation, TokenBudgets};
pub use command::{CommandRecipe, LaunchValues, RenderedCommand, SleepCommands, TemplateError};

use super::candle_models::ModelTask;
use super::ray_serve::RayServeRecipe;
use super::remote::RemoteRecipe;
use crate::documents::DEVICES_MAX;
pub use crate::documents::{
    CacheType, ComputeDevice, Listen, LoopbackAddress, NumberTypes, ProductType, Quantization,
    Secret, Sleep, Task,
};
use crate::engines::{EngineKind, ExtraRoute, RerankApi, ServerRecipe, TokenApi};

/// The settings for running one replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    Candle(CandleRecipe),
    Command(CommandRecipe),
    /// An engine from the table.
    Server(Box<ServerRecipe>),
    /// A remote server.
    Remote(RemoteRecipe),
    /// A Ray cluster, in Ray Serve applications that the pool deploys.
    RayServe(Box<RayServeRecipe>),
}

impl Recipe {
    /// The engine's name in API responses: `candle`, `command`, `vllm`, `remote`, `ray_serve`.
    pub fn engine(&self) -> &'static str {
        match self {
            Recipe::Candle(_) => "candle",
            Recipe::Command(_) => "command",
            Recipe::Server(server) => server.engine.word,
            Recipe::Remote(_) => "remote",
            Recipe::RayServe(_) => "ray_serve",
        }
    }

    /// The engine's own name for the model, if different.
    pub fn served_model_name(&self) -> Option<&str> {
        match self {
            Recipe::Candle(_) => None,
            Recipe::Command(command) => command.served_model_name.as_deref(),
            // Otherwise it is started with the catalogue's name.
            Recipe::Server(server) => server.served_model_name.as_deref(),
            Recipe::Remote(remote) => remote.served_model_name.as_deref(),
            Recipe::RayServe(serve) => serve.served_model_name.as_deref(),
        }
    }

    /// Returns true if the engine fills its reservation, which means that measurements do not show its need.
    pub fn fills_its_reservation(&self) -> bool {
        match self {
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                false
            }
            Recipe::Server(server) => server.engine.fills,
        }
    }
}

impl Recipe {
    /// A path that returns 2xx once the engine is ready.
    pub fn ready_path(&self) -> &str {
        match self {
            Recipe::Candle(_) => "/health",
            Recipe::Command(command) => &command.ready_path,
            Recipe::Server(server) => server.engine.ready_path,
            Recipe::Remote(remote) => &remote.health_path,
            Recipe::RayServe(serve) => &serve.health_path,
        }
    }

    /// Returns true if the engine accepts this field of OpenAI's requests but ignores it.
    pub fn ignores(&self, field: &str) -> bool {
        let own: &[&str] = match self {
            Recipe::Candle(_) => &[],
            Recipe::Server(server) => server.engine.ignores,
            // Unknown programs.
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => return false,
        };
        OF_OPENAI_ALONE.contains(&field) || own.contains(&field)
    }

    /// Texts in the errors that the engine sends while it shuts down.
    pub fn exit_messages(&self) -> &'static [&'static str] {
        match self {
            Recipe::Server(server) => server.engine.last_errors,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => &[],
        }
    }

    /// Returns true if this error shows that the engine is shutting down.
    pub fn is_exit_message(&self, error: &str) -> bool {
        self.exit_messages()
            .iter()
            .any(|message| error.contains(message))
    }

    /// Returns true if the engine has this route. Unknown programs are assumed to have it; they report the routes that they lack.
    pub fn has(&self, extra: ExtraRoute) -> bool {
        match self {
            Recipe::Candle(candle) => candle.has(extra),
            Recipe::Server(server) => server.engine.routes.contains(&extra),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// Returns true unless the model is known not to generate text.
    pub fn generates(&self) -> bool {
        match self {
            Recipe::Candle(candle) => matches!(candle.serves, None | Some(ModelTask::Texts)),
            Recipe::Server(server) => server.engine.kind != EngineKind::Tei,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// The configured context of one sequence in tokens.
    pub fn context(&self) -> Option<u32> {
        match self {
            Recipe::Candle(candle) => candle.context,
            Recipe::Server(server) => server.context,
            Recipe::Command(command) => command.context,
            Recipe::RayServe(serve) => serve.context,
            Recipe::Remote(_) => None,
        }
    }

    /// The format of the engine's token routes.
    pub fn token_api(&self) -> TokenApi {
        match self {
            Recipe::Server(server) => server.engine.tokens,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                TokenApi::Vllm
            }
        }
    }

    /// Returns true if the engine's embeddings support the `dimensions` field.
    pub fn has_dimensions(&self) -> bool {
        match self {
            Recipe::Candle(_) => true,
            Recipe::Server(server) => server.engine.dimensions,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// The format of the engine's ranking route.
    pub fn rerank_api(&self) -> RerankApi {
        match self {
            Recipe::Server(server) => server.engine.rerank,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                RerankApi::Common
            }
        }
    }

    /// The model runs on a remote server or in Ray: nothing is loaded here, and its memory is invisible to the pool.
    pub fn is_remote(&self) -> bool {
        matches!(self, Recipe::Remote(_) | Recipe::RayServe(_))
    }

    /// The Ray Serve application, for a model in Ray.
    pub fn ray_serve(&self) -> Option<&RayServeRecipe> {
        match self {
            Recipe::RayServe(serve) => Some(&**serve),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) | Recipe::Remote(_) => None,
        }
    }

    /// The remote server's URL for display, if there is one.
    pub fn remote_url(&self) -> Option<String> {
        match self {
            Recipe::Remote(remote) => Some(remote.url.to_string()),
            Recipe::RayServe(serve) => Some(format!("Ray Serve at {}", serve.place.address)),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) => None,
        }
    }

    /// Maximum number of devices of one replica.
    pub fn devices_max(&self) -> u32 {
        match self {
            Recipe::Candle(candle) if candle.device == ComputeDevice::Cuda => DEVICES_MAX,
            Recipe::Candle(_) => 1,
            Recipe::Server(server) => server.engine.devices_max,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => DEVICES_MAX,
        }
    }

    /// Returns true if a replica may span several nodes.
    pub fn spans_nodes(&self) -> bool {
        match self {
            Recipe::Server(server) => server.engine.spans_nodes,
            Recipe::Command(_) => true,
            Recipe::Candle(_) | Recipe::Remote(_) | Recipe::RayServe(_) => false,
        }
    }

    /// The engine's sleep mode; `None` if it cannot or must not sleep.
    pub fn parking(&self) -> Option<&'static crate::engines::Parking> {
        match self {
            Recipe::Candle(candle) => candle.parking(),
            Recipe::Server(server) => server.engine.parks(server.sleep),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }
}

/// Fields that concern OpenAI's own service and have no meaning on a private machine.
const OF_OPENAI_ALONE: [&str; 10] = [
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    // No engine supports verbosity levels.
    "verbosity",
    "web_search_options",
];

#[cfg(test)]
pub(crate) mod tests;
