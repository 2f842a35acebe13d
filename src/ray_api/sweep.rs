//! Removes left-over applications from a Ray. They remain without a waiting replica when a removal failed, the previous process was
//! killed, or a write was interrupted. Retries until nothing is left.

use std::collections::BTreeSet;
use std::time::Duration;

use super::RayError;
use super::uncertain_writes::now;
use super::writer::{ServeWriter, WriterState};

/// Delay of the first attempt at a Ray that did not respond at the start, and of the next one while an application may still
/// appear.
const SOON: Duration = Duration::from_secs(2);

impl ServeWriter {
    /// Schedules the removal of applications that an earlier process's interrupted write may create. `is_known`: the Ray has
    /// responded and has no other left-over application.
    pub fn expect_late_writes(&self, is_known: bool) {
        let mut cleaning = self.cleaning();
        cleaning.expect_until(self.shared.doubts.end_of_all());
        if !is_known {
            cleaning.schedule(now() + SOON);
        }
    }

    /// Schedules the removal of an application whose replica waited in vain for its end.
    pub fn leave(&self, name: &str) {
        self.cleaning().leave(name, now());
    }

    /// Applications that may hold GPUs although their replicas have ended.
    pub fn left_over(&self) -> BTreeSet<String> {
        self.cleaning().left().clone()
    }

    /// Makes an attempt if one is due.
    pub async fn sweep_if_due(&self) {
        if !self.cleaning().is_due(now()) {
            return;
        }
        let Err(error) = self.sweep().await else {
            return;
        };
        let is_used = self.is_used();
        let mut cleaning = self.cleaning();
        // A Ray that only provides nodes may run without Serve.
        let is_refused = matches!(error, RayError::Refused { .. });
        if is_refused && !is_used && cleaning.left().is_empty() {
            return cleaning.turn_off();
        }
        let is_new = cleaning.failed(&error.to_string(), now());
        match cleaning.left() {
            _ if !is_new => {}
            left if left.is_empty() => tracing::warn!(
                "it is unknown whether applications of this pool are left over in Ray Serve: {error}; the pool looks until it is known"
            ),
            left => tracing::error!(
                "applications of Ray Serve may hold GPUs without a replica: {}: {error}; the pool tries to remove them until they are gone",
                shown(left)
            ),
        }
    }

    /// Removes left-over applications. Returns the names that remain or may still appear.
    ///
    /// # Errors
    /// If Ray does not respond or refuses, or other programs write continuously.
    pub async fn sweep(&self) -> Result<BTreeSet<String>, RayError> {
        let mut state = self.state.lock().await;
        // A removal that was abandoned before it had the lock has changed nothing, so the application must not be written again.
        for name in self.left_over() {
            // If another writer of this process has the application, it is wanted there.
            if state.wanted.remove(&name).is_some() {
                self.shared.let_go(&name);
            }
        }
        let began = now();
        // Read before the look, which does not show applications that appear later.
        let may_come = self.shared.doubts.names();
        let seen = if self.is_former {
            self.look().await?
        } else {
            self.write(&mut state).await?
        };
        let left: BTreeSet<String> = {
            let own = self.own_of(&state.wanted);
            let all = seen.applications.keys().chain(&may_come);
            all.filter(|name| own.is_left_over(name)).cloned().collect()
        };
        let WriterState { wanted, written } = &mut *state;
        written.retain(|name| wanted.contains_key(name) || left.contains(name));
        self.tell_of_former(&left);
        let gone = {
            let mut cleaning = self.cleaning();
            let gone = cleaning.found(left.clone(), began);
            if left.iter().any(|name| may_come.contains(name)) {
                // An application that appears late holds GPUs that its model's next replica may wait for.
                cleaning.schedule(began + SOON);
            }
            gone
        };
        for name in &gone {
            self.shared.gone(name);
        }
        if !gone.is_empty() {
            let (address, gone) = (self.address(), shown(&gone));
            tracing::info!("removed from Ray Serve at {address}: {gone}");
        }
        self.forget_if_empty(&state, &seen).await;
        Ok(left)
    }

    /// Reports each set of applications once.
    fn tell_of_former(&self, left: &BTreeSet<String>) {
        if !self.is_former || left.is_empty() || self.cleaning().left() == left {
            return;
        }
        tracing::error!(
            "applications in Ray Serve at {} have a name that this pool had before, and may hold GPUs: {}; remove them there, or give the pool its former cluster.name for one start. They stay, because another pool may have that name now",
            self.address(),
            shown(left)
        );
    }
}

fn shown(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
