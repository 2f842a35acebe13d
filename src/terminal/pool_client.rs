//! The requests of this crate to the pool. The admin key is used only to register models of the hub.

use std::path::{Path, PathBuf};

use client::{
    ApiResponse, Client, ClientError, Key, KeyKind, LOCAL_KEY_FILE, Method, Patience,
    ServerOptions, Settings, Stream, key_in,
};
use serde_json::Value;

use super::args::ServerArgs;

const COMPLETIONS: &str = "v1/chat/completions";

/// The settings of this machine's own pool, from its configuration.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The server's URL.
    pub server: String,
    pub admin_key_file: PathBuf,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            server: "http://127.0.0.1:8080".to_owned(),
            admin_key_file: PathBuf::from(LOCAL_KEY_FILE),
        }
    }
}

#[derive(Debug)]
pub struct PoolClient {
    client: Client,
    admin_key: Option<Key>,
}

impl PoolClient {
    /// Finds the server, the key and the admin key.
    pub fn find(args: &ServerArgs, defaults: &Defaults) -> Result<PoolClient, ClientError> {
        let options = ServerOptions {
            server: args.server.as_deref().unwrap_or(&defaults.server),
            key: args.key.as_ref(),
            key_file: args.key_file.as_deref(),
            ca_file: args.ca_file.as_deref(),
        };
        let settings = Settings::find(options, KeyKind::User)?;
        let local = settings.is_local.then_some(&*defaults.admin_key_file);
        // Without an admin key, the user's own key may be an administrator's.
        let admin_key = admin_key(local).or_else(|| settings.key.clone());
        PoolClient::new(settings, admin_key)
    }

    pub fn new(settings: Settings, admin_key: Option<Key>) -> Result<PoolClient, ClientError> {
        let client = Client::new(settings, "model-pool")?;
        Ok(PoolClient { client, admin_key })
    }

    pub fn server(&self) -> &str {
        self.client.server()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn has_admin_key(&self) -> bool {
        self.admin_key.is_some()
    }

    /// Returns the names of the models that the key may use.
    pub async fn models(&self) -> Result<Vec<String>, ClientError> {
        let response: Value = self.client.get("v1/models", &[]).await?.read()?;
        let models = response["data"].as_array().into_iter().flatten();
        let names = models.filter_map(|model| Some(model["id"].as_str()?.to_owned()));
        Ok(names.collect())
    }

    /// Fails if the server does not have the model. Loads nothing.
    pub async fn find_model(&self, model: &str) -> Result<(), ClientError> {
        let path = format!("v1/models/{model}");
        self.client.get(&path, &[]).await.map(drop)
    }

    /// Registers a model of the hub with the admin key. Returns the model as the admin API describes it.
    pub async fn register(&self, model: &str) -> Result<Value, ClientError> {
        let client = self.client.with_key(self.admin_key.clone());
        let query = [("model", model)];
        let registered = client.call(Method::PUT, "admin/models", &query, None, Patience::Hub);
        registered.await?.read()
    }

    /// Returns the server's complete response. Takes as long as the model does.
    pub async fn complete(&self, body: &Value) -> Result<ApiResponse, ClientError> {
        self.client.post(COMPLETIONS, body).await
    }

    /// Starts a streaming response.
    pub async fn stream(&self, body: &Value) -> Result<Stream, ClientError> {
        self.client.post_for_stream(COMPLETIONS, body).await
    }
}

/// Finds the admin key as admin-client does: from its variables, then from the key file of this machine's pool.
fn admin_key(local: Option<&Path>) -> Option<Key> {
    let [variable, file_variable] = KeyKind::Admin.variables().map(|name| {
        let value = std::env::var(name).ok();
        value.filter(|value| !value.trim().is_empty())
    });
    if let Some(text) = variable {
        return Some(Key::from(text.as_str()));
    }
    let named = file_variable.map(PathBuf::from);
    key_in(named.as_deref().or(local)?).ok()
}
