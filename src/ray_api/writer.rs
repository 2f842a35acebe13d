//! The one writer of this process to the applications of a Ray Serve. Serve takes only whole lists and has no versions, so
//! each write looks first, looks again at once before it writes, and looks afterwards: another program that writes at the
//! same time is noticed, and both changes are kept.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::applications::{APPLICATIONS, Listing};
use super::client::{RayAccess, RayClient};
use super::merge::{self, Wanted};
use super::{ApplicationState, RayError, state_of};

/// Looks and writes of one change, before other programs count as in the way.
const ATTEMPTS_MAX: u32 = 10;
/// Serve takes some milliseconds from a write to the list that shows it.
const PAUSE: Duration = Duration::from_millis(200);

pub struct ServeWriter {
    client: RayClient,
    /// What the names of the pool's applications begin with.
    prefix: String,
    wanted: Mutex<Wanted>,
}

impl fmt::Debug for ServeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeWriter")
            .field("address", &self.client.address())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl ServeWriter {
    pub fn new(access: &RayAccess, prefix: &str) -> ServeWriter {
        ServeWriter {
            client: RayClient::new(access),
            prefix: prefix.to_owned(),
            wanted: Mutex::default(),
        }
    }

    pub fn address(&self) -> &str {
        self.client.address()
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// # Errors
    /// If Ray does not answer, or refuses, or its answer has another form.
    pub async fn look(&self) -> Result<Listing, RayError> {
        let text = self.client.get_text(APPLICATIONS).await?;
        let text = text.ok_or_else(|| {
            self.client.refused(
                &format!("there is nothing at {APPLICATIONS} (404)"),
                "; the address has to be Ray's dashboard, of an installation with ray[serve]",
            )
        })?;
        Listing::parse(&text).map_err(|error| {
            self.client
                .unusable(format!("{APPLICATIONS} has another form: {error}"))
        })
    }

    /// The application is the pool's own; it is deployed already.
    pub async fn own(&self, name: &str, config: Box<RawValue>) {
        self.wanted.lock().await.insert(name.to_owned(), config);
    }

    /// Deploys the application beside all others. Serve starts it in its own time.
    ///
    /// # Errors
    /// If Ray does not answer, or refuses, or others write without a pause. The application may be there nevertheless
    /// until it is removed.
    pub async fn add(&self, name: &str, config: Box<RawValue>) -> Result<(), RayError> {
        let mut wanted = self.wanted.lock().await;
        wanted.insert(name.to_owned(), config);
        let written = self.write(&wanted).await;
        if matches!(written, Err(RayError::Refused { .. })) {
            // Else it would make the writes of all other replicas fail, too.
            wanted.remove(name);
        }
        written
    }

    /// Has the application removed, and all left-over ones of the pool. Serve takes it down in its own time.
    ///
    /// # Errors
    /// If Ray does not answer, or refuses, or others write without a pause.
    pub async fn remove(&self, name: &str) -> Result<(), RayError> {
        let mut wanted = self.wanted.lock().await;
        wanted.remove(name);
        self.write(&wanted).await
    }

    /// Removes applications of the pool's name that no replica owns.
    ///
    /// # Errors
    /// As above.
    pub async fn remove_left_over(&self) -> Result<(), RayError> {
        let wanted = self.wanted.lock().await;
        self.write(&wanted).await
    }

    /// Whether Serve no longer lists the application.
    ///
    /// # Errors
    /// If that is unknown.
    pub async fn is_gone(&self, name: &str) -> Result<bool, RayError> {
        let listing = self.look().await?;
        Ok(state_of(&listing, name) == ApplicationState::Absent)
    }

    /// The lock on what is wanted is held meanwhile: one write at a time.
    async fn write(&self, wanted: &Wanted) -> Result<(), RayError> {
        let mut seen = self.look().await?;
        for _ in 0..ATTEMPTS_MAX {
            if merge::is_carried_out(&seen, &self.prefix, wanted) {
                return Ok(());
            }
            let body = merge::body(&seen, &self.prefix, wanted)
                .map_err(|error| self.client.unusable(error.to_string()))?;
            let again = self.look().await?;
            if !merge::is_same(&seen, &again) {
                tracing::debug!("the applications of Ray Serve have changed; merged anew");
                seen = again;
                continue;
            }
            self.client.put(APPLICATIONS, body).await?;
            let before = seen;
            seen = self.look().await?;
            self.tell_of_lost(&before, &seen);
            if !merge::is_carried_out(&seen, &self.prefix, wanted) {
                sleep(PAUSE).await;
                seen = self.look().await?;
            }
        }
        match merge::is_carried_out(&seen, &self.prefix, wanted) {
            true => Ok(()),
            false => Err(self.client.unusable(format!(
                "other programs have changed the applications of Ray Serve {ATTEMPTS_MAX} times in a row, and what the pool wrote is not there; let one of them pause"
            ))),
        }
    }

    /// What another program deployed between the last look and the write is taken away by the write. Its configuration is
    /// not known, so a person has to deploy it again.
    fn tell_of_lost(&self, before: &Listing, after: &Listing) {
        let known: BTreeSet<&String> = before.applications.keys().collect();
        let lost = after.applications.iter().filter(|(name, it)| {
            it.is_leaving() && !known.contains(name) && !merge::is_own(name, &self.prefix)
        });
        for (name, _) in lost {
            tracing::error!(
                "the application {name} was deployed to Ray Serve in the moment in which the pool wrote, and is being removed: Serve takes only whole lists; deploy it again"
            );
        }
    }
}

#[cfg(test)]
mod tests;
