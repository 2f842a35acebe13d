//! How a model's engine is started, and what is known of it: the embedded engine, any command, one of the table, a remote server,
//! or an application in Ray. It starts nothing.

mod candle;
mod command;

pub use candle::{CandleRecipe, Joining, Speculation, TokenBudgets};
pub use command::{CommandRecipe, LaunchValues, RenderedCommand, SleepCommands, TemplateError};

use super::candle_models::Serves;
use super::engine_kind::EngineKind;
use super::engines::{Extra, RerankApi, ServerRecipe, TokenApi};
use super::limits::DEVICES_MAX;
pub use super::model_file::{
    CacheType, ComputeDevice, Listen, LoopbackAddress, NumberTypes, ProductType, Quantization,
    Secret, Sleep, Task,
};
use super::ray_serve::RayServeRecipe;
use super::remote::RemoteRecipe;

/// How to run one replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    Candle(CandleRecipe),
    Command(CommandRecipe),
    /// An engine of the table.
    Server(Box<ServerRecipe>),
    /// It runs on a remote server.
    Remote(RemoteRecipe),
    /// It runs in a Ray cluster, as applications of Ray Serve that the pool deploys.
    RayServe(Box<RayServeRecipe>),
}

impl Recipe {
    /// The engine's word in answers: `candle`, `command`, `vllm`, `remote`, `ray_serve`.
    pub fn engine(&self) -> &'static str {
        match self {
            Recipe::Candle(_) => "candle",
            Recipe::Command(_) => "command",
            Recipe::Server(server) => server.engine.word,
            Recipe::Remote(_) => "remote",
            Recipe::RayServe(_) => "ray_serve",
        }
    }

    /// The name by which the engine itself knows the model, if that is another one.
    pub fn served_model_name(&self) -> Option<&str> {
        match self {
            Recipe::Candle(_) => None,
            Recipe::Command(command) => command.served_model_name.as_deref(),
            // It gets the catalogue's name where there is no other.
            Recipe::Server(server) => server.served_model_name.as_deref(),
            Recipe::Remote(remote) => remote.served_model_name.as_deref(),
            Recipe::RayServe(serve) => serve.served_model_name.as_deref(),
        }
    }

    /// Whether the engine fills whatever it is given, so that a measurement of its memory tells what
    /// was reserved and not what it needs.
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
    /// Its 2xx answer means ready.
    pub fn ready_path(&self) -> &str {
        match self {
            Recipe::Candle(_) => "/health",
            Recipe::Command(command) => &command.ready_path,
            Recipe::Server(server) => server.engine.ready_path,
            Recipe::Remote(remote) => &remote.health_path,
            Recipe::RayServe(serve) => &serve.health_path,
        }
    }

    /// Whether its engine takes this field of OpenAI's requests and does nothing with it.
    pub fn ignores(&self, field: &str) -> bool {
        let own: &[&str] = match self {
            Recipe::Candle(_) => &[],
            Recipe::Server(server) => server.engine.ignores,
            // Nothing is known of them.
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => return false,
        };
        OF_OPENAI_ALONE.contains(&field) || own.contains(&field)
    }

    /// What its engine's errors contain when it is about to end.
    pub fn exit_messages(&self) -> &'static [&'static str] {
        match self {
            Recipe::Server(server) => server.engine.last_errors,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => &[],
        }
    }

    /// Whether its engine says by this error that it is about to end.
    pub fn is_exit_message(&self, error: &str) -> bool {
        self.exit_messages().iter().any(|it| error.contains(it))
    }

    /// Whether its engine has this route. Of those of which nothing is known it is supposed; they say
    /// themselves what they have not.
    pub fn has(&self, extra: Extra) -> bool {
        match self {
            Recipe::Candle(candle) => candle.has(extra),
            Recipe::Server(server) => server.engine.routes.contains(&extra),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// Whether its model writes texts, as far as that is known.
    pub fn generates(&self) -> bool {
        match self {
            Recipe::Candle(candle) => matches!(candle.serves, None | Some(Serves::Texts)),
            Recipe::Server(server) => server.engine.kind != EngineKind::Tei,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// The configured tokens of one sequence.
    pub fn context(&self) -> Option<u32> {
        match self {
            Recipe::Candle(candle) => candle.context,
            Recipe::Server(server) => server.context,
            Recipe::Command(command) => command.context,
            Recipe::RayServe(serve) => serve.context,
            Recipe::Remote(_) => None,
        }
    }

    /// How its engine wants to be asked for tokens.
    pub fn token_api(&self) -> TokenApi {
        match self {
            Recipe::Server(server) => server.engine.tokens,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                TokenApi::Vllm
            }
        }
    }

    /// Whether its engine's embeddings have as many dimensions as a request wants.
    pub fn has_dimensions(&self) -> bool {
        match self {
            Recipe::Candle(_) => true,
            Recipe::Server(server) => server.engine.dimensions,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => true,
        }
    }

    /// How its engine wants to be asked for ranks.
    pub fn rerank_api(&self) -> RerankApi {
        match self {
            Recipe::Server(server) => server.engine.rerank,
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => {
                RerankApi::Common
            }
        }
    }

    /// It runs on a remote server or in Ray: nothing is loaded here, and the pool sees no memory of it.
    pub fn is_remote(&self) -> bool {
        matches!(self, Recipe::Remote(_) | Recipe::RayServe(_))
    }

    /// The application of Ray Serve, if it is one.
    pub fn ray_serve(&self) -> Option<&RayServeRecipe> {
        match self {
            Recipe::RayServe(serve) => Some(&**serve),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) | Recipe::Remote(_) => None,
        }
    }

    /// The remote server, for people, if there is one.
    pub fn remote_url(&self) -> Option<String> {
        match self {
            Recipe::Remote(remote) => Some(remote.url.to_string()),
            Recipe::RayServe(serve) => Some(format!("Ray Serve at {}", serve.place.address)),
            Recipe::Candle(_) | Recipe::Command(_) | Recipe::Server(_) => None,
        }
    }

    /// The most devices that one replica spreads over.
    pub fn devices_max(&self) -> u32 {
        match self {
            Recipe::Candle(candle) if candle.device == ComputeDevice::Cuda => DEVICES_MAX,
            Recipe::Candle(_) => 1,
            Recipe::Server(server) => server.engine.devices_max,
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => DEVICES_MAX,
        }
    }

    /// How its engine sleeps; `None`: it cannot, or is not to.
    pub fn parking(&self) -> Option<&'static super::Parking> {
        match self {
            Recipe::Candle(candle) => candle.parking(),
            Recipe::Server(server) => server.engine.parks(server.sleep),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }
}

/// What concerns OpenAI's own service, and has no meaning on a machine of one's own.
const OF_OPENAI_ALONE: [&str; 10] = [
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    // No engine has levels of it.
    "verbosity",
    "web_search_options",
];

#[cfg(test)]
pub(super) mod tests;
