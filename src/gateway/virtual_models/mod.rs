//! Virtual models: names that stand for several models. The choice of a member is advice for one request; the pool still decides
//! about loads, and the request counts for its member.

pub mod attempts;
pub mod causes;
pub mod changes;
pub mod choice;
pub mod outlook;
pub mod preview;
pub mod request_facts;
pub mod selection;
