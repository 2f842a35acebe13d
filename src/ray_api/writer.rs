//! This process's only writer to the applications of a Ray Serve. Serve takes complete lists and has no versions. So each write
//! reads the list, reads it again immediately before the write, and once more afterwards. This detects other programs that write at
//! the same time, and keeps both changes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::applications::{APPLICATIONS, Listing};
use super::cleanup_schedule::CleanupSchedule;
use super::client::{RayAccess, RayClient};
use super::ledger::UsedRay;
use super::merge::{self, Ownership, WantedApplications};
use super::shared_state::{ServeShared, WaitingLoad};
use super::{ApplicationState, RayError, state_of};

/// Attempts at one change before writes by other programs become an error.
const ATTEMPTS_MAX: u32 = 10;
/// Serve shows a write in its list after some milliseconds.
const PAUSE: Duration = Duration::from_millis(200);

pub struct ServeWriter {
    client: RayClient,
    /// Prefix of the names of the pool's applications.
    pub(super) prefix: String,
    /// True if this is the pool's former name. Its applications are reported but never removed.
    pub(super) is_former: bool,
    pub(super) used: UsedRay,
    pub(super) shared: Arc<ServeShared>,
    pub(super) state: Mutex<WriterState>,
    cleaning: StdMutex<CleanupSchedule>,
}

#[derive(Default)]
pub(super) struct WriterState {
    pub wanted: WantedApplications,
    /// Applications that are in Ray, or were part of a write that may have been carried out.
    pub written: BTreeSet<String>,
}

/// The progress of an application's removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Serve does not list it, and no write can bring it back.
    Gone,
    /// Serve is taking it down.
    Leaving,
    /// Serve does not list it, but an interrupted write may still create it.
    InDoubt,
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
    pub fn new(access: &RayAccess, prefix: &str, shared: Arc<ServeShared>) -> ServeWriter {
        let client = RayClient::new(access);
        ServeWriter {
            used: UsedRay::new(access, client.address(), prefix),
            client,
            prefix: prefix.to_owned(),
            is_former: false,
            shared,
            state: Mutex::default(),
            cleaning: StdMutex::default(),
        }
    }

    /// Makes this a writer for a former name of the pool. Another pool may have that name now.
    pub fn of_former_name(self) -> ServeWriter {
        ServeWriter {
            is_former: true,
            ..self
        }
    }

    pub fn address(&self) -> &str {
        self.client.address()
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if the Ray may have applications of this pool.
    pub fn is_used(&self) -> bool {
        self.shared.ledger.has(&self.used)
    }

    /// Returns true if nothing may be deployed yet, because the applications of an earlier process are unknown or not adopted yet.
    pub fn is_held(&self) -> bool {
        self.shared.is_held(&self.used.address)
    }

    /// Reserves the application of this name for a load that waits to deploy it, until the result is dropped.
    pub fn wait<'a>(&'a self, name: &'a str) -> WaitingLoad<'a> {
        self.shared.wait(name)
    }

    /// Reports that the Ray responds and its applications have to be assessed.
    pub fn hear(&self) {
        self.shared.hear();
    }

    /// # Errors
    /// If Ray does not respond or refuses, or its response has another form.
    pub async fn look(&self) -> Result<Listing, RayError> {
        let text = self.client.get_text(APPLICATIONS).await?;
        let text = text.ok_or_else(|| {
            self.client.refused(
                &format!("nothing found at {APPLICATIONS} (404)"),
                "; the address has to be Ray's dashboard, of an installation with ray[serve]",
            )
        })?;
        Listing::parse(&text).map_err(|error| {
            self.client
                .unusable(format!("{APPLICATIONS} has another form: {error}"))
        })
    }

    /// Takes over an application that is already deployed.
    pub async fn own(&self, name: &str, config: Box<RawValue>) {
        let mut state = self.state.lock().await;
        state.wanted.insert(name.to_owned(), config);
        state.written.insert(name.to_owned());
        self.shared.keep(name);
        if let Err(error) = self.remember().await {
            tracing::error!("{error}");
        }
    }

    /// Deploys the application in addition to all others. Serve starts it asynchronously.
    ///
    /// # Errors
    /// If Ray does not respond or refuses, or other programs write continuously, or the pool cannot record that it uses this Ray.
    /// The application may exist despite the error until it is removed.
    pub async fn add(&self, name: &str, config: Box<RawValue>) -> Result<(), RayError> {
        let mut state = self.state.lock().await;
        // Recorded before the first write: after a kill, the next process must be able to find the application.
        self.remember().await?;
        state.wanted.insert(name.to_owned(), config);
        self.shared.keep(name);
        let written = self.write(&mut state).await;
        if matches!(written, Err(RayError::Refused { .. })) {
            // Otherwise it would make the writes of all other replicas fail.
            state.wanted.remove(name);
            self.shared.let_go(name);
        } else if written.is_ok() {
            // Also if nothing had to be written, because the application was already deployed.
            state.written.insert(name.to_owned());
        }
        written.map(drop)
    }

    /// Removes the application and all left-over ones of the pool. Serve removes it asynchronously; repeat the call until it
    /// returns [`Removal::Gone`].
    ///
    /// # Errors
    /// If Ray does not respond or refuses, or other programs write continuously.
    pub async fn remove(&self, name: &str) -> Result<Removal, RayError> {
        let mut state = self.state.lock().await;
        state.wanted.remove(name);
        self.shared.let_go(name);
        if !state.written.contains(name) {
            self.shared.gone(name);
            return Ok(Removal::Gone);
        }
        // A look that begins in doubt does not prove that the application is gone.
        let is_in_doubt = self.shared.doubts.has(name);
        let seen = self.write(&mut state).await?;
        let removal = match state_of(&seen, name) {
            ApplicationState::Absent if is_in_doubt => Removal::InDoubt,
            ApplicationState::Absent => Removal::Gone,
            _ => Removal::Leaving,
        };
        if removal == Removal::Gone {
            state.written.remove(name);
            self.shared.gone(name);
            self.forget_if_empty(&state, &seen).await;
        }
        Ok(removal)
    }

    /// Removes applications with the pool's prefix that no replica owns.
    ///
    /// # Errors
    /// As above.
    pub async fn remove_left_over(&self) -> Result<(), RayError> {
        let mut state = self.state.lock().await;
        self.write(&mut state).await.map(drop)
    }

    /// Writes until Serve's list matches the wanted applications, and returns the list. The caller holds the lock on the state,
    /// which allows one write at a time.
    pub(super) async fn write(&self, state: &mut WriterState) -> Result<Listing, RayError> {
        let WriterState { wanted, written } = state;
        let mut seen = self.look().await?;
        for _ in 0..ATTEMPTS_MAX {
            // Read after the look: another writer of this process marks an application as alive before it appears in the list.
            let own = self.own_of(wanted);
            if merge::is_carried_out(&seen, &own) {
                return Ok(seen);
            }
            let body = merge::body(&seen, &own)
                .map_err(|error| self.client.unusable(error.to_string()))?;
            let turn = self.shared.turn().await;
            let again = self.look().await?;
            if !merge::is_same(&seen, &again) {
                tracing::debug!("the applications of Ray Serve have changed; merging again");
                seen = again;
                continue;
            }
            if !self.shared.ledger.leads() {
                let program = self.client.program();
                return Err(RayError::Deposed { program });
            }
            written.extend(wanted.keys().cloned());
            self.put(body, merge::written(&seen, &own)).await?;
            let before = seen;
            seen = self.look().await?;
            drop(turn);
            self.tell_of_lost(&before, &seen);
            if !merge::is_carried_out(&seen, &own) {
                sleep(PAUSE).await;
                seen = self.look().await?;
            }
        }
        if merge::is_carried_out(&seen, &self.own_of(wanted)) {
            Ok(seen)
        } else {
            Err(self.client.unusable(format!(
            "other programs have changed the applications of Ray Serve {ATTEMPTS_MAX} times in a row, and what the pool wrote is not there; let one of them pause"
        )))
        }
    }

    /// `names` is the pool's applications in the body. Without a response they may still appear later.
    async fn put(&self, body: String, names: BTreeSet<String>) -> Result<(), RayError> {
        let writing = self.shared.doubts.begin(names);
        let put = self.client.put(APPLICATIONS, body).await;
        match &put {
            Err(error) if error.is_unknown() => drop(writing),
            Ok(()) | Err(_) => writing.settle(),
        }
        put
    }

    pub(super) fn own_of<'a>(&'a self, wanted: &'a WantedApplications) -> Ownership<'a> {
        // Under a former name, nothing is removed in any case.
        let address = (!self.is_former).then_some(self.used.address.as_str());
        Ownership {
            prefix: &self.prefix,
            wanted,
            kept: self.shared.kept_at(address),
        }
    }

    /// Stores that this Ray may have applications of this pool.
    async fn remember(&self) -> Result<(), RayError> {
        let remembered = self.shared.ledger.remember(&self.used).await;
        remembered.map_err(|message| RayError::Record {
            program: self.client.program(),
            message,
        })
    }

    /// Forgets the Ray once it has no application of this pool and no write can create one. The caller holds the lock on the state,
    /// so none is added during the call.
    pub(super) async fn forget_if_empty(&self, state: &WriterState, seen: &Listing) {
        let own = self.own_of(&state.wanted);
        let may_come = self.shared.doubts.names();
        let is_empty = state.wanted.is_empty()
            && self.cleaning().is_clean()
            && !self.shared.has_no_response(&self.used.address)
            && !merge::has_former(seen, &own)
            && !may_come.iter().any(|name| own.is_former(name));
        if !is_empty {
            return;
        }
        if let Err(error) = self.shared.ledger.forget(&self.used).await {
            let address = self.address();
            tracing::debug!("cannot forget Ray at {address}: {error}; the next start looks at it");
        }
    }

    pub(super) fn cleaning(&self) -> MutexGuard<'_, CleanupSchedule> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports applications that another program deployed between the last look and the write, which removes them. Their
    /// configurations are not known, so a person has to deploy them again.
    fn tell_of_lost(&self, before: &Listing, after: &Listing) {
        let known: BTreeSet<&String> = before.applications.keys().collect();
        let lost = after.applications.iter().filter(|(name, application)| {
            application.is_leaving() && !known.contains(name) && !merge::is_own(name, &self.prefix)
        });
        for (name, _) in lost {
            tracing::error!(
                "the application {name} was deployed to Ray Serve while the pool wrote, and is being removed: Serve takes only whole lists; deploy it again"
            );
        }
    }
}

#[cfg(test)]
mod tests;
