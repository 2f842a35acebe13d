//! The one writer of this process to the applications of a Ray Serve. Serve takes only whole lists and has no versions, so
//! each write looks first, looks again at once before it writes, and looks afterwards: another program that writes at the
//! same time is noticed, and both changes are kept.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::applications::{APPLICATIONS, Listing};
use super::cleaning::Cleaning;
use super::client::{RayAccess, RayClient};
use super::ledger::UsedRay;
use super::merge::{self, Own, Wanted};
use super::shared::{ServeShared, WaitingLoad};
use super::{ApplicationState, RayError, state_of};

/// Looks and writes of one change, before other programs count as in the way.
const ATTEMPTS_MAX: u32 = 10;
/// Serve takes some milliseconds from a write to the list that shows it.
const PAUSE: Duration = Duration::from_millis(200);

pub struct ServeWriter {
    client: RayClient,
    /// What the names of the pool's applications begin with.
    pub(super) prefix: String,
    /// The pool is called otherwise now: its applications of this name are shown, and none is removed.
    pub(super) is_former: bool,
    pub(super) used: UsedRay,
    pub(super) shared: Arc<ServeShared>,
    pub(super) state: Mutex<State>,
    cleaning: StdMutex<Cleaning>,
}

#[derive(Default)]
pub(super) struct State {
    pub wanted: Wanted,
    /// Applications that are in Ray, or were in a write that may have been carried out.
    pub written: BTreeSet<String>,
}

/// How far the removal of an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Serve does not list it, and no write can bring it back.
    Gone,
    /// Serve is taking it down.
    Leaving,
    /// Serve does not list it, and a write that was cut off may still bring it.
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
            used: UsedRay::of(access, client.address(), prefix),
            client,
            prefix: prefix.to_owned(),
            is_former: false,
            shared,
            state: Mutex::default(),
            cleaning: StdMutex::default(),
        }
    }

    /// The same for a name that the pool had before. Another pool may have it now.
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

    /// Whether there may be applications of this pool.
    pub fn is_used(&self) -> bool {
        self.shared.ledger.has(&self.used)
    }

    /// Whether nothing is to be deployed yet: what an earlier process has deployed there is unknown, or not adopted yet.
    pub fn is_held(&self) -> bool {
        self.shared.is_held(&self.used.address)
    }

    /// Until this is dropped, an application of this name is that of a load that waits to deploy it.
    pub fn wait<'a>(&'a self, name: &'a str) -> WaitingLoad<'a> {
        self.shared.wait(name)
    }

    /// The Ray answers, and is to be judged.
    pub fn hear(&self) {
        self.shared.hear();
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
        let mut state = self.state.lock().await;
        state.wanted.insert(name.to_owned(), config);
        state.written.insert(name.to_owned());
        self.shared.keep(name);
        if let Err(error) = self.remember().await {
            tracing::error!("{error}");
        }
    }

    /// Deploys the application beside all others. Serve starts it in its own time.
    ///
    /// # Errors
    /// If Ray does not answer, or refuses, or others write without a pause, or the pool cannot remember that it uses this
    /// Ray. The application may be there nevertheless until it is removed.
    pub async fn add(&self, name: &str, config: Box<RawValue>) -> Result<(), RayError> {
        let mut state = self.state.lock().await;
        // Before the first write: a process that is killed right after it must be able to find the application.
        self.remember().await?;
        state.wanted.insert(name.to_owned(), config);
        self.shared.keep(name);
        let written = self.write(&mut state).await;
        if matches!(written, Err(RayError::Refused { .. })) {
            // Else it would make the writes of all other replicas fail, too.
            state.wanted.remove(name);
            self.shared.let_go(name);
        } else if written.is_ok() {
            // Also if nothing had to be written, because it was there.
            state.written.insert(name.to_owned());
        }
        written.map(drop)
    }

    /// Has the application removed, and all left-over ones of the pool; again each time it is there. Serve takes it down in
    /// its own time. It is gone only once that has been the answer.
    ///
    /// # Errors
    /// If Ray does not answer, or refuses, or others write without a pause.
    pub async fn remove(&self, name: &str) -> Result<Removal, RayError> {
        let mut state = self.state.lock().await;
        state.wanted.remove(name);
        self.shared.let_go(name);
        if !state.written.contains(name) {
            self.shared.gone(name);
            return Ok(Removal::Gone);
        }
        // A look that begins in doubt does not say that it is gone.
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

    /// Removes applications of the pool's name that no replica owns.
    ///
    /// # Errors
    /// As above.
    pub async fn remove_left_over(&self) -> Result<(), RayError> {
        let mut state = self.state.lock().await;
        self.write(&mut state).await.map(drop)
    }

    /// Returns the list once everything is carried out. The lock on what is wanted is held meanwhile: one write at a time.
    pub(super) async fn write(&self, state: &mut State) -> Result<Listing, RayError> {
        let State { wanted, written } = state;
        let mut seen = self.look().await?;
        for _ in 0..ATTEMPTS_MAX {
            // After the look: what another writer of this process deploys is alive before it is in the list.
            let own = self.own_of(wanted);
            if merge::is_carried_out(&seen, &own) {
                return Ok(seen);
            }
            let body = merge::body(&seen, &own)
                .map_err(|error| self.client.unusable(error.to_string()))?;
            let turn = self.shared.turn().await;
            let again = self.look().await?;
            if !merge::is_same(&seen, &again) {
                tracing::debug!("the applications of Ray Serve have changed; merged anew");
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

    /// `names`: the pool's applications in the body. Without an answer they may come up later.
    async fn put(&self, body: String, names: BTreeSet<String>) -> Result<(), RayError> {
        let writing = self.shared.doubts.begin(names);
        let put = self.client.put(APPLICATIONS, body).await;
        match &put {
            Err(error) if error.is_unknown() => drop(writing),
            Ok(()) | Err(_) => writing.settle(),
        }
        put
    }

    pub(super) fn own_of<'a>(&'a self, wanted: &'a Wanted) -> Own<'a> {
        // Under a former name nothing is removed anyway.
        let address = (!self.is_former).then_some(self.used.address.as_str());
        Own {
            prefix: &self.prefix,
            wanted,
            kept: self.shared.kept_at(address),
        }
    }

    /// That there may be applications of this pool outlives the process when this returns.
    async fn remember(&self) -> Result<(), RayError> {
        let remembered = self.shared.ledger.remember(&self.used).await;
        remembered.map_err(|message| RayError::Record {
            program: self.client.program(),
            message,
        })
    }

    /// The Ray is forgotten once nothing of this pool is there, and no write can bring any more. The caller holds the lock on
    /// what is wanted, so that no application is added meanwhile.
    pub(super) async fn forget_if_empty(&self, state: &State, seen: &Listing) {
        let own = self.own_of(&state.wanted);
        let may_come = self.shared.doubts.names();
        let is_empty = state.wanted.is_empty()
            && self.cleaning().is_clean()
            && !self.shared.is_unanswered(&self.used.address)
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

    pub(super) fn cleaning(&self) -> MutexGuard<'_, Cleaning> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
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
