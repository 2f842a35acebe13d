//! The highest generation of a controller that this node has obeyed, kept across restarts: of two controllers of one pool, only the
//! later one may give orders (D4).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const FILE: &str = "controller-generation";

/// The generation kept in the node's folder.
#[derive(Debug)]
pub(super) struct Generations {
    path: PathBuf,
    highest: Mutex<Option<u64>>,
}

impl Generations {
    /// # Errors
    /// The file exists and cannot be read. One line for the user.
    pub fn open(folder: &Path) -> Result<Generations, String> {
        let path = folder.join(FILE);
        let highest = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().parse().map_err(|_| {
                format!(
                    "{} does not contain the number of a controller; delete it if no other controller of this pool runs",
                    path.display()
                )
            })?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        Ok(Generations {
            path,
            highest: Mutex::new(highest),
        })
    }

    pub fn highest(&self) -> Option<u64> {
        *self.lock()
    }

    /// Accepts a controller of this generation. A new highest generation is on the disk when this returns, so no restart of the
    /// node forgets it. A controller without a generation is the only user of its state.
    ///
    /// # Errors
    /// The reason for a refusal, with what to do if it is wrong.
    pub fn admit(&self, generation: Option<u64>) -> Result<(), String> {
        self.check(generation)?;
        let mut highest = self.lock();
        if generation.is_some() && *highest < generation {
            let text = format!("{}\n", generation.unwrap_or_default());
            private_files::replace(&self.path, text.as_bytes()).map_err(|error| {
                format!(
                    "cannot record the leading controller in {}: {error}; make the folder writable for this user",
                    self.path.display()
                )
            })?;
            *highest = generation;
        }
        Ok(())
    }

    /// Accepts an order of a controller of this generation.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn check(&self, generation: Option<u64>) -> Result<(), String> {
        match (self.highest(), generation) {
            (Some(highest), Some(its)) if its < highest => Err(format!(
                "this controller is no longer the leader: its generation is {its}, and this node has obeyed generation {highest} (D4); if no other controller exists, delete {} and restart the node",
                self.path.display()
            )),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.highest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_node_obeys_the_later_of_two_controllers_even_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let generations = Generations::open(folder.path()).expect("nothing yet");
        assert_eq!(generations.highest(), None);
        for admitted in [Some(5), Some(5), Some(7)] {
            assert_eq!(generations.admit(admitted), Ok(()));
            assert_eq!(generations.check(admitted), Ok(()));
        }
        let refused = generations.admit(Some(6)).expect_err("its time is over");
        assert!(
            refused.contains("generation is 6") && refused.contains("generation 7"),
            "{refused}"
        );
        assert!(generations.check(Some(6)).is_err(), "nor single orders");
        let again = Generations::open(folder.path()).expect("read again");
        assert_eq!(again.highest(), Some(7));
        assert!(again.admit(Some(6)).is_err());
        assert_eq!(again.admit(Some(8)), Ok(()));
    }

    #[test]
    fn d4_a_controller_without_a_generation_is_obeyed() {
        let folder = tempfile::tempdir().expect("a folder");
        let generations = Generations::open(folder.path()).expect("nothing yet");
        assert_eq!(generations.admit(None), Ok(()));
        assert_eq!(generations.admit(Some(3)), Ok(()));
        assert_eq!(generations.admit(None), Ok(()));
        assert_eq!(generations.highest(), Some(3));
    }

    #[test]
    fn d4_an_unreadable_generation_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(FILE), "seven").expect("written");
        let refused = Generations::open(folder.path()).expect_err("no number");
        assert!(refused.contains(FILE), "{refused}");
    }
}
