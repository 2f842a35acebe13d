//! Copies of the database, its move to another one, and the space of deleted rows.

mod backup;
mod migration;
mod restore;
mod upkeep;

pub use backup::{Backup, BackupContents, BackupError, back_up};
pub use migration::{MoveError, MovedTable, move_store};
pub use restore::{RestoreResult, restore};
