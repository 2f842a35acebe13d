//! Reads the configuration again and puts it in force, on `POST /admin/reload` and SIGHUP. Everything is checked before anything
//! changes, and the catalogue, the last part that may fail, is changed first.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::evening;
use super::log::LevelSwitch;
use access::limits::Limits;
use config::{Config, KeyChange, LiveConfig};
use controller::Handle;
use http::{Edge, Keys, Reload, ReloadError, Reloaded, Reloading};
use schedule::Schedule;

/// All parts that use the configuration.
pub(super) struct Reloader {
    /// The file named on the command line, if any.
    pub file: Option<PathBuf>,
    pub config: LiveConfig,
    pub handle: Handle,
    pub edge: Arc<Edge>,
    pub limits: Arc<Limits>,
    pub keys: Arc<Keys>,
    pub schedule: Arc<Schedule>,
    pub level: LevelSwitch,
    /// Serializes reloads: two must never compare with the same configuration.
    pub turn: tokio::sync::Mutex<()>,
}

impl Reloader {
    async fn put_in_force(&self) -> Result<Reloaded, ReloadError> {
        let _turn = self.turn.lock().await;
        let running = self.config.get();
        // If the file read at the start is gone, the defaults must not replace it.
        let file = self.file.clone().or_else(|| running.file.clone());
        let newer = blocking(move || {
            let environment: BTreeMap<String, String> = std::env::vars().collect();
            Config::load(file.as_deref(), &environment)
        });
        let (config, settings) = running.reloaded(&newer.await??)?;
        let config = Arc::new(config);
        let is_new_evening = running.evening != config.evening || running.zone() != config.zone();
        let evening = if is_new_evening {
            let evening = evening::from_config(&config).map_err(ReloadError::Other)?;
            let prepared = self.schedule.prepare(evening).await;
            Some(prepared.map_err(|error| ReloadError::Other(error.to_string()))?)
        } else {
            None
        };
        let (models, found) = self.handle.reload(Arc::clone(&config)).await?;
        let mut warnings: Vec<String> = found.iter().map(ToString::to_string).collect();

        // The reload can no longer be refused from here on.
        self.edge.set(&config.server);
        self.limits.set(config.limits.clone(), config.zone());
        let groups = self.keys.groups();
        warnings.extend(groups.set(&config.groups, &self.keys.all(), &self.handle));
        warnings.extend(http::virtual_model_warnings(
            &config.virtual_models,
            &self.handle,
        ));
        if let Some(prepared) = evening {
            let changed = self.schedule.change(prepared).await;
            warnings.extend(changed.err().map(|error| error.to_string()));
            tracing::info!("{}", evening::outlook(&config));
        }
        if running.log.level != config.log.level {
            warnings.extend(self.level.set(config.log.level));
        }
        let edge = Arc::clone(&self.edge);
        warnings.extend(blocking(move || edge.reload_certificate()).await?);
        let before = running.notices();
        let notices = config.notices().into_iter();
        warnings.extend(notices.filter(|notice| !before.contains(notice)));
        Ok(Reloaded {
            settings,
            models,
            warnings,
        })
    }
}

/// Reads files on a thread that may block.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReloadError> {
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| ReloadError::Other(format!("reading the files panicked: {error}")))
}

impl Reload for Reloader {
    fn reload<'a>(&'a self, by: &'a str) -> Reloading<'a> {
        Box::pin(async move {
            let reloaded = self.put_in_force().await;
            match &reloaded {
                Ok(reloaded) => log_changes(by, reloaded),
                Err(error) => tracing::error!(by, "not reloaded, and nothing has changed: {error}"),
            }
            reloaded
        })
    }
}

fn log_changes(by: &str, reloaded: &Reloaded) {
    let listed = |changes: &[KeyChange]| -> String {
        let value = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let shown = |change: &KeyChange| {
            format!(
                "{} {} -> {}",
                change.key,
                value(&change.from),
                value(&change.to)
            )
        };
        changes.iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    let settings = &reloaded.settings;
    tracing::info!(
        by,
        applied = listed(&settings.applied),
        added = ?reloaded.models.added,
        changed = ?reloaded.models.changed,
        removed = ?reloaded.models.removed,
        "configuration reloaded"
    );
    if !settings.needs_restart.is_empty() {
        tracing::warn!(
            "these keys have new values that take effect after a restart of the service: {}",
            listed(&settings.needs_restart)
        );
    }
    for warning in &reloaded.warnings {
        tracing::warn!("{warning}");
    }
}

/// Reloads at each SIGHUP. Completes if the signal means that the service's terminal was closed.
pub(super) async fn at_hangups(reloader: &Reloader) {
    let had_terminal = std::io::stdin().is_terminal();
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        tracing::warn!(
            "SIGHUP cannot be received; POST /admin/reload reads the configuration again"
        );
        return std::future::pending().await;
    };
    while hangups.recv().await.is_some() {
        // After its terminal has been closed, standard input is not a terminal any more.
        if had_terminal && !std::io::stdin().is_terminal() {
            return;
        }
        // The result is logged.
        let _ = reloader.reload("SIGHUP").await;
    }
    std::future::pending().await
}
