//! State that administrators set and the pool restores at its start: wishes, cordons, groups, virtual models, nodes, registrations.

mod cordons;
mod facts;
mod groups;
mod nodes;
mod used_rays;
mod virtual_models;
mod wishes;

pub use nodes::{
    NODE_DEVICES_KEPT_MAX, NODE_TOKEN_EXPIRES_SOON, NODES_KEPT_MAX, NodeNumbers, NodePass,
    NodeToken, TokenRefusal,
};
pub use used_rays::KeptRay;
pub use wishes::KeptWish;
