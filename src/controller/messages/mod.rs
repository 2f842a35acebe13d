//! Messages to the loop, and the types of what they carry.

mod catalog_change;
mod message;
mod node_logs;
pub(crate) mod node_messages;

pub(crate) use catalog_change::{
    BYTES_LABEL, CatalogFigures, Change, FigureInputs, Figures, LABEL, Specs, Terms,
};
pub use catalog_change::{ChangeError, Registrar};
pub use message::OrderTerms;
pub(crate) use message::{Message, ParkRequest, ParkingResult, Readings};
pub(crate) use node_logs::NodeLogs;
pub use node_messages::NodePeer;
pub(crate) use node_messages::{AdmittedNode, JoiningNode, NodeLink, NodeMessage};
