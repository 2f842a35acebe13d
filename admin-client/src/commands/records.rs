//! The records of the pool: `why`, `report`, `usage`, `audit`, `leaderboard`.

use crate::cli::{AuditArgs, ReportArgs, UsageArgs};
use crate::decisions::{DecisionReport, Report, Usage};
use crate::error::CommandError;
use crate::render;
use crate::render::quantity::Clock;
use crate::responses::{AuditList, Leaderboard};
use crate::session::Session;

/// Shows the decision behind an event, or the last decision about a model. Takes a number as an event and everything else as a
/// model: no model's name is a number.
pub async fn why(session: &Session, what: &str) -> Result<(), CommandError> {
    let number = what.strip_prefix('#').unwrap_or(what);
    let is_event = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let query = if is_event {
        ("event", number)
    } else {
        ("model", what)
    };
    let show = |why: &DecisionReport, style| render::why::why(why, Clock::read(), style);
    session.get("admin/why", &[query], show).await
}

/// Shows a summary of a period as a table, as CSV or as an HTML page.
pub async fn report(session: &Session, args: &ReportArgs) -> Result<(), CommandError> {
    let from = match (&args.from, args.day) {
        (Some(from), _) => from.as_str(),
        (None, true) => "1d",
        (None, false) => "7d",
    };
    let mut query = vec![("from", from)];
    query.extend(args.to.as_deref().map(|to| ("to", to)));
    let format = match (args.csv, args.html) {
        (true, _) => "csv",
        (_, true) => "html",
        _ => {
            let show = |report: &Report, style| render::report::report(report, style);
            return session.get("admin/report", &query, show).await;
        }
    };
    query.push(("format", format));
    if args.by_group {
        query.push(("by", "group"));
    }
    let kind = format!("text/{format}");
    let text = session.client.get_text("admin/report", &query, &kind);
    session.screen.print(text.await?.trim_end())
}

/// Shows the device time of a month as a table, or as CSV.
pub async fn usage(session: &Session, args: &UsageArgs) -> Result<(), CommandError> {
    let filters = [
        ("month", &args.month),
        ("group", &args.group),
        ("model", &args.model),
        ("of", &args.of),
    ];
    let filters = filters.into_iter();
    let mut query: Vec<(&str, &str)> = filters
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    if !args.csv {
        let show = |usage: &Usage, style| render::usage::usage(usage, style);
        return session.get("admin/usage", &query, show).await;
    }
    query.push(("format", "csv"));
    let text = session.client.get_text("admin/usage", &query, "text/csv");
    session.screen.print(text.await?.trim_end())
}

/// Shows the newest changes and refused attempts, with who made them.
pub async fn audit(session: &Session, args: &AuditArgs) -> Result<(), CommandError> {
    let limit = args.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(args.of.as_deref().map(|key| ("of", key)));
    query.extend(args.path.as_deref().map(|path| ("path", path)));
    query.extend(args.group.as_deref().map(|group| ("group", group)));
    let show = |list: &AuditList, style| render::audit::audit(list, Clock::read(), style);
    session.get("admin/audit", &query, show).await
}

/// Shows the models ranked by votes from the playground.
pub async fn leaderboard(session: &Session) -> Result<(), CommandError> {
    let show =
        |board: &Leaderboard, style| render::leaderboard::leaderboard(board, Clock::read(), style);
    session.get("leaderboard", &[], show).await
}
