//! Translates llama-swap's peers: each of their models becomes a RemoteEngine. Keys are never copied, only referenced by variable.

use serde_json::{Map, Value, json};

use super::Reader;
use crate::fields::Fields;
use crate::macros::Macros;
use crate::notes::Problem;
use crate::outcome::ImportedModel;
use crate::secrets::variable_for;

impl Reader<'_> {
    pub(super) fn peers(&mut self, root: &Fields<'_>, macros: &Macros) -> Result<(), Problem> {
        let peers = Fields::from_path("peers", root.get("peers"))?;
        for name in peers.keys() {
            let key = peers.path(name);
            let read = Fields::from_path(&key, peers.get(name));
            let done = read.and_then(|peer| self.peer(name, &peer, macros));
            if let Err(problem) = done {
                self.notes.leave_out(problem);
            }
        }
        Ok(())
    }

    fn peer(&mut self, name: &str, peer: &Fields<'_>, macros: &Macros) -> Result<(), Problem> {
        let at = |key: &str, message: String| Problem::at(peer.path(key), message);
        let proxy = peer
            .text("proxy")?
            .ok_or_else(|| at("proxy", "is missing".to_owned()))?;
        let mut copied = Vec::new();
        let proxy = macros
            .expand(&proxy, self.around.environment, &mut copied)
            .map_err(|problem| at("proxy", problem))?;
        // llama-swap appends the complete path of a request, `/v1/…`.
        let url = format!("{}/v1", proxy.trim_end_matches('/'));
        let variable = match peer.text("apiKey")? {
            None => None,
            Some(key) if key.is_empty() => None,
            Some(key) => Some(self.key_variable(name, peer, &key)),
        };
        for key in ["filters", "timeouts"] {
            if peer.get(key).is_some() {
                self.notes.warn(
                    &peer.path(key),
                    match key {
                        "filters" => "has no counterpart: requests are passed to the endpoint unchanged; engine_config.generation.generate_kwargs in a model file sets defaults",
                        _ => "has no counterpart: connecting may take 10 s, and pool_config.first_token_after and stall_after define when an endpoint counts as dead",
                    },
                );
            }
        }
        let models = peer.texts("models")?;
        if models.is_empty() {
            return Err(at("models", "is missing or empty".to_owned()));
        }
        for (nth, model) in models.into_iter().enumerate() {
            let key = format!("{}[{nth}]", peer.path("models"));
            let own = self.names.take(&model);
            if own != model {
                self.notes.warn(
                    &key,
                    format!("{model} is {own} here: a name may have one `/`, letters, digits, `.`, `_` and `-`, and belongs to one model"),
                );
            }
            let mut engine = Map::new();
            engine.insert("model_id".to_owned(), json!(own));
            engine.insert("type".to_owned(), json!("RemoteEngine"));
            engine.insert("url".to_owned(), json!(url));
            if own != model {
                engine.insert("served_model_name".to_owned(), json!(model));
            }
            if let Some(variable) = &variable {
                engine.insert("api_key_env".to_owned(), json!(variable));
            }
            let document = json!({"engine_config": Value::Object(engine)});
            match crate::files::check(&document) {
                Ok(_) => self.models.push(ImportedModel {
                    name: own,
                    engine: "RemoteEngine".to_owned(),
                    key,
                    document,
                }),
                Err(problem) => self.notes.leave_out(Problem::at(key, problem)),
            }
        }
        Ok(())
    }

    /// Returns the variable for the key, and notes what to do about it.
    fn key_variable(&mut self, name: &str, peer: &Fields<'_>, key: &str) -> String {
        let own = key
            .strip_prefix("${env.")
            .and_then(|rest| rest.strip_suffix('}'))
            .filter(|rest| !rest.contains(['$', '{', '}']));
        match own {
            Some(variable) => variable.to_owned(),
            None => {
                let variable = variable_for(name);
                self.notes.warn(
                    &peer.path("apiKey"),
                    format!("was not copied: set {variable} in the environment of model-pool, or write engine_config.api_key_file into the model files of {name}"),
                );
                variable
            }
        }
    }
}
