//! `audit`: the newest changes and refused attempts, with who made them.

use crate::commands::Session;
use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;
use crate::responses::AuditList;

/// Selects entries.
pub struct Filter {
    pub limit: u32,
    /// A key's id, or the subject of a token.
    pub of: Option<String>,
    pub path: Option<String>,
}

pub async fn run(session: &Session, filter: &Filter) -> Result<(), CommandError> {
    let limit = filter.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(filter.of.as_deref().map(|key| ("of", key)));
    query.extend(filter.path.as_deref().map(|path| ("path", path)));
    let response = session.client.get("admin/audit", &query).await?;
    session.show(&response, |list: &AuditList| {
        render::audit::audit(list, Clock::read(), session.screen.style)
    })
}
