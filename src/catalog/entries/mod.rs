//! Entries of the catalogue: documents that have been checked, and facts that follow from an entry.

mod arguments;
mod entry;
mod export;
mod files_mark;
mod findings;
mod model_card;
mod model_kind;
mod reference;
mod response_room;
mod scaling;

pub use entry::{Entry, PriorityFrom};
pub use findings::Finding;
pub use model_card::ModelCard;
pub use model_kind::ModelKind;
pub use reference::{Reference, ReferenceEntry};
